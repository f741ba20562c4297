"""`Scorer`: scores, coverage and adequacy of given translations, such as another system's."""

import math
import os
import re
from collections.abc import Mapping, Sequence, Sized
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from capsule_mt.coverage.names import head_of
from capsule_mt.engine.decoder import FIRST_TOKEN
from capsule_mt.engine.search import Hypothesis
from capsule_mt.messages import check_path, warn, warn_once
from capsule_mt.models.checking import check_calibration
from capsule_mt.models.languages import many_languages, target_code_of
from capsule_mt.models.model import LoadedModel
from capsule_mt.options.table import Readings
from capsule_mt.text.copying import TAG
from capsule_mt.text.keeping import BLOCK_BREAK, Masked, masked, overlaps
from capsule_mt.text.languages import check_language, is_surely_other_language
from capsule_mt.text.normal import vocabulary_of
from capsule_mt.text.segments import Document, Piece, Segmenter, batches_of, check_texts
from capsule_mt.text.sentences import Span
from capsule_mt.text.tokenizer import Tokenizer
from capsule_mt.text.words import NO_LISTS, Offsets, SourceWord, target_ends
from capsule_mt.translate.aligning import aligned_rows
from capsule_mt.translate.assembling import links_between, segment_of
from capsule_mt.translate.options import TRUNCATES, TranslationOptions
from capsule_mt.translate.plan import CoveragePlan, Plan, plan_of
from capsule_mt.translate.results import Translation
from capsule_mt.translate.searching import cover_hypotheses

if TYPE_CHECKING:  # late: a call without coverage starts sooner
    from capsule_mt.catalog.pairs import LanguagePair
    from capsule_mt.coverage.methods import Calibration
    from capsule_mt.coverage.options import CoverageOptions
    from capsule_mt.coverage.results import Adequacy, Coverage
    from capsule_mt.coverage.verified import ForcedPair
    from capsule_mt.text.glossary import Glossary
    from capsule_mt.text.restoring import Alignment

# a text whose translation is scored is not split into sentences
SCORED = TranslationOptions(split_sentences=False, truncation=True, copy=False)
# warnings of what was cut, with its tokens and those of them that remain; a reverse model reads a pair the other way
TARGET_WAS_CUT = "A given translation of {} tokens was cut to {}."
REVERSE_SOURCE_WAS_CUT = "The reverse model cut a translation of {} tokens to {}."
REVERSE_TARGET_WAS_CUT = "The reverse model cut a source of {} tokens to {}."
MAX_PAIRS = 32  # language pairs whose tokenizers are kept, each with the caches of its vocabulary
Pair = tuple[Piece, Hypothesis]
Result = TypeVar("Result")


