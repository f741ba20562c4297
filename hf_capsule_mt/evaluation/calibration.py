"""Calibration: turn measured coverage into the probability that a word, or the share of a sentence, is translated.

A curve is a list of points (x, y) with rising x and y that never falls, read by linear interpolation.
"""

from collections.abc import Sequence

import numpy as np

Curve = list[list[float]]
WORD_BINS = 20
# how closely a sentence curve is fitted, and in how many steps
STEPS, STEP = 200, 0.5
SMALLEST_GAP = 1e-3
# the score of whole translations; above it there is room to rank them
WHOLE = 0.97


def rank_auc(values: np.ndarray, marked: np.ndarray) -> float:
    """Return how often a marked value is above another, the area under the ROC curve; equal values count half.

    Computed from the rank sum of Mann and Whitney. There must be marked and other values.
    """
    inside = int(marked.sum())
    return float((ranks(values)[marked].sum() - inside * (inside + 1) / 2) / (inside * (len(values) - inside)))


def ranks(values: np.ndarray) -> np.ndarray:
    """Rank values from 1, the smallest; equal values share their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    found: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return found


def fit_words(evidence: Sequence[float], is_translated: Sequence[bool]) -> Curve:
    """Return the curve from a word's evidence to the probability that it is translated: isotonic regression.

    Words of similar evidence form bins of about the same size. Pool adjacent bins until the share of translated words
    rises from each to the next.
    """
    values, labels = np.asarray(evidence, dtype=float), np.asarray(is_translated, dtype=float)
    if values.shape != labels.shape or len(values) < 2:
        raise ValueError(
            f"`evidence` and `is_translated` need at least 2 values each, got {len(values)}, {len(labels)}"
        )
    order = values.argsort(kind="stable")
    pooled: list[tuple[float, float, int]] = []  # mean evidence, share of translated words, words
    for part in np.array_split(order, min(WORD_BINS, len(order))):
        here = (float(values[part].mean()), float(labels[part].mean()), len(part))
        while pooled and (here[1] <= pooled[-1][1] or here[0] <= pooled[-1][0]):
            before, size = pooled.pop(), here[2]
            total = before[2] + size
            here = (
                (before[0] * before[2] + here[0] * size) / total,
                (before[1] * before[2] + here[1] * size) / total,
                total,
            )
        pooled.append(here)
    return [[round(x, 4), round(y, 4)] for x, y, _ in pooled]


def fit_sentences(
    means: Sequence[float], shares: Sequence[float], groups: Sequence[float], most: Sequence[float]
) -> Curve:
    """Return the curve from the mean probability of a sentence's words to its score.

    It has a point for each group of sentences, such as those with one omission, and is moved until the mean score of
    each group is the mean of its true `shares`. A regression would not do: it draws every score towards the middle.
    Whole translations have a mean score of 0.97 at most. A score is bounded by `most`, which the point of whole
    translations cannot make up for.
    """
    values, truth, of, bound = (np.asarray(numbers, dtype=float) for numbers in (means, shares, groups, most))
    bound = np.where(truth == 1, 1.0, bound)
    kinds = sorted(set(of.tolist()), key=lambda kind: float(truth[of == kind].mean()))
    targets = np.array([min(WHOLE, truth[of == kind].mean()) for kind in kinds])
    places = np.array([values[of == kind].mean() for kind in kinds])
    for _ in range(STEPS):
        curve = _curve(places, targets)
        scores = np.minimum(_read(curve, values), bound)
        reached = np.array([scores[of == kind].mean() for kind in kinds])
        places = np.clip(places + STEP * (reached - targets), SMALLEST_GAP, 1.0)
    return [[round(float(x), 4), round(float(y), 4)] for x, y in _curve(places, targets)]


def read_curve(curve: Curve, values: Sequence[float]) -> np.ndarray:
    """Return the values of a curve."""
    return _read(np.asarray(curve), np.asarray(values, dtype=float))


def _curve(places: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Put (0, 0) before the points and (1, 1) after them, and keep them in order."""
    gaps = SMALLEST_GAP * np.arange(1, len(places) + 1)
    rising = np.minimum(np.maximum.accumulate(places) + gaps, 1 - gaps[::-1])
    return np.stack([[0.0, *rising, 1.0], [0.0, *targets, 1.0]], axis=1)


def _read(curve: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.interp(values, curve[:, 0], curve[:, 1])
