"""One search: pieces in batches of similar length become hypotheses, with what they cover."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from capsule_mt.engine.search import Hypothesis
from capsule_mt.files.line_failures import describe
from capsule_mt.messages import warn, with_unit
from capsule_mt.options.table import Readings
from capsule_mt.text.reading import Piece
from capsule_mt.translate.plan import CoveragePlan, Plan
from capsule_mt.translate.texts import batches_of

if TYPE_CHECKING:  # late: a call without coverage starts sooner
    from capsule_mt.coverage.piece_coverage import PieceCoverage

Hypotheses = list[Hypothesis]  # of one piece, best first


def search(pieces: Sequence[Piece], plan: Plan) -> list[Hypotheses]:
    """Translate pieces in batches of similar length."""
    results: list[Hypotheses] = [[]] * len(pieces)
    lengths = [len(piece.ids) for piece in pieces]
    for indices in batches_of(lengths, plan.options.batch_size, plan.options.batch_tokens):
        batch = [pieces[index] for index in indices]
        for index, hypotheses in zip(indices, _search_batch(batch, plan), strict=True):
            results[index] = hypotheses
    return results


def _search_batch(pieces: Sequence[Piece], plan: Plan) -> list[Hypotheses]:
    """Translate a batch; with a `weight`, rank the hypotheses of beam search by what they leave out."""
    coverage, sources = plan.coverage, [piece.ids for piece in pieces]
    prefixes = [piece.prefix for piece in pieces]
    options = plan.search.for_batch([len(source) for source in sources], prefixes, _readings(pieces, plan))
    by_piece = plan.model.decoder.translate(sources, options)
    hypotheses = [hypothesis for candidates in by_piece for hypothesis in candidates]
    # the engine returns no hypothesis for logits that are not finite, and `generate()` a score that is not a number
    if not all(by_piece) or any(math.isnan(hypothesis.score) for hypothesis in hypotheses):
        raise ValueError("the model's logits are not finite: its weights are damaged, or overflow in this dtype")
    if coverage is None:
        return by_piece
    covered_pieces = [piece for piece, candidates in zip(pieces, by_piece, strict=True) for _ in candidates]
    try:
        coverages = cover_hypotheses(covered_pieces, hypotheses, plan, coverage)
    except Exception as error:  # the translation itself is complete
        warn(f"The coverage of {with_unit(len(pieces), 'translations')} was not found: {describe(error)}.")
        return [candidates[: plan.num_returned] for candidates in by_piece]
    for hypothesis, piece_coverage in zip(hypotheses, coverages, strict=True):
        hypothesis.covered = piece_coverage
    if not plan.weight:
        return by_piece
    return [_ranked(candidates, plan.weight, options.length_penalty)[: plan.num_returned] for candidates in by_piece]


def _readings(pieces: Sequence[Piece], plan: Plan) -> Readings | None:
    """Return what the search reads: for coverage, and the head that aligns what is restored or forced later."""
    readings = None if plan.coverage is None else plan.coverage.readings
    needs_head = plan.options.alignment or any(piece.terms or piece.keeps for piece in pieces)
    if needs_head and plan.head is not None:
        readings = (readings or Readings())._replace(head=plan.head)
    return readings


def cover_hypotheses(
    pieces: Sequence[Piece], hypotheses: Sequence[Hypothesis], plan: Plan, coverage: CoveragePlan
) -> "list[PieceCoverage]":
    """Return what a hypothesis of each piece covers."""
    from capsule_mt.coverage.methods import cover

    model, decode = plan.model, plan.tokenizer.decode
    return cover(
        pieces,
        hypotheses,
        coverage.method,
        model.decoder,
        coverage.calibration,
        model.end,
        coverage.verifier,
        decode,
    )


def _ranked(hypotheses: Hypotheses, weight: float, length_penalty: float) -> Hypotheses:
    """Sort by beam search's score, which divides by a power of the length, less the weighted omitted share."""

    def value(hypothesis: Hypothesis) -> float:
        normalized = hypothesis.score * max(len(hypothesis.ids), 1) ** (1 - length_penalty)
        return normalized - weight * hypothesis.covered.omitted_share

    return sorted(hypotheses, key=value, reverse=True)
