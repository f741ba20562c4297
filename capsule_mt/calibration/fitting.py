"""Calibration: turn measured coverage into the probability that a word, or the share of a sentence, is translated.

A curve is a list of points (x, y) with rising x and y that never falls, read by linear interpolation.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

Curve = list[list[float]]
WORD_BINS = 20
# the most that the sigmoid of a sentence curve gives; above it there is room to rank
WHOLE = 0.97
# the grid of its parameters, and how much the error of single sentences counts beside the error of groups
LOW_SLOPES, HIGH_SLOPES, OFFSETS = np.geomspace(0.25, 4, 13), np.geomspace(0.25, 8, 16), np.linspace(-3, 5, 33)
OF_SENTENCES = 0.3
SENTENCE_POINTS = np.array([0.0, *(1 / (1 + np.exp(-np.linspace(-7, 7, 36)))), 1.0])
# a marked word is one that is missing: recall counts half of precision
BETA = 0.5


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


def fit_threshold(probabilities: Sequence[float], is_translated: Sequence[bool]) -> float:
    """Return the probability of being translated below which marks are best: their F score, with `BETA`, is largest.

    It lies between two probabilities, or is 0.5 where no word is missing.
    """
    values, missing = np.asarray(probabilities, dtype=float), ~np.asarray(is_translated, dtype=bool)
    kinds = np.unique(values)
    if not missing.any() or len(kinds) < 2:
        return 0.5
    found = []
    for threshold in (kinds[1:] + kinds[:-1]) / 2:
        marked = values < threshold
        hits = (marked & missing).sum()
        found.append(((1 + BETA**2) * hits / (marked.sum() + BETA**2 * missing.sum()), threshold))
    return round(float(max(found)[1]), 4)


def fit_sentences(
    candidates: Mapping[float, Sequence[float]],
    shares: Sequence[float],
    groups: Sequence[float],
    most: Sequence[float],
) -> tuple[float, Curve]:
    """Return which candidate tells best how complete sentences are, and the curve from it to their score.

    candidates: of each, how complete it finds every sentence, such as the mean probability of its words.

    It is f(x) = 0.97 sigmoid(a log(x) - b log(1 - x) + c) + 0.03 x, with a, b > 0: beta calibration (Kull et al. 2017)
    that never ties. Of a grid, it has the smallest sum of squares between the mean score of each group of sentences,
    such as those with one omission, and the mean of its true `shares`, plus 0.3 times the mean square over sentences:
    alone, a regression over sentences would draw every score towards the middle. A score is bounded by `most`.
    """
    truth, of, bound = (np.asarray(numbers, dtype=float) for numbers in (shares, groups, most))
    members, values = (
        [of == kind for kind in np.unique(of)],
        {name: np.asarray(one) for name, one in candidates.items()},
    )

    def error(name: float, *parameters: float) -> float:
        wrong = np.minimum(_score(values[name], *parameters), bound) - truth
        of_groups = sum(float(wrong[rows].mean()) ** 2 for rows in members)
        return of_groups + OF_SENTENCES * float((wrong**2).mean())

    name, *best = min(product(candidates, LOW_SLOPES, HIGH_SLOPES, OFFSETS), key=lambda found: error(*found))
    curve = zip(SENTENCE_POINTS, _score(SENTENCE_POINTS, *best), strict=True)
    return name, [[round(float(x), 6), round(float(y), 6)] for x, y in curve]


def _score(values: np.ndarray, low_slope: float, high_slope: float, offset: float) -> np.ndarray:
    inside = np.clip(values, 1e-9, 1 - 1e-9)
    logits = low_slope * np.log(inside) - high_slope * np.log(1 - inside) + offset
    scores: np.ndarray = WHOLE / (1 + np.exp(-logits)) + (1 - WHOLE) * values
    return scores


def read_curve(curve: Curve, values: Sequence[float]) -> np.ndarray:
    """Return the values of a curve."""
    places, found = np.asarray(curve).T
    return np.interp(np.asarray(values, dtype=float), places, found)
