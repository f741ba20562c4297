"""`Translator`: text in, `Translation`s out.

text -> Segmenter -> pieces: token ids -> Decoder.translate -> hypotheses -> Decoder.force (only if a reading needs it)
-> words -> Translation
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

from capsule_mt.coverage.options import CoverageOptions, CoveredBy
from capsule_mt.engine.search import Hypothesis, Ids, Readings
from capsule_mt.models.model import LoadedModel
from capsule_mt.options import TranslationOptions, search_options, setting
from capsule_mt.text.glossary import Glossary, glossary_of, lacking, next_word, place_of_term, with_term
from capsule_mt.text.line_failures import describe
from capsule_mt.text.messages import warn, warn_once
from capsule_mt.text.segments import (
    MOST_UNKNOWN,
    Document,
    Piece,
    Segmenter,
    TranslationIterator,
    batches_of,
    join_translations,
)
from capsule_mt.text.tokenizer import Tokenizer
from capsule_mt.text.words import NO_LISTS, moved_offsets, target_ends

if TYPE_CHECKING:  # and where it is used, late: who asks for no coverage starts sooner
    from capsule_mt.coverage.methods import Calibration, PieceCoverage
    from capsule_mt.coverage.results import Adequacy, Coverage
    from capsule_mt.coverage.verified import Read
    from capsule_mt.text.restoring import Alignment

# of texts with given translations
_GIVEN = TranslationOptions(split_sentences=False, truncation=True, copy=False)
# of what is left out against the mean log-probability of a token, where nobody sets another
DEFAULT_COVERAGE_WEIGHT = 5.0
ALIGNED_TOKENS = 2048  # at once


@dataclass(frozen=True)
class Segment:
    """One sentence of a text, or a part of one that is too long: what went through the model at once.

    `target_ids` are from the decoder's start token to the end token. `was_cut` says that they reached their limit.
    """

    start: int
    end: int
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    was_cut: bool


@dataclass(frozen=True)
class Translation:
    """The translation of one text.

    `score` is the mean log-probability of a token, end tokens included; `None` for a blank text. `coverage` is `None`
    where it was not asked for. `unknown` is the share of the source's tokens that the vocabulary lacks: above a fifth,
    the text is probably of another language. `alignment` has pairs of words of the text and of the translation, as
    `str.split` counts them, from 0; `None` where it was not asked for.
    """

    text: str
    score: float | None
    coverage: "Coverage | None"
    segments: tuple[Segment, ...]
    unknown: float = 0.0
    alignment: tuple[tuple[int, int], ...] | None = None

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The token ids of all segments in a row."""
        return tuple(token_id for segment in self.segments for token_id in segment.target_ids)

    @property
    def was_cut(self) -> bool:
        """Whether a segment reached the limit of its length, so that the translation may be incomplete."""
        return any(segment.was_cut for segment in self.segments)


@dataclass
class Found:
    """The hypotheses of a piece, the best first, and what each covers where that was asked for."""

    hypotheses: list[Hypothesis]
    coverage: "list[PieceCoverage] | None" = None


