"""Translate through English where no model connects two languages: two models, one after the other.

What either of them leaves out is left out: a word of the source is marked if the first model marks it, or if the
second one marks the word that the first has made of it. Likewise a word of the translation is unsupported if the
second model finds it so, or if it was made of an English word that the first model has made up. The head of either
model that aligns words says what a word was made of, or deletion, where it has none; it is only asked about sentences
of which something is marked.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from capsule_mt.coverage.options import CoverageOptions
from capsule_mt.coverage.results import Coverage, SentenceCoverage, TargetWord, Word
from capsule_mt.options import TranslationOptions
from capsule_mt.scoring import Translation
from capsule_mt.text.glossary import Glossary
from capsule_mt.text.segments import Document, Piece, join_translations
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import WORDS, is_mark
from capsule_mt.translator import Found, Translator

PIVOT = "en"


class PivotPiece(Piece):
    """A sentence of the text `within`."""

    def __init__(self, piece: Piece, within: str) -> None:
        super().__init__(**vars(piece))
        self.within = within


class Through(Found):
    """The English of a sentence, and the best translations of that."""

    def __init__(self, middle: Translation, ends: Sequence[Translation]) -> None:
        super().__init__([])
        self.middle, self.ends = middle, ends


class PivotTranslator(Translator):
    """A `Translator` of two: the first translates into English, sentence by sentence, the second from it.

    `score` is the mean log-probability of a token of both translations, and `segments` have the source, with
    the tokens of the English. A sentence's coverage is the product of both, and so is its support; it is an alarm
    below the smaller of both thresholds.
    """

    def __init__(self, first: Translator, second: Translator) -> None:
        super().__init__(second.loaded)
        self.first, self.second = first, second

    @property
    def glossary(self) -> Glossary | None:
        """None: no term of the source is in the English that the second model reads."""
        return None

    @glossary.setter
    def glossary(self, glossary: Glossary | None) -> None:
        if glossary is not None:
            raise ValueError("`glossary` needs one model, and this pair goes through English by two")

    @property
    def has_reverse(self) -> bool:
        """Each of the two may have one of its own, but the pair has none."""
        return False

    def documents(self, texts: Sequence[str], options: TranslationOptions) -> list[Document]:
        documents = self.first.documents(texts, _to_pivot(options))
        for document in documents:
            document.pieces = [PivotPiece(piece, document.text) for piece in document.pieces]
        return documents

    def translate_pieces(self, pieces: Sequence[Piece], options: TranslationOptions) -> list[Found]:
        to_pivot, own = _to_pivot(options), cast(Sequence[PivotPiece], pieces)
        found = self.first.translate_pieces(own, to_pivot)
        alone = [Document(piece.within, pieces=[piece]) for piece in own]
        middles = [one[0] for one in self.first.put_together(alone, found, to_pivot)]
        ends = self.second.translate([one.text for one in middles], options._replace(src_lang=PIVOT))
        return [Through(middle, some) for middle, some in zip(middles, ends, strict=True)]

    def put_together(
        self, documents: Sequence[Document], found: list[Found], options: TranslationOptions
    ) -> list[list[Translation]]:
        of_piece = iter(cast(list[Through], found))
        returned = int(options.generate_kwargs.get("num_return_sequences") or 1)
        results = []
        for document in documents:
            own = [next(of_piece) for _ in document.pieces]
            ranks = [
                [self._joined(document.text, one.middle, one.ends[rank]) for one in own]
                for rank in range(min((len(one.ends) for one in own), default=returned))
            ]
            coverages = self._coverage_of_foreign(document, options)
            results.append([_whole(document, parts, coverages, options) for parts in ranks])
        return results

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
        """Return given translations with the scores that they have after the English of the first model."""
        asked: dict[str, Any] = {"batch_size": batch_size, "batch_tokens": batch_tokens}
        options = TranslationOptions(
            **asked, coverage=coverage, src_lang=src_lang, tgt_lang=PIVOT, split_sentences=False, truncation=True
        ).checked()
        middles = [found[0] for found in self.first.translate(texts, options)]
        ends = self.second.score(
            [one.text for one in middles], translations, coverage=coverage, src_lang=PIVOT, tgt_lang=tgt_lang, **asked
        )
        return [self._joined(text, middle, end) for text, middle, end in zip(texts, middles, ends, strict=True)]

    def _coverage_of_foreign(self, document: Document, options: TranslationOptions) -> list[Coverage]:
        """Return the coverage of the sentences that the first model has no words of, if there are any."""
        if not document.foreign or options.coverage is None:
            return []
        alone = Document(document.text, document.copies, foreign=document.foreign)
        coverage = self.first.put_together([alone], [], _to_pivot(options))[0][0].coverage
        return [] if coverage is None else [coverage]

    def _joined(self, text: str, middle: Translation, end: Translation) -> Translation:
        """Return the translation of one sentence of a text by way of its English."""
        coverage, alignment = None, None
        if middle.coverage is not None and end.coverage is not None:
            coverage = self._joined_coverage(text, middle, end, middle.coverage, end.coverage)
        if middle.alignment is not None and end.alignment is not None:
            links = {(source, target) for source, of in middle.alignment for to, target in end.alignment if of == to}
            alignment = tuple(sorted(links))
        segments = tuple(one._replace(was_cut=one.was_cut or end.was_cut) for one in middle.segments)
        return Translation(end.text, _mean_score([middle, end]), coverage, segments, middle.unknown, alignment)

    def _joined_coverage(
        self, text: str, middle: Translation, end: Translation, first: Coverage, second: Coverage
    ) -> Coverage:
        marked = {_span(word): word.covered for word in second.untranslated}
        start, stop = (middle.segments[0].start, middle.segments[0].end) if middle.segments else (0, 0)
        own = [Span(word.start - start, word.end - start) for word in first.words]
        lost: dict[Span, float] = {}
        if marked and own:
            for span, source in _origins(self.first, text[start:stop], middle.text, marked, own):
                lost[source] = min(marked[span], lost.get(source, 1.0))
        words = tuple(
            replace(word, covered=min(word.covered, lost[span]), marked=True) if span in lost else word
            for word, span in zip(first.words, own, strict=True)
        )
        score = first.score * second.score
        support: float | None = None
        target_words: tuple[TargetWord, ...] = ()
        if first.support is not None and second.support is not None:
            support, target_words = first.support * second.support, self._target_words(middle, end, first, second)
        sentences = tuple(SentenceCoverage(one.start, one.end, score) for one in first.sentences)
        repetitions = (*first.repetitions, *second.repetitions)
        thresholds = [one.threshold for one in (first, second) if one.threshold is not None]
        return replace(
            second,
            score=score,
            words=words,
            sentences=sentences,
            repetitions=repetitions,
            threshold=min(thresholds) if len(thresholds) == 2 else None,
            support=support,
            target_words=target_words,
        )

    def _target_words(
        self, middle: Translation, end: Translation, first: Coverage, second: Coverage
    ) -> tuple[TargetWord, ...]:
        """Return the words of a translation, of which those made of what the first model has made up are marked."""
        made_up = {_span(word): word.supported for word in first.unsupported}
        own = [_span(word) for word in second.words]
        wanted = [_span(word) for word in second.target_words if not is_mark(word.text)]
        origins: dict[Span, Span] = {}
        if made_up and own and wanted:
            origins = dict(_origins(self.second, middle.text, end.text, wanted, own))
        return tuple(
            replace(word, supported=min(word.supported, made_up[origin]), marked=True)
            if (origin := origins.get(_span(word))) in made_up
            else word
            for word in second.target_words
        )


def _span(word: Word | TargetWord) -> Span:
    return Span(word.start, word.end)


def _origins(
    translator: Translator, text: str, translation: str, wanted: Iterable[Span], own: Sequence[Span]
) -> Iterator[tuple[Span, Span]]:
    """Yield some words of a translation with the word of its text that each was made of.

    That is the one with the largest product of two shares: of the translation's word, and of the text's.
    """
    alignment = translator._aligned(text, translation)
    words = dict.fromkeys([*wanted, *(Span(*match.span()) for match in WORDS.finditer(translation))])
    shares = {word: [max(alignment.share(word, source), 0.0) for source in own] for word in words}
    totals = [sum(column) for column in zip(*shares.values(), strict=True)]
    for word in wanted:
        values = [share * share / total if total else 0.0 for share, total in zip(shares[word], totals, strict=True)]
        yield word, own[values.index(max(values))]


def _to_pivot(options: TranslationOptions) -> TranslationOptions:
    """Return the options of the first model, which gives a single translation."""
    settings: Mapping[str, Any] = {**options.generate_kwargs, "num_return_sequences": 1}
    return options._replace(tgt_lang=PIVOT, generate_kwargs=settings)


def _mean_score(parts: Sequence[Translation]) -> float | None:
    scored = [(one.score, len(one.token_ids)) for one in parts if one.score is not None]
    return sum(value * tokens for value, tokens in scored) / sum(tokens for _, tokens in scored) if scored else None


def _moved(coverage: Coverage, start: int) -> Coverage:
    """Return the coverage of a sentence whose translation begins at a character of that of the text."""
    words = (replace(word, start=start + word.start, end=start + word.end) for word in coverage.target_words)
    return replace(coverage, target_words=tuple(words))


def _whole(
    document: Document, parts: Sequence[Translation], others: Sequence[Coverage], options: TranslationOptions
) -> Translation:
    """Put the translation of a text together; `others` is the coverage of what is copied."""
    text, starts = join_translations(document, [one.text for one in parts])
    coverage, alignment = None, None
    if options.coverage is not None:
        from capsule_mt.coverage.documents import joined  # late: who asks for no coverage starts sooner

        found = [_moved(one.coverage, start) for one, start in zip(parts, starts, strict=True) if one.coverage]
        found += others
        weights = [max(len(one.words), 1) for one in found]
        coverage = joined(found, weights, found[0].threshold if found else None)
    if options.alignment:
        links, place = [], 0
        for one in parts:
            start = max(text.find(one.text, place), place)
            before = text[:start]
            number = len(before.split()) - bool(before and not before[-1].isspace())
            links += [(source, target + number) for source, target in one.alignment or ()]
            place = start + len(one.text)
        alignment = tuple(sorted(links))
    segments = tuple(segment for one in parts for segment in one.segments)
    return Translation(text, _mean_score(parts), coverage, segments, document.unknown, alignment)
