"""Translate through English where no model connects two languages: two models, one after the other.

What either of them leaves out is left out: a word of the source is marked if the first model marks it, or if the
second one marks the word that the first has made of it. The head of the first model that aligns words says what that
is, or deletion, where it has none; it is only asked about sentences of which the second marks something.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from capsule_mt.coverage.results import Coverage, SentenceCoverage
from capsule_mt.text.segments import Document, Piece, join_translations
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import WORDS
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.results import Translation
from capsule_mt.translate.text_translator import TextTranslator

if TYPE_CHECKING:
    from capsule_mt.text.restoring import Alignment
    from capsule_mt.translate.scoring import Scorer

PIVOT = "en"


class PivotPiece(Piece):
    """A sentence of the text `within`."""

    def __init__(self, piece: Piece, within: str) -> None:
        vars(self).update(vars(piece))  # with what was found out about it since it was made
        self.within = within


class Through(NamedTuple):
    """The English of a sentence, and the best translations of that."""

    middle: Translation
    ends: list[Translation]


class Leg(Protocol):
    """One of the two models: a `Translator`."""

    @property
    def verifies_marks(self) -> bool: ...
    def documents(self, texts: Sequence[str], options: TranslationOptions) -> list[Document]: ...
    def translate_pieces(self, pieces: Sequence[Piece], options: TranslationOptions) -> list[Any]: ...
    def put_together(
        self, documents: Sequence[Document], found: list[Any], options: TranslationOptions
    ) -> list[list[Translation]]: ...
    def translate(self, texts: Sequence[str], options: TranslationOptions) -> list[list[Translation]]: ...
    def aligned(self, text: str, translation: str) -> "Alignment": ...


class PivotTranslator(TextTranslator):
    """Two models, one after the other: the first translates into English, sentence by sentence, the second from it.

    `score` is the mean log-probability of a token of both translations, and `segments` have the source, with
    the tokens of the English. A sentence's coverage is the product of both; it is an alarm below the smaller of both
    thresholds. A glossary, alignments, support and given translations need one model.
    """

    def __init__(self, first: Leg, second: Leg) -> None:
        self.first, self.second = first, second

    @property
    def verifies_marks(self) -> bool:
        return self.first.verifies_marks and self.second.verifies_marks

    def completed(self, options: TranslationOptions) -> TranslationOptions:
        if options.alignment:
            raise _needs_one_model("`alignment`")
        if options.coverage is not None and options.coverage.support:
            raise _needs_one_model("`support`")
        return super().completed(options)

    def documents(self, texts: Sequence[str], options: TranslationOptions) -> list[Document]:
        documents = self.first.documents(texts, _to_pivot(options))
        for document in documents:
            document.pieces = [PivotPiece(piece, document.text) for piece in document.pieces]
        return documents

    def translate_pieces(self, pieces: Sequence[Piece], options: TranslationOptions) -> list[Any]:
        to_pivot, own = _to_pivot(options), cast(Sequence[PivotPiece], pieces)
        found = self.first.translate_pieces(own, to_pivot)
        alone = [Document(piece.within, pieces=[piece]) for piece in own]
        middles = [one[0] for one in self.first.put_together(alone, found, to_pivot)]
        ends = self.second.translate([one.text for one in middles], options._replace(src_lang=PIVOT))
        return [Through(middle, some) for middle, some in zip(middles, ends, strict=True)]

    def put_together(
        self, documents: Sequence[Document], found: list[Any], options: TranslationOptions
    ) -> list[list[Translation]]:
        of_piece, results = iter(cast(list[Through], found)), []
        returned = int(options.generate_kwargs.get("num_return_sequences") or 1)
        for document in documents:
            own = [next(of_piece) for _ in document.pieces]
            number = min((len(one.ends) for one in own), default=returned)
            ranks = [
                [self._joined(document.text, one.middle, one.ends[rank]) for one in own] for rank in range(number)
            ]
            coverages = self._coverage_of_foreign(document, options)
            results.append([_whole(document, parts, coverages, options) for parts in ranks])
        return results

    def _coverage_of_foreign(self, document: Document, options: TranslationOptions) -> list[Coverage]:
        """Return the coverage of the sentences that the first model has no words of, if there are any."""
        if not document.foreign or options.coverage is None:
            return []
        alone = Document(document.text, document.copies, foreign=document.foreign)
        coverage = self.first.put_together([alone], [], _to_pivot(options))[0][0].coverage
        return [] if coverage is None else [coverage]

    def _joined(self, text: str, middle: Translation, end: Translation) -> Translation:
        """Return the translation of one sentence of a text by way of its English."""
        coverage = None
        if middle.coverage is not None and end.coverage is not None:
            coverage = self._joined_coverage(text, middle, middle.coverage, end.coverage)
        segments = tuple(one._replace(was_cut=one.was_cut or end.was_cut) for one in middle.segments)
        return Translation(end.text, _mean_score([middle, end]), coverage, segments, middle.unknown)

    def _joined_coverage(self, text: str, middle: Translation, first: Coverage, second: Coverage) -> Coverage:
        start, stop = (middle.segments[0].start, middle.segments[0].end) if middle.segments else (0, 0)
        own = [Span(word.start - start, word.end - start) for word in first.words]
        lost = self._lost(text[start:stop], middle.text, second, own)
        words = tuple(
            replace(word, covered=min(word.covered, lost[span]), marked=True) if span in lost else word
            for word, span in zip(first.words, own, strict=True)
        )
        score = first.score * second.score
        sentences = tuple(SentenceCoverage(one.start, one.end, score) for one in first.sentences)
        thresholds = [one.threshold for one in (first, second) if one.threshold is not None]
        threshold = min(thresholds) if len(thresholds) == 2 else None
        return Coverage(score, words, sentences, (*first.repetitions, *second.repetitions), threshold)

    def _lost(self, text: str, english: str, second: Coverage, own: Sequence[Span]) -> dict[Span, float]:
        """Return the words of a text whose English the second model marks, with how much it covers of that.

        A word of English was made of the one with the largest product of two shares: of its own, and of the text's.
        """
        marked = {Span(word.start, word.end): word.covered for word in second.untranslated}
        lost: dict[Span, float] = {}
        if not marked or not own:
            return lost
        alignment = self.first.aligned(text, english)
        words = dict.fromkeys([*marked, *(Span(*match.span()) for match in WORDS.finditer(english))])
        shares = {word: [max(alignment.share(word, source), 0.0) for source in own] for word in words}
        totals = [sum(column) for column in zip(*shares.values(), strict=True)]
        for word, covered in marked.items():
            products = [share * share / (total or 1.0) for share, total in zip(shares[word], totals, strict=True)]
            source = own[products.index(max(products))]
            lost[source] = min(covered, lost.get(source, 1.0))
        return lost


def single_model(translator: TextTranslator, purpose: str) -> "Scorer":
    """Return a translator of one model; refuse one of two, for a purpose that needs the only one."""
    if isinstance(translator, PivotTranslator):
        raise _needs_one_model(purpose)
    return cast("Scorer", translator)


def _needs_one_model(purpose: str) -> ValueError:
    """Return the error of something that two models one after the other cannot do."""
    return ValueError(f"{purpose} needs one model, and this pair goes through English by two")


def _to_pivot(options: TranslationOptions) -> TranslationOptions:
    """Return the options of the first model, which gives a single translation."""
    settings: Mapping[str, Any] = {**options.generate_kwargs, "num_return_sequences": 1}
    return options._replace(tgt_lang=PIVOT, generate_kwargs=settings)


def _mean_score(parts: Sequence[Translation]) -> float | None:
    scored = [(one.score, len(one.token_ids)) for one in parts if one.score is not None]
    return sum(value * tokens for value, tokens in scored) / sum(tokens for _, tokens in scored) if scored else None


def _whole(
    document: Document, parts: Sequence[Translation], others: Sequence[Coverage], options: TranslationOptions
) -> Translation:
    """Put the translation of a text together; `others` is the coverage of what is copied."""
    text, _ = join_translations(document, [one.text for one in parts])
    coverage = None
    if options.coverage is not None:
        from capsule_mt.coverage.documents import joined  # late: who asks for no coverage starts sooner

        found = [*(one.coverage for one in parts if one.coverage), *others]
        weights = [max(len(one.words), 1) for one in found]
        coverage = joined(found, weights, found[0].threshold if found else None)
    segments = tuple(segment for one in parts for segment in one.segments)
    return Translation(text, _mean_score(parts), coverage, segments, document.unknown)
