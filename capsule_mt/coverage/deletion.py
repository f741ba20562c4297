"""Coverage by deletion: how much less probable a translation is without each word, after Vamvas and Sennrich 2022."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from capsule_mt.coverage.curves import sigmoid
from capsule_mt.coverage.piece_coverage import PieceCoverage, piece_coverage
from capsule_mt.coverage.verified import without_tokens
from capsule_mt.engine.search import Decoder, Hypothesis, Ids, Readings
from capsule_mt.text.reading import Piece

DELETION_THRESHOLD = 0.5  # without a calibration, a word below it is left out
TOKENS_AT_ONCE = 4096  # source or target tokens of one batch


def coverages_by_deletion(
    pieces: Sequence[Piece],
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    decoder: Decoder,
    curves: Mapping[str, Any] | None,
) -> Iterator[PieceCoverage]:
    """Cover a word by p / (p + q): the probability of the translation with (p) and without it (q)."""
    for piece, hypothesis, text in zip(pieces, hypotheses, texts, strict=True):
        words = [word.tokens for word in piece.words if not word.is_exempt]
        complete, *without_word = _log_probs_without_each(piece.ids, hypothesis.ids, words, decoder)
        gains = iter([sum(complete) - sum(log_probs) for log_probs in without_word])
        covered = [1.0 if word.is_exempt else sigmoid(next(gains)) for word in piece.words]
        marked = [share < DELETION_THRESHOLD for share in covered]
        yield piece_coverage(piece, covered, marked, curves, text)


def deletion_gains_by_token(source: Ids, target: Ids, decoder: Decoder) -> list[list[float]]:
    """Return the nats that each source token adds to each token of a translation [T][S]."""
    tokens = [[position] for position in range(len(source))]
    complete, *without_token = _log_probs_without_each(source, target, tokens, decoder)
    return [[log_prob - log_probs[step] for log_probs in without_token] for step, log_prob in enumerate(complete)]


def _log_probs_without_each(
    source: Ids, target: Ids, words: Sequence[Sequence[int]], decoder: Decoder
) -> list[list[float]]:
    """Return the log-probabilities of a translation's tokens: given the complete source, then without each word."""
    sources = [source, *(without_tokens(source, tokens) for tokens in words)]
    batch_size, log_probs = max(1, TOKENS_AT_ONCE // max(len(source), len(target), 1)), list[list[float]]()
    for start in range(0, len(sources), batch_size):
        batch = sources[start : start + batch_size]
        log_probs += [forced.log_probs for forced in decoder.force(batch, [target] * len(batch), Readings())]
    return log_probs