class Translator:
    """Translates texts on a CPU.

        >>> translator = Translator.from_pretrained("checkpoints/capsule-marian-de-en")
        >>> translation = translator("Der alte Mann kauft einen roten Hut.", coverage=CoverageOptions())
        >>> translation.text, translation.score, [word.text for word in translation.coverage.untranslated]

    `hf_capsule_mt.Translator` is the same with any model of transformers.

    Args:
        model: what translates.
        reverse: what translates in the other direction, a `Translator` or its folder: it verifies what coverage marks.
            By default the model that the calibration names, if that is a folder beside this one's or is downloaded.
    """

    tokenizes_in_threads = True  # at the same time
    glossary: Glossary | None = None
    languages: tuple[str | None, str | None] = (None, None)  # of calls that name none

    def __init__(
        self,
        model: LoadedModel,
        glossary: Glossary | Mapping[str, str] | str | os.PathLike[str] | None = None,
        *,
        reverse: "Translator | str | os.PathLike[str] | None" = None,
    ) -> None:
        self.loaded = model
        self.glossary = glossary_of(glossary)
        self._reverse = reverse
        self._loads_with: dict[str, Any] = {}  # how `from_pretrained` loads the reverse

    @property
    def calibration(self) -> "Calibration":
        """The curves and lists of words by which coverage is found."""
        from capsule_mt.coverage.methods import Calibration

        values, found = getattr(self, "_calibration", (None, None))
        if found is None or values is not self.loaded.calibration:
            values = self.loaded.calibration
            found = Calibration.of_config(values)
            self._calibration = (values, found)
        return found

    def set_calibration(self, values: Mapping[str, Any]) -> None:
        """Use other curves and lists of words: a `coverage_calibration` of config.json."""
        self.loaded.calibration = values

    @property
    def backend(self) -> str:
        """What decodes."""
        return "native"

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        *,
        int8: bool = False,
        shortlist: bool | str | os.PathLike[str] = False,
        reverse: "Translator | str | os.PathLike[str] | None" = None,
        glossary: Glossary | Mapping[str, str] | str | os.PathLike[str] | None = None,
    ) -> "Translator":
        """Load the checkpoint in a folder, or the model of a name, which is downloaded first if it is not there.

        A name is a pair such as "en-pt" of Mozilla's registry, or one of the Hugging Face hub. A pair without a model
        of its own goes through English: see `capsule_mt.pivot`.

        Args:
            int8: multiply in int8, which is several times as fast.
            shortlist: score only the tokens that the words of a source are likely to become, which `capsule-mt
                shortlist` finds out: its file, or True for the one beside the checkpoint.
            reverse: what translates in the other direction: see the class.
            glossary: terms and what they become: a dictionary, or a file with `term<tab>translation` on each line.
        """
        from capsule_mt.models.loading import load_model

        if not os.path.exists(folder):
            from capsule_mt.catalog.store import legs_of, resolve  # late: a folder needs no catalog

            first, *then = legs_of(folder)
            if then and glossary is not None:
                raise ValueError(f"`glossary` needs one model, and {folder} goes through English by two")
            if then:
                from capsule_mt.pivot import PivotTranslator

                return PivotTranslator(
                    *(cls.from_pretrained(resolve(leg), int8=int8, shortlist=shortlist) for leg in (first, *then))
                )
            folder = resolve(first)
        found = cls(load_model(folder, int8=int8, shortlist=shortlist), glossary, reverse=reverse)
        found._loads_with = {"int8": int8}
        return found

    @property
    def reverse(self) -> "Translator | None":
        """What translates in the other direction, loaded when it is first needed."""
        if not isinstance(self._reverse, Translator) and (folder := self._reverse_folder()) is not None:
            self._reverse = type(self).from_pretrained(folder, **self._loads_with)
        return self._reverse if isinstance(self._reverse, Translator) else None

    @reverse.setter
    def reverse(self, translator: "Translator | None") -> None:
        self._reverse = translator

    @property
    def has_reverse(self) -> bool:
        """Whether there is a model of the other direction; it need not be loaded."""
        return isinstance(self._reverse, Translator) or self._reverse_folder() is not None

    @property
    def precision(self) -> dict[str, float]:
        """The share of marks that were right, by `marks` of `CoverageOptions`: what the calibration has measured."""
        points = self.calibration.methods.get("verified", {}).get("marks", {}) if self.has_reverse else {}
        return {point: float(found["precision"]) for point, found in points.items()}

    def _reverse_folder(self) -> str | None:
        """Return the folder that was given, or that of the model that the calibration names: beside, or downloaded."""
        if isinstance(self._reverse, (str, os.PathLike)):
            return os.fspath(self._reverse)
        named = self.calibration.reverse
        if named is None:
            return None
        beside = os.path.join(os.path.dirname(os.path.abspath(self._folder)), named)
        return beside if os.path.isdir(beside) else self._downloaded(named)

    def _downloaded(self, name: str) -> str | None:
        """Return the folder of a model by name, if it is downloaded."""
        from capsule_mt.catalog.store import kept_folder  # late: most calibrations name none

        return kept_folder(name)

    @property
    def _folder(self) -> str:
        """The folder of the checkpoint, beside which its reverse is looked for."""
        return self.loaded.name

    @overload
    def __call__(self, texts: str, *, num_return_sequences: int, **options: Any) -> list[Translation]: ...
    @overload
    def __call__(self, texts: str, *, coverage: CoverageOptions | None = None, **options: Any) -> Translation: ...
    @overload
    def __call__(
        self, texts: list[str] | tuple[str, ...], *, coverage: CoverageOptions | None = None, **options: Any
    ) -> list[Translation]: ...
    @overload
    def __call__(
        self, texts: Iterable[str], *, coverage: CoverageOptions | None = None, **options: Any
    ) -> Iterable[Translation]: ...
    def __call__(
        self,
        texts: str | Iterable[str],
        *,
        coverage: CoverageOptions | None = None,
        scores: bool = True,
        batch_size: int = 1,
        batch_tokens: int | None = None,
        split_sentences: bool = True,
        max_source_tokens: int | None = None,
        truncation: bool | str = False,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        copy: bool = True,
        keep: Sequence[str] = (),
        alignment: bool = False,
        **generate_kwargs: Any,
    ) -> Translation | list[Translation] | Iterable[Translation | list[Translation]]:
        """Translate one string, a list of strings, or lazily any other iterable of strings.

        A text of several sentences is translated sentence by sentence, and the space between them is kept; a blank
        text stays blank. A sentence that is longer than the model takes is translated in pieces. A translation that
        reaches its limit is reported by a warning. Lone surrogates, which are no characters, are read as U+FFFD.

        Args:
            texts: what to translate. A `PrefixedText` also has what its translation begins with.
            coverage: find what was left out, and how.
            scores: compute `Translation.score`, which costs a decoder of transformers one more pass.
            batch_size: how many sentences go through the model at once.
            batch_tokens: how many of their tokens, padding included, instead of how many sentences.
            split_sentences: False translates each text as if it were one sentence, and refuses one that is too long.
            max_source_tokens: translate in pieces of at most so many tokens, fewer than the model takes.
            truncation: cut a source to what the model takes, with a warning.
            src_lang, tgt_lang: for tokenizers that have languages, and for the rules about sentences.
            copy: leave as it is what is no sentence, such as numbers and list marks; and in sentences URLs, tags,
                placeholders, code, emoji, and words that the vocabulary does not know.
            keep: "numbers" that a translation has as its source does; without `copy`, any of `KEPT`.
            alignment: find which words of the translation are of which words of the text.
            generate_kwargs: how to search, by the names of transformers: `num_beams`, `max_new_tokens`,
                `num_return_sequences`, `length_penalty`, `early_stopping`, `no_repeat_ngram_size`, `max_time` (of each
                batch), ...

        Returns:
            A `Translation` for a string, a list of them for a list or a tuple, an iterable for any other iterable,
            in the order of the texts. With `num_return_sequences` above one, each text has a list of its own.
        """
        options = TranslationOptions(
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            coverage=coverage,
            scores=scores,
            split_sentences=split_sentences,
            max_source_tokens=max_source_tokens,
            truncation=truncation,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            copy=copy,
            keep=keep,
            alignment=alignment,
            generate_kwargs=generate_kwargs,
        )
        if isinstance(texts, (bytes, dict)) or not (hasattr(texts, "__iter__") or hasattr(texts, "__getitem__")):
            raise TypeError(f"`texts` must be a string or an iterable of strings, got a {type(texts).__name__}")

        def translate(window: list[str]) -> list[Translation | list[Translation]]:
            return [found[0] if len(found) == 1 else found for found in self.translate(window, options)]

        if isinstance(texts, str):
            return translate([texts])[0]
        found = TranslationIterator(texts, translate, options.window)
        return list(iter(found)) if isinstance(texts, (list, tuple)) else found

    def translate(self, texts: Sequence[str], options: TranslationOptions) -> list[list[Translation]]:
        """Translate these texts, sorted by length into batches, and return the best translations of each."""
        options = self.completed(options)
        documents = self.documents(texts, options)
        pieces = [piece for document in documents for piece in document.pieces]
        return self.put_together(documents, self.translate_pieces(pieces, options), options)

    # ---- the steps of `translate`, for who makes batches of the pieces of several calls
    def completed(self, options: TranslationOptions) -> TranslationOptions:
        """Return the options of a call with what else is known of them."""
        return options

    def documents(self, texts: Sequence[str], options: TranslationOptions) -> list[Document]:
        """Cut texts into pieces that fit the model."""
        segmenter = self._segmenter(options)
        documents = [segmenter.document(text) for text in texts]
        num_unknown = sum(document.unknown > MOST_UNKNOWN for document in documents)
        if num_unknown:
            warn(
                f"{num_unknown} of {len(documents)} texts have more than {MOST_UNKNOWN:.0%} tokens that the "
                "vocabulary lacks: are they of the source language?"
            )
        return documents

    def translate_pieces(self, pieces: Sequence[Piece], options: TranslationOptions) -> list[Found]:
        """Translate pieces in batches of about the same length."""
        return self._translate_pieces(pieces, options, self._method(options))

    def put_together(
        self, documents: Sequence[Document], found: list[Found], options: TranslationOptions
    ) -> list[list[Translation]]:
        """Return the best translations of each text, from what was found for its pieces."""
        if any(piece.masked is not None for document in documents for piece in document.pieces):
            self._with_stand_ins(self._segmenter(options), documents, found, options, self._method(options))
        if self.glossary is not None:
            self._with_terms(self._segmenter(options), documents, found, options, self._method(options))
        threshold = self._threshold(options)
        self._warn_of(found, threshold)  # of the last pass
        of_piece = iter(found)
        returned = int(setting(self.loaded, options.generate_kwargs, "num_return_sequences") or 1)
        results, decode, ranks = [], self._tokenizer(options).decode, range(returned)
        for document in documents:
            own = [next(of_piece) for _ in document.pieces]
            results.append([self._translation(document, own, rank, options, decode, threshold) for rank in ranks])
        return results

    def cover(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: CoverageOptions | None = None,
        batch_size: int = 16,
    ) -> "list[Coverage]":
        """Return what given translations cover: the `coverage` of what `score` returns."""
        found = self.score(texts, translations, coverage=coverage or CoverageOptions(), batch_size=batch_size)
        return [translation.coverage for translation in found if translation.coverage is not None]

    def score(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        coverage: CoverageOptions | None = None,
        batch_size: int = 16,
        batch_tokens: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> list[Translation]:
        """Return given translations, such as another system's, with their scores and what they cover.

        Each text is taken as one sentence. A source or a translation that is longer than the model takes is cut, with
        a warning, and `was_cut` says so. A blank text has no score.

        Args:
            texts: the sources.
            translations: a translation of each.
            coverage: find what was left out, and how.
            batch_size: how many pairs go through the model at once.
            batch_tokens: how many of their tokens, padding included, of the longer side; instead of how many pairs.
            src_lang, tgt_lang: for tokenizers that have languages.
        """
        for name, given in (("texts", texts), ("translations", translations)):
            if isinstance(given, str):
                raise TypeError(f"`{name}` must be a list of strings, got the string {given[:40]!r}")
        if len(texts) != len(translations):
            raise ValueError(f"`texts` are {len(texts)}, but `translations` {len(translations)}")
        from capsule_mt.coverage.documents import coverage_of

        options = TranslationOptions(
            batch_size,
            batch_tokens,
            coverage,
            split_sentences=False,
            truncation=True,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            copy=False,
        )
        method = self._method(options)
        documents, pieces, targets = self._given(texts, translations, options)
        found = [Found([Hypothesis(ids, [], was_cut)]) for ids, was_cut in targets]
        lengths = [max(len(piece.ids), len(target[0])) for piece, target in zip(pieces, targets, strict=True)]
        readings, loaded = self._readings(method) or Readings(), self.loaded
        for places in batches_of(lengths, batch_size, batch_tokens):
            hypotheses = [found[place].hypotheses[0] for place in places]
            sources = [pieces[place].ids for place in places]
            forced = loaded.decoder.force(sources, [one.ids for one in hypotheses], readings)
            for hypothesis, one in zip(hypotheses, forced, strict=True):
                hypothesis.read(one, loaded.end)
            if method is not None:
                covered = self._cover([pieces[place] for place in places], hypotheses, method, options)
                for place, piece_coverage in zip(places, covered, strict=True):
                    found[place].coverage = [piece_coverage]
        of_piece, decode, threshold = iter(found), self._tokenizer(options).decode, self._threshold(options)
        results = []
        for document, translation in zip(documents, translations, strict=True):
            own = [next(of_piece) for _ in document.pieces]
            segments = [
                self._segment(piece, one.hypotheses[0]) for piece, one in zip(document.pieces, own, strict=True)
            ]
            score = own[0].hypotheses[0].score if own else None
            covered_by = [one.coverage[0] for one in own if one.coverage is not None]
            whole = None
            if coverage is not None:
                texts_of = [decode(one.hypotheses[0].ids) for one in own]
                parts = [(translation, 0)] * len(segments)
                whole = coverage_of(document, covered_by, parts, texts_of, threshold)
            results.append(Translation(translation, score, whole, tuple(segments)))
        return results

    def adequacy(
        self, texts: Sequence[str], translations: Sequence[str], *, batch_size: int = 16
    ) -> "list[Adequacy | None]":
        """Return how inadequate given translations are, such as another system's; `None` for a blank text.

        It takes a model of the other direction and four forced passes. The length to expect is the calibration's, or
        without one that of the text.
        """
        from capsule_mt.coverage.results import Adequacy
        from capsule_mt.text.lengths import OMISSION_WEIGHT, ExpectedLength

        if self.reverse is None:
            raise ValueError(f"`adequacy` needs a model of the other direction: give {self.loaded.name} a `reverse`")
        covered = self.cover(texts, translations, batch_size=batch_size)
        length = self.calibration.length or ExpectedLength()
        shares = zip(self.information(texts, translations), self.reverse.information(translations, texts), strict=True)
        found: list[Adequacy | None] = []
        for coverage, text, given, (there, back) in zip(covered, texts, translations, shares, strict=True):
            if there is None:
                found.append(None)
                continue
            words = [word.covered for word in coverage.words if any(map(str.isalnum, word.text))]
            missing, short = 1 - sum(words) / max(len(words), 1), length.shortness(text, given)
            omission = (missing + OMISSION_WEIGHT * short) / (1 + OMISSION_WEIGHT)
            found.append(Adequacy(omission, 1 - (there + (back or 0.0)) / 2))
        return found

    def information(self, texts: Sequence[str], translations: Sequence[str]) -> list[float | None]:
        """Return the share of what each translation says that its text makes probable; `None` for a blank text.

        It is 1 - log p(translation | text) / log p(translation | no text), at least 0.
        """
        documents, pieces, targets = self._given(texts, translations, _GIVEN)
        ids, decoder = [target for target, _ in targets], self.loaded.decoder
        sources = [[self.loaded.end]] * len(pieces) + [piece.ids for piece in pieces]
        totals = [sum(one.log_probs) for one in decoder.force(sources, ids * 2, Readings())] if pieces else []
        pairs = zip(totals[: len(pieces)], totals[len(pieces) :], strict=True)
        shares = iter([max(0.0, 1 - by_text / min(without, -1.0)) for without, by_text in pairs])
        return [next(shares) if document.pieces else None for document in documents]

    def read(
        self, texts: Sequence[str], translations: Sequence[str], *, with_head: bool = False
    ) -> "list[Read | None]":
        """Return a forced pass over each given translation, with the characters that its tokens stand for.

        A blank text has none. Words beyond what the model takes have no tokens. `with_head`: also read the attention
        of the head that aligns words.
        """
        from capsule_mt.coverage.verified import Read, offsets_of

        documents, pieces, targets = self._given(texts, translations, _GIVEN)
        if with_head and self.calibration.head is None:
            raise ValueError(f"{self.loaded.name} has no head that aligns words: `capsule-mt calibrate` chooses one")
        readings = Readings(head=self.calibration.head if with_head else None)
        sources, ids = [piece.ids for piece in pieces], [target for target, _ in targets]
        forced = iter(self.loaded.decoder.force(sources, ids, readings) if pieces else ())
        decode, of_piece = self._tokenizer(_GIVEN).decode, iter(zip(pieces, ids, strict=True))
        found: list[Read | None] = []
        for document, translation in zip(documents, translations, strict=True):
            if not document.pieces:
                found.append(None)
                continue
            piece, target = next(of_piece)
            start = piece.span.start
            source = list(moved_offsets(piece.offsets, -start))
            found.append(Read(source, offsets_of(translation, target, decode), next(forced)))
        return found

    def _given(
        self, texts: Sequence[str], translations: Sequence[str], options: TranslationOptions
    ) -> tuple[list[Document], list[Piece], list[tuple[list[int], bool]]]:
        """Tokenise texts and their translations: the pieces and targets of those that are not blank."""
        segmenter = self._segmenter(options)
        documents = [segmenter.document(text) for text in texts]
        pieces, targets = [], []
        # a text that is not cut into sentences is one piece, or none if it is blank
        for document, translation in zip(documents, translations, strict=True):
            if document.pieces:
                pieces.append(document.pieces[0])
                targets.append(self._target_ids(translation, segmenter.tokenizer))
        return documents, pieces, targets

    # ---- the steps of `translate`
    def _tokenizer(self, options: TranslationOptions) -> Tokenizer:
        return self.loaded.tokenizer

    def _languages(self, options: TranslationOptions) -> tuple[str | None, str | None]:
        named = (options.src_lang, options.tgt_lang)
        return self.languages if named == (None, None) else named

    def _segmenter(self, options: TranslationOptions) -> Segmenter:
        src_lang, tgt_lang = self._languages(options)
        known = (self.loaded.longest_source, options.max_source_tokens)
        with_words: bool | Callable[[str], bool] = options.coverage is not None or options.alignment
        if not with_words and self.glossary is not None:
            with_words = self.glossary.is_in
        return Segmenter(
            self._tokenizer(options),
            limit=min((number for number in known if number is not None), default=None),
            split_sentences=options.split_sentences,
            truncation=options.truncation,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            copies=options.copy,
            keep=options.keep,
            with_words=with_words,
            lists=self.calibration.lists if with_words else NO_LISTS,
        )

    def _method(self, options: TranslationOptions) -> CoveredBy | None:
        if options.coverage is None:
            return None
        from capsule_mt.coverage.methods import choose_method

        if options.coverage.support and not self.has_reverse:
            raise ValueError(f"`support` needs a model of the other direction: give {self.loaded.name} a `reverse`")
        layers, heads = self.loaded.head_shape
        method = choose_method(
            options.coverage.method,
            self.calibration,
            is_guided=self.loaded.follows_past_and_future,
            num_heads=layers * heads,
            name=self.loaded.name,
            has_reverse=self.has_reverse,
        )
        # an error of the reverse is one of the options: it costs every coverage
        reverse = self.reverse if method == "verified" or options.coverage.support else None
        if reverse is not None and options.coverage.support and reverse.calibration.head is None:
            raise ValueError(
                f"`support` needs a `reverse` with a head that aligns words, which `capsule-mt calibrate` chooses; "
                f"{reverse.loaded.name} has none"
            )
        return method

    def _readings(self, method: CoveredBy | None) -> Readings | None:
        """Return what a search has to read."""
        if method is None:
            return None
        from capsule_mt.coverage.methods import readings_of

        return readings_of(method, self.calibration)

    def _threshold(self, options: TranslationOptions) -> float | None:
        """Return the coverage below which a sentence is an alarm."""
        asked, method = options.coverage, self._method(options)
        if asked is None or method is None:
            return None
        threshold = self.calibration.alarm(method) if asked.threshold is None else asked.threshold
        if asked.retry_beams is not None and threshold is None:
            raise ValueError(
                f"`retry_beams` ({asked.retry_beams}) needs a `threshold`: the calibration of {self.loaded.name} has "
                f'no alarm for `method="{method}"`'
            )
        return threshold

    def _cover(
        self,
        pieces: Sequence[Piece],
        hypotheses: Sequence[Hypothesis],
        method: CoveredBy,
        options: TranslationOptions,
    ) -> "list[PieceCoverage]":
        from capsule_mt.coverage.methods import Covers, Verifier, cover

        asked, loaded, verifier = options.coverage or CoverageOptions(), self.loaded, None
        reverse = self.reverse if method == "verified" or asked.support else None
        if reverse is not None:
            decode, by_shortlist = self._tokenizer(options).decode, loaded.shortlist is not None
            verifier = Verifier(reverse, decode, asked.marks, asked.support, by_shortlist)
        covers = [Covers(piece.ids, piece.words, piece.text, piece.places) for piece in pieces]
        return cover(covers, hypotheses, method, loaded.decoder, self.calibration, loaded.end, verifier)

    def _translate_pieces(
        self, pieces: Sequence[Piece], options: TranslationOptions, method: CoveredBy | None
    ) -> list[Found]:
        """Translate pieces in batches of about the same length; those that leave much out, once more."""
        coverage, settings = options.coverage or CoverageOptions(), dict(options.generate_kwargs)
        threshold = self._threshold(options)
        found: list[Found] = [Found([])] * len(pieces)
        for places in batches_of([len(piece.ids) for piece in pieces], options.batch_size, options.batch_tokens):
            batch = [pieces[place] for place in places]
            for place, one in zip(
                places, self._search(batch, settings, method, coverage.weight, options), strict=True
            ):
                found[place] = one
            short = _short_of(places, found, threshold)
            if short and coverage.retry_beams:
                returned = int(setting(self.loaded, settings, "num_return_sequences") or 1)
                again = {**settings, "num_beams": max(coverage.retry_beams, returned)}
                weight = coverage.weight or DEFAULT_COVERAGE_WEIGHT
                retried = self._search([pieces[place] for place in short], again, method, weight, options)
                for place, one in zip(short, retried, strict=True):
                    if _left(one) < _left(found[place]):
                        found[place] = one
        return found

    def _warn_of(self, found: Sequence[Found], threshold: float | None) -> None:
        """Warn of translations that were cut, and of those that seem to leave something out."""
        num_cut = sum(any(hypothesis.was_cut for hypothesis in one.hypotheses) for one in found)
        if num_cut:
            warn(
                f"{num_cut} of {len(found)} translations reached a limit and may be incomplete. "
                "`max_new_tokens` and `max_time` set a higher one."
            )
        num_short = len(_short_of(range(len(found)), found, threshold))
        if num_short:
            warn(
                f"The coverage of {num_short} of {len(found)} translations is below {threshold:g}: they have "
                "probably left something out."
            )

    def _search(
        self,
        pieces: Sequence[Piece],
        settings: Mapping[str, Any],
        method: CoveredBy | None,
        weight: float | None,
        asked: TranslationOptions,
    ) -> list[Found]:
        """Translate a batch; with a `weight`, rank the hypotheses of beam search by what they leave out."""
        returned = int(setting(self.loaded, settings, "num_return_sequences") or 1)
        if weight:
            beams = int(setting(self.loaded, settings, "num_beams") or 1)
            if beams < 2:
                raise ValueError(f"the `weight` of coverage needs at least 2 beams: `num_beams` is {beams}")
            settings = {**settings, "num_return_sequences": beams}
        sources, loaded = [piece.ids for piece in pieces], self.loaded
        options = search_options(
            loaded,
            [len(source) for source in sources],
            settings,
            prefixes=[piece.prefix for piece in pieces],
            scores=asked.scores or method is not None,
            readings=self._readings(method),
            most_repeated=asked.most_repeated,
        )
        translated = loaded.decoder.translate(sources, options)
        # the engine finds nothing among such logits
        if not all(translated) or any(one.score != one.score for hypotheses in translated for one in hypotheses):
            raise ValueError("the model's logits are not finite: its weights are damaged, or overflow in this dtype")
        found = [Found(hypotheses) for hypotheses in translated]
        if method is None:
            return found
        of_each = [piece for piece, one in zip(pieces, found, strict=True) for _ in one.hypotheses]
        hypotheses = [hypothesis for one in found for hypothesis in one.hypotheses]
        try:
            covered = iter(self._cover(of_each, hypotheses, method, asked))
        except Exception as error:  # it is an addition to the translation, which is there
            warn(f"The coverage of {len(pieces)} translations was not found: {describe(error)}.")
            for one in found:
                del one.hypotheses[returned:]
            return found
        for one in found:
            one.coverage = [next(covered) for _ in one.hypotheses]
            if weight:
                _rank(one, weight, options.length_penalty, returned)
        return found

    def _with_stand_ins(
        self,
        segmenter: Segmenter,
        documents: Sequence[Document],
        found: list[Found],
        options: TranslationOptions,
        method: CoveredBy | None,
    ) -> None:
        """Translate once more, with stand-ins, the pieces whose translation has not kept what it should."""
        again: dict[int, tuple[Document, int, Piece]] = {}
        number = 0
        for document in documents:
            for place, piece in enumerate(document.pieces):
                changed = None
                if piece.masked is not None:
                    text = segmenter.tokenizer.decode(found[number].hypotheses[0].ids)
                    changed = segmenter.with_stand_ins(piece, text)
                if changed is not None:
                    again[number] = (document, place, changed)
                number += 1
        translated = self._translate_pieces([piece for _, _, piece in again.values()], options, method)
        for (number, (document, place, piece)), one in zip(again.items(), translated, strict=True):
            document.pieces[place], found[number] = piece, one

    def _with_terms(
        self,
        segmenter: Segmenter,
        documents: Sequence[Document],
        found: list[Found],
        options: TranslationOptions,
        method: CoveredBy | None,
    ) -> None:
        """Translate the pieces that lack terms of the glossary again: up to the place of a term, the term, then on.

        A translation is decoded with a prefix: what it has before the word that attends most to the term, and the
        term. A piece takes a further pass for each term that it lacks.
        """
        assert self.glossary is not None
        decode, encode = segmenter.tokenizer.decode, segmenter.tokenizer.encode_target
        pieces = [(document, piece) for document in documents for piece in document.pieces]
        terms = [self.glossary.find(document.text, piece.span) for document, piece in pieces]
        for of_piece, (_, piece) in zip(terms, pieces, strict=True):
            of_piece[:] = [term for term in of_piece if piece.masked is None or not piece.masked.has_kept(term.span)]
            for term in list(of_piece):
                if segmenter.tokenizer.unknown_id in encode(term.target):
                    warn_once(f"the vocabulary cannot write {term.target!r} of the glossary: it is left out")
                    of_piece.remove(term)
        forced = [decode(piece.prefix) if piece.prefix else "" for _, piece in pieces]

        def begin(prefixes: Mapping[int, str]) -> None:
            again = [replace(pieces[n][1], prefix=encode(prefix)[:-1]) for n, prefix in prefixes.items()]
            found_again = self._translate_pieces(again, options, method)
            for (n, prefix), one in zip(prefixes.items(), found_again, strict=True):
                found[n], forced[n] = one, prefix

        def text(n: int) -> str:
            return decode(found[n].hypotheses[0].ids)

        for _ in range(max(map(len, terms), default=0)):
            missing = {n: own for n, of_piece in enumerate(terms) if of_piece and (own := lacking(of_piece, text(n)))}
            aligned = self._align_all([(pieces[n][1].ids, found[n].hypotheses[0].ids) for n in missing])
            prefixes, longer = {}, {}
            for (n, own), rows in zip(missing.items(), aligned, strict=True):
                piece, before = pieces[n][1], text(n)
                ids, least = found[n].hypotheses[0].ids, len(forced[n])
                places = [place_of_term(piece.words, term.span, ids, decode, rows, least) for term in own]
                place, term = min(zip(places, own, strict=True))
                prefixes[n] = with_term(before[: place.start], term.target)
                if not term.is_stem:
                    longer[n] = prefixes[n] + next_word(before[place.end :])
            begin(prefixes)
            # what would be a part of the term's word begins with the next word instead
            begin({n: longer[n] for n in longer if text(n)[len(prefixes[n]) :][:1].isalnum()})

    def _align(self, source: Ids, target: Ids) -> list[list[float]]:
        return self._align_all([(source, target)])[0]

    def _align_all(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]:
        """Return how much each token of translations is of each token of their sources [T][S].

        By the head that coverage reads, which attends to the word that the decoder has just read; where there is none,
        by how much less probable a token becomes without the source token.
        """
        if self.calibration.head is None:
            from capsule_mt.coverage.methods import deletion_gains_by_token

            return [deletion_gains_by_token(source, target, self.loaded.decoder) for source, target in pairs]
        found: list[list[list[float]]] = [[] for _ in pairs]
        lengths = [max(len(source), len(target)) for source, target in pairs]
        for places in batches_of(lengths, 1, ALIGNED_TOKENS):
            sources, targets = zip(*(pairs[place] for place in places), strict=True)
            readings = Readings(head=self.calibration.head)
            for place, forced in zip(places, self.loaded.decoder.force(sources, targets, readings), strict=True):
                rows = forced.received or []
                found[place] = [*rows[1:], *rows[-1:]]
        return found

    def _aligned(self, text: str, translation: str) -> "Alignment":
        """Return which characters of a text that is not blank those of a given translation are of."""
        from capsule_mt.text.restoring import Alignment  # late: few ask for it

        _, (piece,), ((ids, _),) = self._given([text], [translation], _GIVEN)
        offsets, decode = moved_offsets(piece.offsets, -piece.span.start), self._tokenizer(_GIVEN).decode
        return Alignment(offsets, target_ends(decode, ids), self._align(piece.ids, ids))

    def _alignment(
        self,
        document: Document,
        pairs: Sequence[tuple[Piece, Hypothesis]],
        texts: Sequence[str],
        translation: str,
        decode: Callable[[Ids], str],
    ) -> tuple[tuple[int, int], ...]:
        from capsule_mt.text.alignment import links_of, numbered_links, restored_links  # late: few ask for it

        links = []
        aligned = self._align_all([(piece.ids, hypothesis.ids) for piece, hypothesis in pairs])
        for (piece, hypothesis), text, rows in zip(pairs, texts, aligned, strict=True):
            own = links_of(piece.words, hypothesis.ids, decode, rows)
            if piece.masked is not None:
                own = restored_links(piece.masked, own, decode(hypothesis.ids), text)
            links.append(own)
        return numbered_links(document, translation, texts, links)

    def _segment(self, piece: Piece, hypothesis: Hypothesis) -> Segment:
        target_ids = (self.loaded.start, *hypothesis.ids)
        return Segment(*piece.span, tuple(piece.ids), target_ids, hypothesis.was_cut or piece.was_cut)

    def _text(self, piece: Piece, hypothesis: Hypothesis, decode: Callable[[Ids], str]) -> str:
        if piece.masked is None:
            return decode(hypothesis.ids)
        from capsule_mt.text.restoring import restored  # late: few texts keep anything

        return restored(piece.masked, piece.ids, hypothesis.ids, decode, self._align)

    def _translation(
        self,
        document: Document,
        found: Sequence[Found],
        rank: int,
        options: TranslationOptions,
        decode: Callable[[Ids], str],
        threshold: float | None,
    ) -> Translation:
        """Put the translation of a text together from those of its pieces."""
        hypotheses = [one.hypotheses[rank] for one in found]
        pairs = list(zip(document.pieces, hypotheses, strict=True))
        texts = [self._text(piece, hypothesis, decode) for piece, hypothesis in pairs]
        text, starts = join_translations(document, texts)
        coverage = None
        if options.coverage is not None and all(one.coverage for one in found):
            covered = [one.coverage[rank] for one in found if one.coverage]
            written = [decode(hypothesis.ids) for hypothesis in hypotheses]
            parts = list(zip(texts, starts, strict=True))
            from capsule_mt.coverage.documents import coverage_of

            coverage = coverage_of(document, covered, parts, written, threshold)
        tokens = sum(len(hypothesis.ids) for hypothesis in hypotheses)
        score = None
        if tokens and options.scores:
            score = sum(hypothesis.score * len(hypothesis.ids) for hypothesis in hypotheses) / tokens
        segments = tuple(self._segment(piece, hypothesis) for piece, hypothesis in pairs)
        alignment = self._alignment(document, pairs, texts, text, decode) if options.alignment else None
        return Translation(text, score, coverage, segments, document.unknown, alignment)

    def _labels(self, translation: str, tokenizer: Tokenizer) -> list[int]:
        return tokenizer.encode_target(translation)

    def _target_ids(self, translation: str, tokenizer: Tokenizer) -> tuple[list[int], bool]:
        """Return the token ids of a given translation, and whether it was cut."""
        ids = self._labels(translation, tokenizer)
        limit = self.loaded.longest_target
        if limit is None or len(ids) <= limit:
            return ids, False
        warn(f"A given translation of {len(ids)} tokens was cut to {limit}.")
        return [*ids[: limit - 1], ids[-1]], True


def _short_of(places: Sequence[int], found: Sequence[Found], threshold: float | None) -> list[int]:
    """Return which of some pieces have a coverage below a threshold."""
    if threshold is None:
        return []
    return [place for place in places if (of := found[place].coverage) is not None and of[0].score < threshold]


def _left(found: Found) -> float:
    return 0.0 if found.coverage is None else found.coverage[0].left


def _rank(found: Found, weight: float, length_penalty: float, returned: int) -> None:
    """Keep the best hypotheses by beam search's score, which divides by a power of the length, less what is left."""
    coverage = found.coverage or []
    values = [
        hypothesis.score * max(len(hypothesis.ids), 1) ** (1 - length_penalty) - weight * covered.left
        for hypothesis, covered in zip(found.hypotheses, coverage, strict=True)
    ]
    best = sorted(range(len(values)), key=lambda place: -values[place])[:returned]
    found.hypotheses = [found.hypotheses[place] for place in best]
    found.coverage = [coverage[place] for place in best]
