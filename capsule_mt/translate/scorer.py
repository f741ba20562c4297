"""`Scorer`: scores and coverage of given translations, such as another system's."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from capsule_mt.models.model import LoadedModel
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import target_ends
from capsule_mt.translate.aligning import aligned_rows
from capsule_mt.translate.forcing import force_pairs
from capsule_mt.translate.given import check_paired, pairs_of
from capsule_mt.translate.options import SCORED
from capsule_mt.translate.planning import plan_of
from capsule_mt.translate.results import Translation
from capsule_mt.translate.reverse import ReverseSource, check_direction
from capsule_mt.translate.scoring import score_given
from capsule_mt.translate.translator_model import TranslatorModel

if TYPE_CHECKING:  # late: a call without coverage starts sooner
    from capsule_mt.coverage.judgement import TranslationJudge
    from capsule_mt.coverage.methods import Calibration
    from capsule_mt.coverage.options import CoverageOptions
    from capsule_mt.coverage.results import Coverage
    from capsule_mt.coverage.verified import ForcedPair
    from capsule_mt.text.glossary import Glossary
    from capsule_mt.text.restoring import Alignment


class Scorer:
    """Judges given translations by a model, its calibration, and the reverse model.

    Args:
        model: the model that scores, and translates.
        glossary: terms and their translations: see `from_pretrained`.
        reverse: the reverse model, which translates in the other direction and verifies the marks of coverage: a
            `Translator`, or its folder or name. By default, it is the model that the calibration names, if its folder
            is beside this model's or it is downloaded.
    """

    translator_model: TranslatorModel
    _reverse_source: "ReverseSource[Scorer]"
    _glossary: "Glossary | None" = None

    def __init__(
        self,
        model: LoadedModel,
        glossary: "Glossary | Mapping[str, str] | str | os.PathLike[str] | None" = None,
        *,
        reverse: "Scorer | str | os.PathLike[str] | None" = None,
    ) -> None:
        if isinstance(model, (str, os.PathLike)):
            raise TypeError(f"`model` must be a loaded model, got {model!r}: `from_pretrained` takes a folder")
        self._compose(TranslatorModel(model), glossary, reverse)

    def _compose(
        self,
        model: TranslatorModel,
        glossary: "Glossary | Mapping[str, str] | str | os.PathLike[str] | None",
        reverse: "Scorer | str | os.PathLike[str] | None",
    ) -> None:
        self.translator_model, self._reverse_source = model, ReverseSource(model)
        self.glossary, self.reverse = glossary, reverse

    # ---- what is loaded
    @property
    def loaded(self) -> LoadedModel:
        """The model; another may be assigned."""
        return self.translator_model.loaded

    @loaded.setter
    def loaded(self, model: LoadedModel) -> None:
        self.translator_model.loaded = model

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """Source and target of calls that do not name them, as far as they were set."""
        return self.translator_model.languages

    @languages.setter
    def languages(self, languages: tuple[str | None, str | None]) -> None:
        self.translator_model.languages = languages

    @property
    def is_multilingual(self) -> bool:
        return self.translator_model.is_multilingual

    @property
    def backend(self) -> str:
        """The name of the decoder: "native" is the engine."""
        return "native"

    @property
    def glossary(self) -> "Glossary | None":
        """Terms and their translations, if any; a dictionary or a file may be assigned, too."""
        return self._glossary

    @glossary.setter
    def glossary(self, glossary: "Glossary | Mapping[str, str] | str | os.PathLike[str] | None") -> None:
        if glossary is not None:
            from capsule_mt.text.glossary import glossary_of  # late: few have one

            glossary = glossary_of(glossary)
        self._glossary = glossary

    @property
    def calibration(self) -> "Calibration":
        """The calibration of coverage: curves, thresholds and lists of words."""
        return self.translator_model.calibration

    def set_calibration(self, values: Mapping[str, Any]) -> None:
        """Use other curves and lists of words: a `coverage_calibration` of config.json."""
        self.translator_model.set_calibration(values)

    # ---- the reverse model
    @property
    def reverse(self) -> "Scorer | None":
        """The reverse model, if any, loaded when it is first needed; a folder or name may be assigned, too."""
        return self._reverse_source.scorer(self._load)

    @reverse.setter
    def reverse(self, reverse: "Scorer | str | os.PathLike[str] | None") -> None:
        if isinstance(reverse, Scorer):
            self._reverse_source.use(reverse)
        else:
            self._reverse_source.use_path(reverse)

    def _load(self, folder: str) -> "Scorer":
        """Load a model with the options that this one was loaded with."""
        raise NotImplementedError

    def check_direction(self, reverse: "Scorer") -> None:
        """Refuse a reverse model of other languages: it would verify the marks by chance."""
        check_direction(self.translator_model, reverse.translator_model)

    @property
    def has_reverse(self) -> bool:
        """Whether there is a reverse model; it need not be loaded."""
        return self._reverse_source.exists

    @property
    def reverse_folders(self) -> list[str]:
        """The folder or name of the reverse model, which need not be loaded; empty without one."""
        folder = self._reverse_source.folder
        return [] if folder is None else [folder]

    @property
    def verifies_marks(self) -> bool:
        """Whether a reverse model verifies marks by default."""
        return self.has_reverse and self.calibration.head is not None

    @property
    def gives_support(self) -> bool:
        """Whether `support` of `CoverageOptions` works: the reverse model has a head. Loads the reverse model."""
        return self.has_reverse and self.reverse is not None and self.reverse.calibration.head is not None

    @property
    def precision(self) -> dict[str, float] | None:
        """The share of marks that a reader found right, by `marks` of `CoverageOptions`.

        None without a reverse model, or if no reader read them.
        """
        return (self.calibration.precision or None) if self.has_reverse else None

    # ---- given translations
    def cover(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: "CoverageOptions | None" = None,
        judge: "TranslationJudge | None" = None,
        batch_size: int = 16,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> "list[Coverage]":
        """Return what given translations cover: the `coverage` of what `score` returns, with its `judgement`."""
        from capsule_mt.coverage.options import CoverageOptions

        coverage = coverage or CoverageOptions()
        options: dict[str, Any] = {"batch_size": batch_size, "src_lang": src_lang, "tgt_lang": tgt_lang}
        scored = self.score(texts, translations, coverage=coverage, judge=judge, **options)
        return [
            translation.coverage.judged(translation.judgement)
            for translation in scored
            if translation.coverage is not None
        ]

    def score(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: "CoverageOptions | None" = None,
        alignment: bool = False,
        judge: "TranslationJudge | None" = None,
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
            alignment: find which source word each target word translates.
            judge: a `capsule_mt.Judge`, whose judgements are returned, too.
            batch_size: how many pairs go through the model at once.
            batch_tokens: instead, how many tokens, padding included; a pair counts by its longer side.
            src_lang, tgt_lang: for tokenizers that have languages, the rules of `coverage`, and the judge.
        """
        check_paired(texts, translations)
        options = SCORED._replace(
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            coverage=coverage,
            alignment=alignment,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
        ).checked()
        scored = score_given(self, texts, translations, options, with_links=alignment)
        if judge is not None:
            source, target = self.translator_model.languages_of(options)
            judgements = judge.score(texts, translations, src_lang=source, tgt_lang=target)
            for translation, judgement in zip(scored, judgements, strict=True):
                translation.judgement = judgement
        return scored

    def force(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        with_head: bool = False,
        spans: Sequence[Sequence[Span]] | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> "list[ForcedPair | None]":
        """Return a forced pass over each given translation, with the characters that its tokens stand for.

        This model is another one's reverse: warnings name its texts as translations, and its translations as sources.
        The result for a blank text is `None`. Words beyond the model's limit do not have tokens.

        Args:
            with_head: also return the attention of the head that aligns words.
            spans: compute only the log-probabilities of these characters of each translation, and no offsets of its
                text.
            src_lang, tgt_lang: the languages of `texts` and of `translations`, for tokenizers that have languages.
        """
        options = SCORED._replace(src_lang=src_lang, tgt_lang=tgt_lang).checked()
        return force_pairs(
            self.translator_model,
            texts,
            translations,
            options,
            with_head=with_head,
            spans=spans,
        )

    def aligned(self, text: str, translation: str) -> "Alignment":
        """Return how the characters of a given translation align with those of its text, which must not be blank."""
        from capsule_mt.text.restoring import Alignment  # late: few ask for it

        plan = plan_of(self, SCORED)
        # `target_ends` counts the characters of the translation, tags included
        _, ((piece, target),) = pairs_of(self.translator_model, plan.segmenter, [text], [translation], with_tags=True)
        (rows,) = aligned_rows([(piece.ids, target)], plan)
        return Alignment(piece.source_offsets, target_ends(plan.tokenizer.decode, target.ids), rows)
