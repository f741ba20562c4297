"""`TranslatorModel`: a loaded model with its calibration, and the languages, tokenizer and segmenter of its calls."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from capsule_mt.engine.decoder import FIRST_TOKEN
from capsule_mt.models.checking import check_calibration
from capsule_mt.models.languages import many_languages, target_code_of
from capsule_mt.models.model import LoadedModel
from capsule_mt.text.languages import check_language
from capsule_mt.text.segments import Segmenter
from capsule_mt.text.tokenizer_protocol import Tokenizer
from capsule_mt.text.words import NO_LISTS
from capsule_mt.translate.options import TRUNCATES, TranslationOptions

if TYPE_CHECKING:  # late: a call without coverage starts sooner
    from capsule_mt.catalog.pairs import LanguagePair
    from capsule_mt.coverage.methods import Calibration

MAX_PAIRS = 32  # language pairs whose tokenizers are kept, each with the caches of its vocabulary


class TranslatorModel:
    """What a call asks of the model that translates or scores.

    loaded: the model; another may be assigned.
    languages: source and target of calls that do not name them.
    """

    languages: tuple[str | None, str | None] = (None, None)
    # a calibration, and the configuration that it was read from
    _calibration: "tuple[Mapping[str, Any], Calibration] | None" = None

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded

    @property
    def folder(self) -> str:
        """The folder of the checkpoint; its reverse may be beside it."""
        return self.loaded.name

    def downloaded_folder(self, name: str) -> str | None:
        """Return the folder of another model by its name, if it is downloaded."""
        from capsule_mt.catalog.store import downloaded_folder  # late: most calibrations name none

        return downloaded_folder(name)

    # ---- the calibration
    @property
    def calibration(self) -> "Calibration":
        """The calibration of coverage: curves, thresholds and lists of words."""
        from capsule_mt.coverage.methods import Calibration

        config = self.loaded.calibration
        if self._calibration is None or self._calibration[0] is not config:
            self._calibration = config, Calibration.of_config(config)
        return self._calibration[1]

    def set_calibration(self, values: Mapping[str, Any]) -> None:
        """Use other curves and lists of words: a `coverage_calibration` of config.json."""
        check_calibration(values, self.loaded.head_shape, "`set_calibration`")
        self.loaded = self.loaded._replace(calibration=values)

    # ---- the languages
    @property
    def is_multilingual(self) -> bool:
        """Whether `src_lang` and `tgt_lang` of a call choose among several languages."""
        tokenizer = self.loaded.tokenizer
        return many_languages(tokenizer) is not None or bool(tokenizer.language_tokens)

    @cached_property
    def pair(self) -> "LanguagePair | None":
        """The language pair of a model for one pair, if its folder tells it."""
        from capsule_mt.catalog.pairs import pair_of  # late: a model of many languages has no pair

        return pair_of(self.folder) if self.folder and not self.is_multilingual else None

    @cached_property
    def target_tokens(self) -> Sequence[str]:
        """The tokens of target languages of a multilingual OPUS-MT model; empty for others."""
        tokenizer = self.loaded.tokenizer
        return () if many_languages(tokenizer) is not None else tokenizer.language_tokens

    @cached_property
    def _stored_languages(self) -> tuple[str | None, str | None]:
        """The codes that a model of many languages has for calls that name no language."""
        tokenizer = many_languages(self.loaded.tokenizer)
        if tokenizer is None:
            return None, None
        forced_id, start_id = self.loaded.generation.get(FIRST_TOKEN), self.loaded.start
        return tokenizer.source_language, tokenizer.code_among(forced_id, start_id)

    def languages_of(self, options: TranslationOptions) -> tuple[str | None, str | None]:
        """Return the languages of a call, or else the model's, if known; a model of one pair refuses others."""
        source, target = self.languages
        languages = options.src_lang or source, options.tgt_lang or target
        if self.pair is None:
            stored_source, stored_target = self._stored_languages
            target = languages[1] or stored_target
            if target and self.target_tokens:
                target = target_code_of(target, self.target_tokens)
            return languages[0] or stored_source, target
        name = f"{self.folder} translates {self.pair}"
        for argument, language, model_language in zip(("src_lang", "tgt_lang"), languages, self.pair, strict=True):
            if language:
                check_language(argument, language, model_language, name)
        return languages[0] or self.pair.source, languages[1] or self.pair.target

    # ---- tokenizers
    @cached_property
    def pair_tokenizers(self) -> dict[tuple[str | None, str | None], Tokenizer]:
        """Tokenizers of language pairs, whose vocabularies (`vocabulary_of`) cache what they have looked up."""
        return {}

    def tokenizer_of(self, options: TranslationOptions) -> Tokenizer:
        """Return the tokenizer for the languages of a call."""
        source, target = self.languages_of(options)
        tokenizer = many_languages(self.loaded.tokenizer)
        if tokenizer is None:
            return self.loaded.tokenizer
        if (pair_tokenizer := self.pair_tokenizers.get((source, target))) is not None:
            return pair_tokenizer
        pair_tokenizer = tokenizer.for_pair(source, target, self.loaded.start)
        if len(self.pair_tokenizers) >= MAX_PAIRS:
            self.pair_tokenizers.clear()
        self.pair_tokenizers[source, target] = pair_tokenizer
        return pair_tokenizer

    def labels(self, translation: str, tokenizer: Tokenizer) -> list[int]:
        """Return the tokens of a given translation that the decoder predicts."""
        return tokenizer.encode_target(translation)

    def segmenter_of(self, options: TranslationOptions) -> Segmenter:
        """Return what cuts the texts of a call into pieces."""
        src_lang, tgt_lang = self.languages_of(options)
        with_words = options.coverage is not None or options.alignment
        is_foreign = None
        if options.copy_foreign:
            from capsule_mt.text.detecting import foreign_lines_of  # late: few calls copy lines in other languages

            is_foreign = foreign_lines_of(src_lang)
        return Segmenter(
            self.tokenizer_of(options),
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