class Scorer:
    """Judges given translations by a model, its calibration, and the reverse model.

    Args:
        model: the model that scores, and translates.
        glossary: terms and their translations: see `from_pretrained`.
        reverse: the reverse model, which translates in the other direction and verifies the marks of coverage: a
            `Translator` or its folder. By default, it is the model that the calibration names, if its folder is beside
            this model's or it is downloaded.
    """

    languages: tuple[str | None, str | None] = (None, None)  # source and target of calls that do not name them
    _glossary: "Glossary | None" = None
    _reverse: "Scorer | str | os.PathLike[str] | None" = None
    # the reverse that the calibration names, and its folder if there is one; (None, None) before the first search
    _located_reverse: tuple[str | None, str | None] = (None, None)

    def __init__(
        self,
        model: LoadedModel,
        glossary: "Glossary | Mapping[str, str] | str | os.PathLike[str] | None" = None,
        *,
        reverse: "Scorer | str | os.PathLike[str] | None" = None,
    ) -> None:
        if isinstance(model, (str, os.PathLike)):
            raise TypeError(f"`model` must be a loaded model, got {model!r}: `from_pretrained` takes a folder")
        self.loaded = model
        self._take_glossary(glossary)
        self._take_reverse(reverse)

    @property
    def glossary(self) -> "Glossary | None":
        """Terms and their translations; a dictionary or a file may be assigned, too."""
        return self._glossary

    @glossary.setter
    def glossary(self, glossary: "Glossary | Mapping[str, str] | str | os.PathLike[str] | None") -> None:
        self._take_glossary(glossary)

    def _take_glossary(self, glossary: "Glossary | Mapping[str, str] | str | os.PathLike[str] | None") -> None:
        if glossary is not None:
            from capsule_mt.text.glossary import glossary_of  # late: few have one

            glossary = glossary_of(glossary)
        self._glossary = glossary

    @property
    def calibration(self) -> "Calibration":
        """The calibration of coverage: curves, thresholds and lists of words."""
        from capsule_mt.coverage.methods import Calibration

        config = self.loaded.calibration
        cached_config, calibration = getattr(self, "_calibration", (None, None))
        if calibration is None or cached_config is not config:
            calibration = Calibration.of_config(config)
            self._calibration = (config, calibration)
        return calibration

    def set_calibration(self, values: Mapping[str, Any]) -> None:
        """Use other curves and lists of words: a `coverage_calibration` of config.json."""
        check_calibration(values, self.loaded.head_shape, "`set_calibration`")
        self.loaded = self.loaded._replace(calibration=values)

    @property
    def backend(self) -> str:
        """The name of the decoder: "native" is the engine."""
        return "native"

    @property
    def reverse(self) -> "Scorer | None":
        """The reverse model, loaded when it is first needed."""
        if not isinstance(self._reverse, Scorer) and (folder := self._reverse_folder()) is not None:
            reverse = self._load(folder)
            self.check_direction(reverse)
            self._reverse = reverse
        return self._reverse if isinstance(self._reverse, Scorer) else None

    @reverse.setter
    def reverse(self, translator: "Scorer | None") -> None:
        self._take_reverse(translator)

    def _take_reverse(self, reverse: "Scorer | str | os.PathLike[str] | None") -> None:
        """Use a reverse model. A folder or name is loaded, and its direction checked, when it is first needed."""
        if isinstance(reverse, Scorer):
            self.check_direction(reverse)
        elif reverse is not None:
            check_path(reverse, "reverse", "a `Translator`, or the folder or name of a model")
            if not os.path.exists(reverse):
                from capsule_mt.catalog.entries import CatalogError  # late, as most reverse models are folders
                from capsule_mt.catalog.store import name_of

                try:
                    name_of(reverse)
                except CatalogError as error:
                    raise CatalogError(f"`reverse`: {error}") from None
        self._reverse = reverse

    def check_direction(self, reverse: "Scorer") -> None:
        """Refuse a reverse model of other languages: it would verify the marks by chance."""
        pair, reverse_pair = self._pair, reverse._pair
        if pair is None or reverse_pair is None:
            return
        expected = f"{pair.target}-{pair.source}"
        if any(map(is_surely_other_language, reverse_pair, reversed(pair))):
            raise ValueError(
                f"`reverse` must translate {expected}, since {self._folder} translates {pair}; got {reverse._folder}, "
                f"which translates {reverse_pair}"
            )

    def _directed(self, reverse: "Scorer", options: TranslationOptions) -> "tuple[Directed, Directed]":
        """Return the model and its reverse in the languages of a call; refuse a reverse model that lacks them."""
        source, target = self._languages(options)
        model = Directed(self, source, target)
        if not reverse.is_multilingual:
            pair = reverse._pair
            if pair is not None and any(map(is_surely_other_language, pair, (target, source))):
                raise ValueError(
                    f"`reverse` must translate {target or '?'}-{source or '?'}, since the call is for "
                    f"{source or '?'}-{target or '?'}; got {reverse._folder}, which translates {pair}"
                )
            return model, Directed(reverse)
        # the reverse's own codes may be more precise than those of this model's folder: "zho_Hant" rather than "zh"
        source = options.src_lang or self.languages[0] or reverse.languages[1] or source
        target = options.tgt_lang or self.languages[1] or reverse.languages[0] or target
        try:
            reverse._tokenizer(SCORED._replace(src_lang=target, tgt_lang=source))
            if source is None and len(reverse._target_tokens) > 1:
                target_code_of(None, reverse._target_tokens)
        except ValueError as error:
            raise ValueError(f"`reverse`: {reverse._folder}: {error}") from None
        return model, Directed(reverse, target, source)

    @property
    def has_reverse(self) -> bool:
        """Whether there is a reverse model; it need not be loaded."""
        return isinstance(self._reverse, Scorer) or self._reverse_folder() is not None

    @property
    def precision(self) -> dict[str, float] | None:
        """The share of marks that a reader found right, by `marks` of `CoverageOptions`; None if nobody read them.

        A calibration from before 0.3.1 may have shares by a word aligner. They are not reported: on two students they
        claim 0.75 and 0.95 at "likely", where a reader found 14 of 40 and 26 of 47 marks right.
        """
        verified = self.calibration.methods.get("verified", {})
        is_by_hand = self.has_reverse and verified.get("labels") == "by hand"
        measured = verified.get("marks", {}) if is_by_hand else {}
        return {marks: float(counts["precision"]) for marks, counts in measured.items()} or None

    def _load(self, folder: str) -> "Scorer":
        """Load a model with the options that this one was loaded with."""
        raise NotImplementedError

    def _reverse_folder(self) -> str | None:
        """Return the folder of `reverse`, or else that of the model that the calibration names.

        The latter is beside this model's folder, or among the downloaded models; `None` if it is in neither.
        """
        if isinstance(self._reverse, (str, os.PathLike)):
            return os.fspath(self._reverse)
        name = self.calibration.reverse
        if name is None:
            return None
        if self._located_reverse[0] != name:  # only once: what is downloaded later does not change a translator
            beside = os.path.join(os.path.dirname(os.path.abspath(self._folder)), name)
            self._located_reverse = name, beside if os.path.isdir(beside) else self._downloaded(name)
        return self._located_reverse[1]

    def _downloaded(self, name: str) -> str | None:
        """Return the folder of a model by name, if it is downloaded."""
        from capsule_mt.catalog.store import downloaded_folder  # late: most calibrations name none

        return downloaded_folder(name)

    @property
    def _folder(self) -> str:
        """The folder of the checkpoint; its reverse may be beside it."""
        return self.loaded.name

    def cover(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: "CoverageOptions | None" = None,
        batch_size: int = 16,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> "list[Coverage]":
        """Return what given translations cover: the `coverage` of what `score` returns."""
        from capsule_mt.coverage.options import CoverageOptions

        coverage = coverage or CoverageOptions()
        scored = self.score(
            texts, translations, coverage=coverage, batch_size=batch_size, src_lang=src_lang, tgt_lang=tgt_lang
        )
        return [translation.coverage for translation in scored if translation.coverage is not None]

    def score(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: "CoverageOptions | None" = None,
        adequacy: bool = False,
        alignment: bool = False,
        batch_size: int = 16,
        batch_tokens: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> list[Translation]:
        """Return given translations, such as another system's, with their scores and what they cover.

        Each text counts as one sentence. As in translating, the model does not read tags. A source or a translation
        that is longer than the model takes is cut, with a warning, and `was_cut` is True. The score of a blank text is
        `None`.

        Args:
            texts: the sources.
            translations: a translation of each.
            coverage: find what was left out, and how.
            adequacy: also return what the method `adequacy` does, by three more forced passes.
            alignment: find which source word each target word translates.
            batch_size: how many pairs go through the model at once.
            batch_tokens: instead, how many tokens, padding included; a pair counts by its longer side.
            src_lang, tgt_lang: for tokenizers that have languages.
        """
        _refuse_unpaired(texts, translations)
        if not isinstance(adequacy, bool):
            raise TypeError(f"`adequacy` must be True or False, got {adequacy!r}")
        if adequacy and self.reverse is None:
            raise ValueError(
                f"`adequacy` needs a reverse model: give {self.loaded.name} a `reverse` (`--reverse MODEL`)"
            )
        options = SCORED._replace(
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            coverage=coverage,
            alignment=alignment or adequacy,  # adequacy needs the attention of the head that aligns words
            src_lang=src_lang,
            tgt_lang=tgt_lang,
        ).checked()
        plan = self._plan(options, is_forced=True)
        documents, pairs = self._pairs(texts, translations, plan.segmenter)
        lengths = [max(len(piece.ids), len(target.ids)) for piece, target in pairs]
        adequacies: list[Adequacy | None] = [None] * len(pairs)
        text_indices = [index for index, document in enumerate(documents) if document.pieces]
        for indices in batches_of(lengths, batch_size, batch_tokens):
            batch = [pairs[index] for index in indices]
            _score_batch(batch, plan)
            if adequacy:
                batch_texts = [text_indices[index] for index in indices]
                model_texts = [_model_texts(documents[index], translations[index]) for index in batch_texts]
                for index, result in zip(indices, self._adequacies(batch, model_texts, options), strict=True):
                    adequacies[index] = result
        results = []
        rows = zip(documents, _by_text(documents, pairs), _by_text(documents, adequacies), translations, strict=True)
        for document, pair, text_adequacy, translation in rows:
            hypotheses = [] if pair is None else [pair[1]]
            text_coverage = None
            if plan.coverage is not None:
                from capsule_mt.coverage.documents import coverage_of, with_checks

                parts = [(translation, 0)] * len(hypotheses)
                outputs = [plan.tokenizer.decode(hypothesis.ids) for hypothesis in hypotheses]
                coverages = [hypothesis.covered for hypothesis in hypotheses]
                text_coverage = coverage_of(document, coverages, parts, outputs, *plan.coverage.coverage_arguments)
                text_coverage = with_checks(text_coverage, document.with_blank_languages, translation, plan.languages)
            segments = () if pair is None else (segment_of(*pair, plan),)
            score = hypotheses[0].score if hypotheses else None
            links = None
            if alignment:
                links = () if pair is None else links_between(document, [pair], [translation], translation, plan)
            results.append(
                Translation(translation, score, text_coverage, segments, alignment=links, adequacy=text_adequacy)
            )
        return results

    def adequacy(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        batch_size: int = 16,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> "list[Adequacy | None]":
        """Return the adequacy of given translations, such as another system's; `None` for a blank text.

        It takes a reverse model and four forced passes. The calibration predicts the expected length; without one, it
        is the length of the text.
        """
        scored = self.score(
            texts, translations, adequacy=True, batch_size=batch_size, src_lang=src_lang, tgt_lang=tgt_lang
        )
        return [translation.adequacy for translation in scored]

    def _adequacies(
        self, pairs: Sequence[Pair], model_texts: Sequence[tuple[str, str]], options: TranslationOptions
    ) -> "list[Adequacy]":
        """Return the adequacy of scored translations.

        model_texts: each text and its translation as the model reads them.
        """
        from capsule_mt.coverage.adequacy import Judge, adequacies  # late: most calls do not ask for it

        assert self.reverse is not None
        model, reverse = self._directed(self.reverse, options)
        judge = Judge(model, self.loaded.decoder, self.loaded.end, self.calibration, reverse)
        coverages = None
        if self.calibration.head is None:
            texts, translations = zip(*model_texts, strict=True)
            coverages = self.cover(texts, translations, src_lang=options.src_lang, tgt_lang=options.tgt_lang)
        return adequacies(judge, pairs, model_texts, coverages)

    def information(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> list[float | None]:
        """Return the share of each translation's information that its text predicts; `None` for a blank text.

        It is 1 - log p(translation | text) / log p(translation | no text), at least 0.
        """
        forced_pairs = self.force(texts, translations, with_information=True, src_lang=src_lang, tgt_lang=tgt_lang)
        return [None if pair is None else pair.information for pair in forced_pairs]

    def force(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        with_head: bool = False,
        with_information: bool = False,
        spans: Sequence[Sequence[Span]] | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> "list[ForcedPair | None]":
        """Return a forced pass over each given translation, with the characters that its tokens stand for.

        This model is another one's reverse: warnings name its texts as translations, and its translations as sources.
        The result for a blank text is `None`. Words beyond the model's limit do not have tokens.

        Args:
            with_head: also return the attention of the head that aligns words.
            with_information: also force each translation without its text, for `ForcedPair.information`.
            spans: compute only the log-probabilities of these characters of each translation, and no offsets of its
                text; ignored if `with_information`, which needs all log-probabilities.
            src_lang, tgt_lang: the languages of `texts` and of `translations`, for tokenizers that have languages.
        """
        from capsule_mt.coverage.verified import ForcedPair, information_of, offsets_of

        options = SCORED._replace(src_lang=src_lang, tgt_lang=tgt_lang).checked()
        segmenter = self._segmenter(options)._replace(cut_warning=REVERSE_SOURCE_WAS_CUT)
        documents, pairs = self._pairs(texts, translations, segmenter, cut_warning=REVERSE_TARGET_WAS_CUT)
        if with_head and self.calibration.head is None:
            raise ValueError(f"{self.loaded.name} has no head that aligns words: `capsule-mt calibrate` chooses one")
        readings = Readings(head=self.calibration.head if with_head else None)
        sources, targets = [piece.ids for piece, _ in pairs], [target.ids for _, target in pairs]
        has_pair, decode = [bool(document.pieces) for document in documents], segmenter.tokenizer.decode
        offsets_by_pair: list[Offsets] = []
        for translation, target_ids in zip(compress(translations, has_pair), targets, strict=True):
            if re.search(TAG, translation) is None:
                offsets_by_pair.append(offsets_of(translation, target_ids, decode))
                continue
            target = _without_tags(translation)
            offsets = offsets_of(target.text, target_ids, decode)
            offsets_by_pair.append([span and target.user_span(Span(*span)) for span in offsets])
        positions = None
        if spans is not None and not with_information:
            positions = [
                [token for token, span in enumerate(offsets) if span and overlaps(Span(*span), pair_spans)]
                for offsets, pair_spans in zip(offsets_by_pair, compress(spans, has_pair), strict=True)
            ]
            # the probability of a token does not depend on later ones: leave these out
            targets = [
                target_ids[: max(tokens, default=0) + 1] for target_ids, tokens in zip(targets, positions, strict=True)
            ]
        results = self.loaded.decoder.force(sources, targets, readings, positions=positions) if pairs else []
        shares: Sequence[float | None] = [None] * len(pairs)
        if with_information:
            log_probs = [forced.log_probs for forced in results]
            shares = information_of(log_probs, targets, self.loaded.decoder, self.loaded.end)
        forced_pairs = [
            ForcedPair(list(piece.source_offsets) if spans is None else (), offsets, forced, information)
            for (piece, _), offsets, forced, information in zip(pairs, offsets_by_pair, results, shares, strict=True)
        ]
        return _by_text(documents, forced_pairs)

    def _pairs(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        segmenter: Segmenter,
        with_tags: bool = False,
        cut_warning: str = TARGET_WAS_CUT,
    ) -> tuple[list[Document], list[Pair]]:
        """Tokenise texts and their translations; blank texts have no pair. The model reads tags only `with_tags`."""
        check_texts(texts, "texts")
        check_texts(translations, "translations")
        segmenter = segmenter._replace(normalises=True)
        documents = [segmenter.document(text) if with_tags else _document(text, segmenter) for text in texts]
        # a text that is not cut into sentences is one piece, or none if it is blank
        target_texts = [translation if with_tags else _model_text(translation) for translation in translations]
        pairs = [
            (document.pieces[0], self._target(text, segmenter.tokenizer, cut_warning))
            for document, text in zip(documents, target_texts, strict=True)
            if document.pieces
        ]
        for document, translation in zip(documents, translations, strict=True):
            for piece in document.pieces:
                piece.words = [
                    _copied_into(translation, word, document.text[slice(*word.span)]) for word in piece.words
                ]
        return documents, pairs

    @property
    def is_multilingual(self) -> bool:
        tokenizer = self.loaded.tokenizer
        return many_languages(tokenizer) is not None or bool(tokenizer.language_tokens)

    def _tokenizer(self, options: TranslationOptions) -> Tokenizer:
        source, target = self._languages(options)
        tokenizer = many_languages(self.loaded.tokenizer)
        if tokenizer is None:
            return self.loaded.tokenizer
        if (pair_tokenizer := self._pair_tokenizers.get((source, target))) is not None:
            return pair_tokenizer
        pair_tokenizer = tokenizer.for_pair(source, target, self.loaded.start)
        if len(self._pair_tokenizers) >= MAX_PAIRS:
            self._pair_tokenizers.clear()
        self._pair_tokenizers[source, target] = pair_tokenizer
        return pair_tokenizer

    @cached_property
    def _pair_tokenizers(self) -> dict[tuple[str | None, str | None], Tokenizer]:
        """Tokenizers of language pairs, whose vocabularies (`vocabulary_of`) cache what they have looked up."""
        return {}

    def _languages(self, options: TranslationOptions) -> tuple[str | None, str | None]:
        """Return the languages of a call, or those that the folder tells; a model of one pair refuses others."""
        source, target = self.languages
        languages = options.src_lang or source, options.tgt_lang or target
        if self._pair is None:
            default_source, default_target = self._default_languages
            target = languages[1] or default_target
            if target and self._target_tokens:
                target = target_code_of(target, self._target_tokens)
            return languages[0] or default_source, target
        name = f"{self._folder} translates {self._pair}"
        for argument, language, model_language in zip(("src_lang", "tgt_lang"), languages, self._pair, strict=True):
            if language:
                check_language(argument, language, model_language, name)
        return languages[0] or self._pair.source, languages[1] or self._pair.target

    @cached_property
    def _target_tokens(self) -> Sequence[str]:
        """The tokens of target languages of a multilingual OPUS-MT model; empty for others."""
        tokenizer = self.loaded.tokenizer
        return () if many_languages(tokenizer) is not None else tokenizer.language_tokens

    @cached_property
    def _default_languages(self) -> tuple[str | None, str | None]:
        """The codes that a model of many languages has for calls that name no language."""
        tokenizer = many_languages(self.loaded.tokenizer)
        if tokenizer is None:
            return None, None
        forced_id, start_id = self.loaded.generation.get(FIRST_TOKEN), self.loaded.start
        return tokenizer.source_language, tokenizer.code_among(forced_id, start_id)

    @cached_property
    def _pair(self) -> "LanguagePair | None":
        """The language pair of a model for one pair, if its folder tells it."""
        from capsule_mt.catalog.pairs import pair_of  # late: a model of many languages has no pair

        return pair_of(self._folder) if self._folder and not self.is_multilingual else None

    def _segmenter(self, options: TranslationOptions) -> Segmenter:
        src_lang, tgt_lang = self._languages(options)
        with_words = options.coverage is not None or options.alignment
        is_foreign = None
        if options.copy_foreign:
            from capsule_mt.text.detecting import foreign_lines_of  # late: few calls copy lines in other languages

            is_foreign = foreign_lines_of(src_lang)
        return Segmenter(
            self._tokenizer(options),
            limit=self.loaded.longest_source,
            split_sentences=options.split_sentences,
            truncation=options.truncation in TRUNCATES,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            copies=options.copy,
            normalises=options.copy,
            keep=options.keep,
            with_words=with_words,
            lists=self.calibration.lists if with_words else NO_LISTS,
            is_foreign=is_foreign,
        )

    # ---- the plan of a call
    def _plan(self, options: TranslationOptions, *, is_forced: bool = False) -> Plan:
        """Resolve the options of a call by the model and its calibration.

        is_forced: translations are given, so the shortlist does not restrict them.
        """
        model = self.loaded
        coverage = None if options.coverage is None else self._coverage_plan(options.coverage, options, is_forced)
        return plan_of(options, model, self._segmenter(options), head_of(model.calibration), coverage)

    def _coverage_plan(
        self, coverage: "CoverageOptions", options: TranslationOptions, is_forced: bool
    ) -> CoveragePlan:
        """Choose the method and the threshold, and load the reverse model if they need it."""
        from capsule_mt.coverage.methods import Verifier, choose_method, readings_of
        from capsule_mt.coverage.names import DEFAULT_MARKS

        model, calibration, has_reverse = self.loaded, self.calibration, self.has_reverse
        if coverage.support and not has_reverse:
            raise ValueError(f"`support` needs a reverse model: give {model.name} a `reverse` (`--reverse MODEL`)")
        layers, heads = model.head_shape
        method = choose_method(
            coverage.method,
            calibration,
            num_heads=layers * heads,
            name=model.name,
            has_reverse=has_reverse,
        )
        # load the reverse here: later, its error would be a warning for each batch, with all coverage missing
        reverse = self.reverse if method == "verified" or coverage.support else None
        if reverse is not None and coverage.support and reverse.calibration.head is None:
            raise ValueError(
                f"`support` needs a `reverse` with a head that aligns words, which `capsule-mt calibrate` chooses; "
                f"{reverse.loaded.name} has none"
            )
        if coverage.marks is not None and method != "verified" and not coverage.support:
            warn_once(
                f'`marks="{coverage.marks}"` chooses among marks that a reverse model has verified. '
                f'Those of {model.name} are unverified, by `method="{method}"`: {self._way_to_verify()}.'
            )
        threshold = calibration.alarm(method, is_given=is_forced) if coverage.threshold is None else coverage.threshold
        if coverage.retry_beams is not None and threshold is None:
            raise ValueError(
                f"`retry_beams` ({coverage.retry_beams}) needs a `threshold`: the calibration of {model.name} has no "
                f'alarm for `method="{method}"`'
            )
        verifier = None
        if reverse is not None:
            marks, shortlist = coverage.marks or DEFAULT_MARKS, None if is_forced else model.shortlist
            decode = self._tokenizer(options).decode
            verifier = Verifier(*self._directed(reverse, options), decode, marks, coverage.support, shortlist)
        readings = readings_of(method, calibration)
        is_asked = coverage.marks is not None or coverage.method != "auto"
        marks_single_words = is_asked or (not is_forced and calibration.marks_single_words)
        return CoveragePlan(coverage, method, threshold, readings, calibration, verifier, marks_single_words)

    def _way_to_verify(self) -> str:
        """Return what gives this model verified marks, or why nothing does."""
        if not math.prod(self.loaded.head_shape):
            return "its decoder is not built like Marian's, so nothing verifies them"
        if not self.has_reverse:
            return "name the reverse model by `reverse` (`--reverse`)"
        if self.calibration.head is None:
            return "`capsule-mt calibrate` finds the head that they need"
        return 'use `method="verified"`'

    @property
    def verifies_marks(self) -> bool:
        """Whether a reverse model verifies marks by default."""
        return self.has_reverse and self.calibration.head is not None

    @property
    def gives_support(self) -> bool:
        """Whether `support` of `CoverageOptions` works: the reverse model has a head. Loads the reverse model."""
        return self.has_reverse and self.reverse is not None and self.reverse.calibration.head is not None

    def aligned(self, text: str, translation: str) -> "Alignment":
        """Return how the characters of a given translation align with those of its text, which must not be blank."""
        from capsule_mt.text.restoring import Alignment  # late: few ask for it

        plan = self._plan(SCORED)
        # `target_ends` counts the characters of the translation, tags included
        _, ((piece, target),) = self._pairs([text], [translation], plan.segmenter, with_tags=True)
        (rows,) = aligned_rows([(piece.ids, target)], plan)
        return Alignment(piece.source_offsets, target_ends(plan.tokenizer.decode, target.ids), rows)

    def _labels(self, translation: str, tokenizer: Tokenizer) -> list[int]:
        return tokenizer.encode_target(translation)

    def _target(self, translation: str, tokenizer: Tokenizer, cut_warning: str) -> Hypothesis:
        """Return the tokens of a given translation, cut to the model's limit with a warning."""
        # the model writes what its vocabulary lacks in another way: curly quotes as straight ones
        ids = self._labels(vocabulary_of(tokenizer).for_target.known_form(translation), tokenizer)
        limit = self.loaded.longest_target
        if limit is None or len(ids) <= limit:
            return Hypothesis(ids, [], was_cut=False)
        warn(cut_warning.format(len(ids), limit))
        return Hypothesis([*ids[: limit - 1], ids[-1]], [], was_cut=True)


class Directed(NamedTuple):
    """A model that forces the pairs of a call, in the languages of that call: a `Reverse`."""

    scorer: Scorer
    src_lang: str | None = None
    tgt_lang: str | None = None

    def force(self, texts: Sequence[str], translations: Sequence[str], **options: Any) -> "list[ForcedPair | None]":
        return self.scorer.force(texts, translations, **options, src_lang=self.src_lang, tgt_lang=self.tgt_lang)


def _refuse_unpaired(texts: Sequence[str], translations: Sequence[str]) -> None:
    for name, argument in (("texts", texts), ("translations", translations)):
        if isinstance(argument, str):
            raise TypeError(f"`{name}` must be a list of strings, got the string {argument[:40]!r}")
        if not isinstance(argument, Sized):
            raise TypeError(f"`{name}` must be a list of strings, got a {type(argument).__name__}")
    if len(texts) != len(translations):
        raise ValueError(
            f"there must be one of `translations` for each of `texts`, got {len(translations)} for {len(texts)}"
        )


def _document(text: str, segmenter: Segmenter) -> Document:
    """Return a text as one piece, without its tags, as when it is translated."""
    if re.search(TAG, text) is None:
        return segmenter.document(text)
    document = segmenter._replace(keep=("tags",), joins_blocks=True).document(text)
    document.copies = False  # the translation is complete: the text around the piece is not copied into it
    return document


def _without_tags(translation: str) -> Masked:
    """Return a given translation, masked so that the model does not read its tags."""
    return masked(translation, ("tags",))


def _model_text(translation: str) -> str:
    """Return a given translation as the model reads it."""
    if BLOCK_BREAK not in translation and re.search(TAG, translation) is None:
        return translation
    target = _without_tags(translation)
    if target.tags or BLOCK_BREAK in translation:  # the latter if `translation` is what another model read of a text
        return target.text.replace(BLOCK_BREAK, " ").strip()
    return translation


def _model_texts(document: Document, translation: str) -> tuple[str, str]:
    """Return a text and its translation as the model reads them; without tags, that is the user's text."""
    piece = document.pieces[0]
    text = document.without_languages() if piece.masked is None else piece.text.replace(BLOCK_BREAK, " ").strip()
    return text, _model_text(translation)


def _copied_into(translation: str, word: SourceWord, text: str) -> SourceWord:
    """Return a word, marked as copied if the vocabulary lacks it and the translation contains it."""
    return word._replace(is_unknown=False, is_copied=True) if word.is_unknown and text in translation else word


def _score_batch(pairs: Sequence[Pair], plan: Plan) -> None:
    """Force the translations of a batch, and set the scores and the coverage of each hypothesis."""
    pieces, hypotheses = zip(*pairs, strict=True)
    readings = (None if plan.coverage is None else plan.coverage.readings) or Readings()
    if plan.options.alignment and plan.head is not None:
        readings = readings._replace(head=plan.head)
    sources, targets = [piece.ids for piece in pieces], [hypothesis.ids for hypothesis in hypotheses]
    for hypothesis, forced in zip(hypotheses, plan.model.decoder.force(sources, targets, readings), strict=True):
        hypothesis.rescore(forced, plan.model.end)
    if plan.coverage is not None:
        coverages = cover_hypotheses(pieces, hypotheses, plan, plan.coverage)
        for hypothesis, coverage in zip(hypotheses, coverages, strict=True):
            hypothesis.covered = coverage


def _by_text(documents: Sequence[Document], results: Sequence[Result]) -> list[Result | None]:
    """Return the results of the texts that are not blank, with `None` for those that are."""
    pending = iter(results)
    return [next(pending) if document.pieces else None for document in documents]
