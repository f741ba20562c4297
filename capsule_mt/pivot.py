"""Translate through English where no model connects two languages: two models, one after the other.

What either of them leaves out is left out: a word of the source is marked if the first model marks it, or if the
second one marks the word that the first has made of it. The head of the first model that aligns words says which that
is, or deletion, where it has none; it is only asked about sentences of which the second model marks something.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from capsule_mt.coverage.results import Coverage, CoverageOptions, SentenceCoverage
from capsule_mt.options import TranslationOptions
from capsule_mt.text.glossary import Glossary
from capsule_mt.text.restoring import Alignment
from capsule_mt.text.segments import Document, Piece, PrefixedText, join_translations
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import WORDS, target_ends
from capsule_mt.translator import Found, Translation, Translator

PIVOT = "en"


@dataclass
class PivotPiece(Piece):
    """A sentence of the text `within`; `begins` is what its translation, not its English, begins with."""

    within: str = ""
    begins: str | None = None


@dataclass
class Through(Found):
    """The English of a sentence, and the best translations of that."""

    middle: Translation | None = None
    ends: Sequence[Translation] = ()


class PivotTranslator(Translator):
    """A `Translator` of two: the first translates into English, sentence by sentence, the second from it.

    `score` is the mean log-probability of a token of both translations, and `segments` are those of the source, with
    the tokens of the English. A sentence's coverage is the product of both.
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
        plain = [str(text) if isinstance(text, PrefixedText) else text for text in texts]
        documents = self.first.documents(plain, _to_pivot(options))
        for text, document in zip(texts, documents, strict=True):
            document.pieces = [PivotPiece(**vars(piece), within=document.text) for piece in document.pieces]
            if isinstance(text, PrefixedText) and document.pieces:
                cast(PivotPiece, document.pieces[0]).begins = text.target_prefix
        return documents

    def translate_pieces(self, pieces: Sequence[Piece], options: TranslationOptions) -> list[Found]:
        to_pivot, own = _to_pivot(options), cast(Sequence[PivotPiece], pieces)
        found = self.first.translate_pieces(own, to_pivot)
        alone = [Document(piece.within, pieces=[piece]) for piece in own]
        middles = [one[0] for one in self.first.put_together(alone, found, to_pivot)]
        texts = [
            middle.text if piece.begins is None else PrefixedText(middle.text, piece.begins)
            for piece, middle in zip(own, middles, strict=True)
        ]
        ends = self.second.translate(texts, replace(options, src_lang=PIVOT))
        return [Through([], None, middle, some) for middle, some in zip(middles, ends, strict=True)]

    def put_together(
        self, documents: Sequence[Document], found: list[Found], options: TranslationOptions
    ) -> list[list[Translation]]:
        of_piece = iter(cast(list[Through], found))
        returned = int(options.generate_kwargs.get("num_return_sequences") or 1)
        results = []
        for document in documents:
            own = [next(of_piece) for _ in document.pieces]
            ranks = [
                [self._joined(document.text, cast(Translation, one.middle), one.ends[rank]) for one in own]
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
        )
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
            coverage = self._joined_coverage(text, middle, middle.coverage, end.coverage)
        if middle.alignment is not None and end.alignment is not None:
            links = {(source, target) for source, of in middle.alignment for to, target in end.alignment if of == to}
            alignment = tuple(sorted(links))
        segments = tuple(replace(one, was_cut=one.was_cut or end.was_cut) for one in middle.segments)
        return Translation(end.text, _mean_score([middle, end]), coverage, segments, middle.unknown, alignment)

    def _joined_coverage(self, text: str, middle: Translation, first: Coverage, second: Coverage) -> Coverage:
        marked = {Span(word.start, word.end): word.covered for word in second.untranslated}
        own = [Span(word.start, word.end) for word in first.words]
        lost: dict[Span, float] = {}
        if marked and own and middle.segments:
            for span, source in self._became(text, middle, marked, own):
                lost[source] = min(marked[span], lost.get(source, 1.0))
        words = tuple(
            replace(word, covered=min(word.covered, lost[span]), marked=True)
            if (span := Span(word.start, word.end)) in lost
            else word
            for word in first.words
        )
        score = first.score * second.score
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
        )

    def _became(
        self, text: str, middle: Translation, wanted: Iterable[Span], own: Sequence[Span]
    ) -> Iterator[tuple[Span, Span]]:
        """Yield some words of the English of a sentence with the word of the source that each was made of.

        That is the one with the largest product of two shares: of the English word's, and of the source word's.
        """
        loaded, segment = self.first.loaded, middle.segments[0]
        ids = segment.target_ids[1:]
        encoded = loaded.tokenizer.encode(text[segment.start : segment.end])
        offsets = [place and (place[0] + segment.start, place[1] + segment.start) for place in encoded.offsets]
        alignment = Alignment(offsets, target_ends(loaded.tokenizer.decode, ids), self.first._align(encoded.ids, ids))
        words = dict.fromkeys([*wanted, *(Span(*match.span()) for match in WORDS.finditer(middle.text))])
        shares = {word: [max(alignment.share(word, source), 0.0) for source in own] for word in words}
        totals = [sum(column) for column in zip(*shares.values(), strict=True)]
        for word in wanted:
            values = [
                share * share / total if total else 0.0 for share, total in zip(shares[word], totals, strict=True)
            ]
            yield word, own[values.index(max(values))]


def _to_pivot(options: TranslationOptions) -> TranslationOptions:
    """Return the options of the first model, which gives a single translation."""
    settings: Mapping[str, Any] = {**options.generate_kwargs, "num_return_sequences": 1}
    return replace(options, tgt_lang=PIVOT, generate_kwargs=settings)


def _mean_score(parts: Sequence[Translation]) -> float | None:
    scored = [(one.score, len(one.token_ids)) for one in parts if one.score is not None]
    return sum(value * tokens for value, tokens in scored) / sum(tokens for _, tokens in scored) if scored else None


def _whole(
    document: Document, parts: Sequence[Translation], others: Sequence[Coverage], options: TranslationOptions
) -> Translation:
    """Put the translation of a text together; `others` is the coverage of what is copied."""
    texts = [one.text for one in parts]
    text, coverage, alignment = join_translations(document, texts)[0], None, None
    if options.coverage is not None:
        found = [*(one.coverage for one in parts if one.coverage is not None), *others]
        words = tuple(sorted((word for one in found for word in one.words), key=lambda word: word.start))
        sentences = tuple(sentence for one in found for sentence in one.sentences)
        repetitions = tuple(phrase for one in found for phrase in one.repetitions)
        weights = [max(len(one.words), 1) for one in found]
        scores = sum(weight * one.score for weight, one in zip(weights, found, strict=True))
        threshold = found[0].threshold if found else None
        coverage = Coverage(scores / sum(weights) if found else 1.0, words, sentences, repetitions, threshold)
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
