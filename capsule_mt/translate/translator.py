"""`Translator`: text in, `Translation`s out.

options -> Plan; text -> Segmenter -> pieces: token ids -> Decoder.translate -> hypotheses -> rounds -> Translation
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from capsule_mt.catalog.entries import FACTS_FILE
from capsule_mt.engine.decoder import FIRST_TOKEN
from capsule_mt.messages import warn_of_share
from capsule_mt.models.languages import PairTokenizer, code_of, many_languages
from capsule_mt.models.opening import check_name_or_folder
from capsule_mt.text.reading import Piece
from capsule_mt.text.segments import MAX_UNKNOWN_SHARE, Document
from capsule_mt.translate.assembling import LaterScores, translation_of
from capsule_mt.translate.options import TranslationOptions, check_language_type, refuse_unknown_arguments
from capsule_mt.translate.plan import Plan
from capsule_mt.translate.planning import plan_of
from capsule_mt.translate.results import Translation
from capsule_mt.translate.rounds import Draft, Round, is_short, rounds_of, translated
from capsule_mt.translate.scorer import Scorer
from capsule_mt.translate.searching import Hypotheses
from capsule_mt.translate.text_translator import TextTranslator

if TYPE_CHECKING:  # late: few calls have a glossary
    from capsule_mt.text.glossary import Glossary


class Translator(Scorer, TextTranslator):
    """Translates texts on a CPU.

        >>> translator = Translator.from_pretrained("checkpoints/capsule-marian-de-en")
        >>> translation = translator("Der alte Mann kauft einen roten Hut.", coverage=CoverageOptions())
        >>> translation.text, translation.score, [word.text for word in translation.coverage.untranslated]

    `hf_capsule_mt.Translator` also takes any sequence-to-sequence model of transformers. `Scorer` documents the
    arguments of the constructor, and the methods that score given translations.
    """

    _loads_with: Mapping[str, Any] = {}  # options of `from_pretrained`, with which the reverse is loaded, too
    # what the plan of calls without options was made from, and this plan
    _default_plan: tuple[tuple[Any, ...], Plan] | None = None

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        *,
        int8: bool = False,
        shortlist: bool | str | os.PathLike[str] = False,
        reverse: "Scorer | str | os.PathLike[str] | None" = None,
        glossary: "Glossary | Mapping[str, str] | str | os.PathLike[str] | None" = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **unknown: NoReturn,
    ) -> "Translator":
        """Load a checkpoint by its folder, or a model by its name, which is downloaded unless it is in the cache.

        A name is a pair such as "en-pt" of Mozilla's registry, or one of the Hugging Face hub. A pair without a model
        of its own goes through English by two models: `capsule_mt.load` loads those, too.

        Args:
            int8: multiply in int8, which is faster.
            shortlist: score only the likely translations of a source's tokens: a file that `capsule-mt shortlist` has
                written, or True for the one beside the checkpoint. If a model of many languages does not have one,
                True selects the tokens of the target's script.
            reverse: the reverse model: see `Scorer`.
            glossary: terms and their translations: a dictionary, or a file with `term<tab>translation` on each line.
            src_lang, tgt_lang: the languages of calls that do not name them, if the model has many or its folder does
                not tell them: the model's codes, or others such as "de" and "deu_Latn".
        """
        from capsule_mt.models.loading import load_model
        from capsule_mt.models.probing import probe_if_required

        refuse_unknown_arguments(unknown, cls.from_pretrained)
        check_name_or_folder(folder, "folder")
        if not os.path.isdir(folder):
            from capsule_mt.catalog.store import model_folder  # late: a folder needs no catalog

            folder = model_folder(folder, "`capsule_mt.load` loads both")
        is_download = os.path.lexists(os.path.join(folder, FACTS_FILE))
        if is_download:
            from capsule_mt.translate.first_use import check_files, check_translations  # late: few folders are

            # also the shortlist beside the model, which a later use may read
            times = check_files(os.fspath(folder), int8=int8, shortlist=shortlist or None)
        else:
            probe_if_required(os.fspath(folder), int8=int8, shortlist=shortlist)
        model = load_model(folder, int8=int8, shortlist=shortlist)
        if is_download:
            check_translations(os.fspath(folder), model, times)
        translator = cls(model, glossary, reverse=reverse)
        translator._loads_with = {"int8": int8}
        translator.languages = (src_lang, tgt_lang)
        translator.check_languages()
        return translator

    def _load(self, folder: str) -> "Translator":
        return type(self).from_pretrained(folder, **self._loads_with)

    def check_languages(self) -> None:
        """Refuse `languages` that the model does not have; a call may name one that is missing."""
        tokenizer = many_languages(self.loaded.tokenizer)
        for argument, language in zip(("src_lang", "tgt_lang"), self.languages, strict=True):
            check_language_type(argument, language)
            if tokenizer is not None and language is not None:
                code_of(argument, language, tokenizer.language_codes)
        self.translator_model.languages_of(TranslationOptions())  # a model of one pair refuses others

    @property
    def target_language(self) -> str | None:
        return self.translator_model.languages_of(TranslationOptions())[1]

    # ---- the steps of `translate`
    def completed(self, options: TranslationOptions) -> TranslationOptions:
        options = super().completed(options)
        tokenizer = self.translator_model.tokenizer_of(options)
        first_ids = tokenizer.first_ids if isinstance(tokenizer, PairTokenizer) else []
        if not first_ids or FIRST_TOKEN in options.generate_kwargs:
            return options
        return options._replace(generate_kwargs={**options.generate_kwargs, FIRST_TOKEN: first_ids[0]})

    def plan(self, options: TranslationOptions) -> Plan:
        """Resolve the options of a call; the plan of calls without options is kept until the model changes.

        A change of its generation settings or of `languages` counts, too.
        """
        if options != TranslationOptions():
            return plan_of(self, self.completed(options))
        basis = self.loaded, repr(self.loaded.generation), self.languages  # its lists may change in place, too
        if self._default_plan is None or self._default_plan[0] != basis:
            self._default_plan = basis, plan_of(self, self.completed(options))
        return self._default_plan[1]

    def documents(self, texts: Sequence[str], plan: Plan) -> list[Document]:
        """Cut texts into pieces that fit the model."""
        documents = [plan.segmenter.document(text) for text in texts]
        if self.glossary is not None:
            _find_terms(self.glossary, documents)
        num_unknown = sum(document.unknown > MAX_UNKNOWN_SHARE for document in documents)
        warn_of_share(
            f"The vocabulary lacks more than {MAX_UNKNOWN_SHARE:.0%} of the tokens of {{}}: is it in the source "
            "language?",
            num_unknown,
            len(documents),
            "texts",
        )
        return documents

    def translate_pieces(self, pieces: Sequence[Piece], plan: Plan) -> list[Hypotheses]:
        """Translate pieces in batches of similar length; those with a fault, or that leave much out, again."""
        return translated(pieces, plan)

    def put_together(
        self, documents: Sequence[Document], results: list[Hypotheses], plan: Plan
    ) -> list[list[Translation]]:
        """Return the best translations of each text, from the hypotheses of its pieces."""
        rounds = rounds_of(documents)
        if rounds:
            documents, results = _after_rounds(rounds, documents, results, plan)
        _warn_of(results, plan.threshold)
        later = None
        if plan.scores_later:
            pieces = [piece for document in documents for piece in document.pieces]
            pairs = zip(pieces, results, strict=True)
            later = LaterScores([(piece, hypotheses[0]) for piece, hypotheses in pairs], plan)
        pending, translations = iter(results), []
        for document in documents:
            hypotheses = [next(pending) for _ in document.pieces]
            ranks = range(plan.num_returned)
            translations.append(
                [translation_of(document, [ranked[rank] for ranked in hypotheses], plan, later) for rank in ranks]
            )
        return translations


def _after_rounds(
    rounds: Sequence[Round], documents: Sequence[Document], results: Sequence[Hypotheses], plan: Plan
) -> tuple[list[Document], list[Hypotheses]]:
    """Take pieces and hypotheses through the rounds; return documents with the pieces that these end with."""
    from copy import copy  # late: few texts need rounds

    pieces = [(index, piece) for index, document in enumerate(documents) for piece in document.pieces]
    drafts = [Draft(*indexed, hypotheses) for indexed, hypotheses in zip(pieces, results, strict=True)]
    for improve in rounds:
        drafts = improve(drafts, plan)
    changed = []
    for index, document in enumerate(documents):
        changed.append(copy(document))
        changed[-1].pieces = [draft.piece for draft in drafts if draft.document_index == index]
    return changed, [draft.hypotheses for draft in drafts]


def _find_terms(glossary: "Glossary", documents: Sequence[Document]) -> None:
    """Give each piece the terms of the glossary that it has outside of protected items."""
    for document in documents:
        for piece in document.pieces:
            terms = glossary.find(document.text, piece.span)
            piece.terms = [term for term in terms if not piece.has_kept(term.span)]


def _warn_of(results: Sequence[Hypotheses], threshold: float | None) -> None:
    """Warn of translations that were cut, and of those that seem to leave something out."""
    num_cut = sum(any(hypothesis.was_cut for hypothesis in hypotheses) for hypotheses in results)
    warn_of_share(
        "{} reached a limit and may be incomplete. `max_new_tokens` and `max_time` set a higher one.",
        num_cut,
        len(results),
        "translations",
    )
    if threshold is not None:
        warn_of_share(
            f"The coverage of {{}} is below {threshold:g}: something was probably left out.",
            sum(is_short(hypotheses, threshold) for hypotheses in results),
            len(results),
            "translations",
        )
