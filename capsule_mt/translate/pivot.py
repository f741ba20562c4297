"""Translate through English where no model connects two languages: two models, one after the other.

What either of them leaves out is left out: a word of the source is marked if the first model marks it, or if the
second one marks the word that the first has made of it. Which source word an English word comes from is read from the
first model's alignment head, or, without one, tested by deletion. This is done only for sentences in which the second
model marks a word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from capsule_mt.coverage.results import Coverage, SentenceCoverage
from capsule_mt.messages import shown
from capsule_mt.text.reading import Piece
from capsule_mt.text.segments import Document, edits_of, join_translations
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import WORDS
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.plan import Plan
from capsule_mt.translate.results import Translation
from capsule_mt.translate.text_translator import TextTranslator

if TYPE_CHECKING:
    from capsule_mt.text.restoring import Alignment
    from capsule_mt.translate.scorer import Scorer

PIVOT = "en"


class PivotPiece(Piece):
    """A sentence, with the text that it is part of."""

    def __init__(self, piece: Piece, document_text: str) -> None:
        vars(self).update(vars(piece))  # also the attributes that were set after its construction
        self.document_text = document_text


class PivotPlan(NamedTuple):
    """The plans of both models for one call."""

    options: TranslationOptions
    first: Plan
    second: Plan


class SentenceResult(NamedTuple):
    """The English of a sentence, and the best translations of that."""

    middle: Translation
    ends: list[Translation]


class Leg(Protocol):
    """One of the two models: a `Translator`."""

    @property
    def target_language(self) -> str | None: ...
    @property
    def reverse_folders(self) -> list[str]: ...
    @property
    def verifies_marks(self) -> bool: ...
    def plan(self, options: TranslationOptions) -> Plan: ...
    def documents(self, texts: Sequence[str], plan: Plan) -> list[Document]: ...
    def translate_pieces(self, pieces: Sequence[Piece], plan: Plan) -> list[Any]: ...
    def put_together(
        self, documents: Sequence[Document], results: list[Any], plan: Plan
    ) -> list[list[Translation]]: ...
    def execute(self, texts: Sequence[str], plan: Plan) -> list[list[Translation]]: ...
    def aligned(self, text: str, translation: str) -> "Alignment": ...


class PivotTranslator(TextTranslator):
    """Two models, one after the other: the first translates into English, sentence by sentence, the second from it.

    `score` is the mean log-probability of a token of both translations. `segments` are spans of the source, but
    their `target_ids` are those of the English. A sentence's coverage is the product of the two models' coverages; it
    raises an alarm below the smaller of their two thresholds. A glossary, alignments, support, and scoring given
    translations need one model.
    """

    def __init__(self, first: Leg, second: Leg) -> None:
        for name, model in (("first", first), ("second", second)):
            if not hasattr(model, "translate_pieces"):
                raise TypeError(f"`{name}` must be a `Translator`, got {shown(model)} ({type(model).__name__})")
        self.first, self.second = first, second

    @property
    def target_language(self) -> str | None:
        return self.second.target_language

    @property
    def reverse_folders(self) -> list[str]:
        return [*self.first.reverse_folders, *self.second.reverse_folders]

    @property
    def verifies_marks(self) -> bool:
        return self.first.verifies_marks and self.second.verifies_marks

    @property
    def glossary(self) -> None:
        """None: a glossary needs one model."""
        return None

    @glossary.setter
    def glossary(self, glossary: object) -> None:
        if glossary is not None:
            raise _needs_one_model("`glossary`")

    def plan(self, options: TranslationOptions) -> PivotPlan:
        if options.alignment:
            raise _needs_one_model("`alignment`")
        if options.coverage is not None and options.coverage.support:
            raise _needs_one_model("`support`")
        options = self.completed(options)
        return PivotPlan(
            options,
            self.first.plan(_to_pivot(options)),
            self.second.plan(options._replace(src_lang=PIVOT, copy_foreign=False)),
        )

    def documents(self, texts: Sequence[str], plan: PivotPlan) -> list[Document]:
        documents = self.first.documents(texts, plan.first)
        for document in documents:
            document.pieces = [PivotPiece(piece, document.text) for piece in document.pieces]
        return documents

    def translate_pieces(self, pieces: Sequence[Piece], plan: PivotPlan) -> list[SentenceResult]:
        pivot_pieces = cast(Sequence[PivotPiece], pieces)
        results = self.first.translate_pieces(pieces, plan.first)
        sentence_documents = [Document(piece.document_text, pieces=[piece]) for piece in pivot_pieces]
        middles = [ranked[0] for ranked in self.first.put_together(sentence_documents, results, plan.first)]
        ends = self.second.execute([middle.text for middle in middles], plan.second)
        return [SentenceResult(middle, ranked) for middle, ranked in zip(middles, ends, strict=True)]

    def put_together(
        self, documents: Sequence[Document], results: list[SentenceResult], plan: PivotPlan
    ) -> list[list[Translation]]:
        pending, translations = iter(results), list[list[Translation]]()
        for document in documents:
            sentences = [next(pending) for _ in document.pieces]
            num_ranks = min((len(sentence.ends) for sentence in sentences), default=plan.second.num_returned)
            coverages = self._coverage_of_foreign(document, plan)
            translations.append([])
            for rank in range(num_ranks):
                parts = [self._joined(document.text, sentence.middle, sentence.ends[rank]) for sentence in sentences]
                steps = [step for sentence in sentences for step in (sentence.middle, sentence.ends[rank])]
                translations[-1].append(_text_translation(document, parts, steps, coverages, plan))
        return translations

    def _coverage_of_foreign(self, document: Document, plan: PivotPlan) -> list[Coverage]:
        """Return the coverage of the spans that are copied because the first model cannot translate them, if any."""
        if not document.foreign or plan.options.coverage is None:
            return []
        copied = Document(document.text, document.copies, foreign=document.foreign)
        coverage = self.first.put_together([copied], [], plan.first)[0][0].coverage
        return [] if coverage is None else [coverage]

    def _joined(self, text: str, middle: Translation, end: Translation) -> Translation:
        """Return the translation of one sentence of a text by way of its English."""
        coverage = None
        if middle.coverage is not None and end.coverage is not None:
            coverage = self._joined_coverage(text, middle, middle.coverage, end.coverage)
        segments = tuple(segment._replace(was_cut=segment.was_cut or end.was_cut) for segment in middle.segments)
        return Translation(end.text, None, coverage, segments, middle.unknown)

    def _joined_coverage(self, text: str, middle: Translation, first: Coverage, second: Coverage) -> Coverage:
        start, stop = (middle.segments[0].start, middle.segments[0].end) if middle.segments else (0, 0)
        spans = [Span(word.start - start, word.end - start) for word in first.words]
        lost = self._lost(text[start:stop], middle.text, second, spans)
        words = tuple(
            replace(word, covered=min(word.covered, lost[span]), marked=True) if span in lost else word
            for word, span in zip(first.words, spans, strict=True)
        )
        score = first.score * second.score
        sentences = tuple(SentenceCoverage(sentence.start, sentence.end, score) for sentence in first.sentences)
        thresholds = [leg.threshold for leg in (first, second) if leg.threshold is not None]
        threshold = min(thresholds) if len(thresholds) == 2 else None
        method = first.method if second.method == "verified" else second.method
        repetitions = (*first.repetitions, *second.repetitions)
        return Coverage(score, words, sentences, repetitions, threshold, method=method)

    def _lost(self, text: str, english: str, second: Coverage, spans: Sequence[Span]) -> dict[Span, float]:
        """Return the words of a text whose English the second model marks, each with the coverage of its English.

        An English word is taken to come from the source word for which the product of two shares is largest: the share
        of the English word's attention that goes to the source word, and the share of all attention to that source
        word that comes from the English word.
        """
        marked = {Span(word.start, word.end): word.covered for word in second.untranslated}
        lost: dict[Span, float] = {}
        if not marked or not spans:
            return lost
        alignment = self.first.aligned(text, english)
        words = dict.fromkeys([*marked, *(Span(*match.span()) for match in WORDS.finditer(english))])
        shares = {word: [max(alignment.share(word, source), 0.0) for source in spans] for word in words}
        totals = [sum(column) for column in zip(*shares.values(), strict=True)]
        for word, covered in marked.items():
            products = [share * share / (total or 1.0) for share, total in zip(shares[word], totals, strict=True)]
            source = spans[products.index(max(products))]
            lost[source] = min(covered, lost.get(source, 1.0))
        return lost


def single_model(translator: TextTranslator, purpose: str) -> "Scorer":
    """Return `translator` as a `Scorer`; raise a `ValueError` that names the purpose if it has two models."""
    if isinstance(translator, PivotTranslator):
        raise _needs_one_model(purpose)
    return cast("Scorer", translator)


def _needs_one_model(purpose: str) -> ValueError:
    """Return the error for a `purpose` that two models in a row cannot serve."""
    return ValueError(f"{purpose} needs one model, but this pair goes through English with two")


def _to_pivot(options: TranslationOptions) -> TranslationOptions:
    """Return the options of the first model, which gives a single translation."""
    settings: Mapping[str, Any] = {**options.generate_kwargs, "num_return_sequences": 1}
    return options._replace(tgt_lang=PIVOT, generate_kwargs=settings)


def _mean_score(steps: Sequence[Translation]) -> float | None:
    # start tokens have no score
    scored = [(step.score, len(step.token_ids) - len(step.segments)) for step in steps if step.score is not None]
    return sum(value * tokens for value, tokens in scored) / sum(tokens for _, tokens in scored) if scored else None


def _text_translation(
    document: Document,
    parts: Sequence[Translation],
    steps: Sequence[Translation],
    foreign: Sequence[Coverage],
    plan: PivotPlan,
) -> Translation:
    """Assemble the translation of a text from those of its sentences.

    Args:
        steps: the translations by both models, for the score.
        foreign: the coverage of copied sentences.
    """
    text, _ = join_translations(document, [part.text for part in parts], plan.second.languages[1])
    coverage = None
    if plan.options.coverage is not None:
        from capsule_mt.coverage.documents import joined, with_checks  # late: a call without coverage starts sooner

        coverages = [*(part.coverage for part in parts if part.coverage), *foreign]
        weights = [max(len(part.words), 1) for part in coverages]
        threshold, method = (coverages[0].threshold, coverages[0].method) if coverages else (None, None)
        coverage = joined(coverages, weights, threshold, method)
        languages = (plan.first.languages[0], plan.second.languages[1])
        coverage = with_checks(coverage, document.with_blank_languages, text, languages)
    segments = tuple(segment for part in parts for segment in part.segments)
    edits = edits_of(document)
    return Translation(text, partial(_mean_score, steps), coverage, segments, document.unknown, edits=edits)
