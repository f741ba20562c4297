"""From the hypotheses of a text's pieces to its `Translation`."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from capsule_mt.engine.search import Hypothesis
from capsule_mt.options.table import Readings
from capsule_mt.text.finishing import written
from capsule_mt.text.reading import Piece
from capsule_mt.text.segments import Document, edits_of, join_translations
from capsule_mt.translate.aligning import aligned_rows
from capsule_mt.translate.plan import Plan
from capsule_mt.translate.results import Score, Segment, Translation

if TYPE_CHECKING:  # late: a call without coverage starts sooner
    from capsule_mt.coverage.results import Coverage


class LaterScores:
    """The log-probabilities of some texts' hypotheses, by one forced pass when the first of their scores is read."""

    def __init__(self, pairs: Sequence[tuple[Piece, Hypothesis]], plan: Plan) -> None:
        self._pairs, self._decoder = list(pairs), plan.model.decoder

    def mean_of(self, hypotheses: Sequence[Hypothesis]) -> float | None:
        if self._pairs:
            sources, targets = (
                [piece.ids for piece, _ in self._pairs],
                [hypothesis.ids for _, hypothesis in self._pairs],
            )
            results = self._decoder.force(sources, targets, Readings())
            for (_, hypothesis), forced in zip(self._pairs, results, strict=True):
                hypothesis.log_probs = forced.log_probs
            self._pairs = []
        return _mean_score(hypotheses)


def _mean_score(hypotheses: Sequence[Hypothesis]) -> float | None:
    """Return the mean log-probability of a token of these hypotheses; `None` if there is none."""
    num_tokens = sum(len(hypothesis.ids) for hypothesis in hypotheses)
    if not num_tokens:
        return None
    return sum(hypothesis.score * len(hypothesis.ids) for hypothesis in hypotheses) / num_tokens


def translation_of(
    document: Document, hypotheses: Sequence[Hypothesis], plan: Plan, later: LaterScores | None = None
) -> Translation:
    """Assemble the translation of a text from one hypothesis for each of its pieces."""
    if document.tgt_lang is not None:
        plan = plan._replace(segmenter=plan.segmenter._replace(tgt_lang=document.tgt_lang))
    pairs = list(zip(document.pieces, hypotheses, strict=True))
    texts = [_text(piece, hypothesis, plan) for piece, hypothesis in pairs]
    text, starts = join_translations(document, texts, plan.languages[1])
    coverage = None
    if all(hypothesis.covered is not None for hypothesis in hypotheses):  # a failure was a warning of the search
        coverage = _text_coverage(document, hypotheses, [*zip(texts, starts, strict=True)], text, plan)
    score: Score = None
    if later is not None:
        score = partial(later.mean_of, hypotheses)
    elif plan.options.scores is not False:
        score = _mean_score(hypotheses)
    segments = tuple(segment_of(piece, hypothesis, plan) for piece, hypothesis in pairs)
    alignment = links_between(document, pairs, texts, text, plan) if plan.options.alignment else None
    return Translation(text, score, coverage, segments, document.unknown, alignment, edits=edits_of(document))


def scored_translation(
    document: Document, pair: tuple[Piece, Hypothesis] | None, translation: str, plan: Plan, *, with_links: bool
) -> Translation:
    """Assemble a given translation with its score and what it covers; `pair` is `None` for a blank text."""
    hypotheses = [] if pair is None else [pair[1]]
    coverage = _text_coverage(document, hypotheses, [(translation, 0)] * len(hypotheses), translation, plan)
    segments = () if pair is None else (segment_of(*pair, plan),)
    score = hypotheses[0].score if hypotheses else None
    links = None
    if with_links:
        links = () if pair is None else links_between(document, [pair], [translation], translation, plan)
    return Translation(translation, score, coverage, segments, alignment=links)


def _text_coverage(
    document: Document,
    hypotheses: Sequence[Hypothesis],
    parts: Sequence[tuple[str, int]],
    translation: str,
    plan: Plan,
) -> "Coverage | None":
    """Return what the translation of a text covers, with its checks, if the call asks for it.

    parts: the translation of each piece, and where it begins in that of the text.
    """
    if plan.coverage is None:
        return None
    from capsule_mt.coverage.documents import coverage_of, with_checks  # late: a call without coverage starts sooner

    outputs = [plan.tokenizer.decode(hypothesis.ids) for hypothesis in hypotheses]
    coverages = [hypothesis.covered for hypothesis in hypotheses]
    coverage = coverage_of(document, coverages, parts, outputs, *plan.coverage.coverage_arguments)
    return with_checks(coverage, document.with_blank_languages, translation, plan.languages)


def segment_of(piece: Piece, hypothesis: Hypothesis, plan: Plan) -> Segment:
    target_ids = (plan.model.start, *hypothesis.ids)
    return Segment(*piece.span, tuple(piece.ids), target_ids, hypothesis.was_cut or piece.was_cut)


def _text(piece: Piece, hypothesis: Hypothesis, plan: Plan) -> str:
    """Return the translation of a piece, with what it has of its source."""
    rows = partial(aligned_rows, [(piece.ids, hypothesis)], plan)
    return written(piece, hypothesis.ids, plan.tokenizer, lambda: rows()[0], plan.languages, plan.options.copy)


def links_between(
    document: Document,
    pairs: Sequence[tuple[Piece, Hypothesis]],
    texts: Sequence[str],
    translation: str,
    plan: Plan,
) -> tuple[tuple[int, int], ...]:
    """Return which words of a text and its translation belong together, as `Translation.alignment` has them."""
    from capsule_mt.text.alignment import links_of, numbered_links, restored_links  # late: few calls align

    decode, links = plan.tokenizer.decode, []
    aligned = aligned_rows([(piece.ids, hypothesis) for piece, hypothesis in pairs], plan)
    for (piece, hypothesis), text, rows in zip(pairs, texts, aligned, strict=True):
        piece_links = links_of(piece.words, hypothesis.ids, decode, rows)
        decoded = decode(hypothesis.ids)
        if text != decoded:
            piece_links = restored_links(piece, piece_links, decoded, text)
        links.append(piece_links)
    return numbered_links(document, translation, texts, links)
