"""Fit curves from measured coverage to the probability that a word, or the share of a sentence, is translated.

A curve is a list of points (x, y), x increasing and y never decreasing, read by linear interpolation.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

Curve = list[list[float]]
WORD_BINS = 20
# the upper limit of a sentence curve's sigmoid; a linear term above it keeps complete sentences ranked
SIGMOID_LIMIT = 0.97
# the grid of a sentence curve's parameters, and the weight of single sentences' error beside that of groups
LOW_SLOPES, HIGH_SLOPES, OFFSETS = np.geomspace(0.25, 4, 13), np.geomspace(0.25, 8, 16), np.linspace(-3, 5, 33)
SENTENCE_WEIGHT = 0.3
SENTENCE_POINTS = np.array([0.0, *(1 / (1 + np.exp(-np.linspace(-7, 7, 36)))), 1.0])
# of the F score of marks: recall counts half as much as precision
BETA = 0.5


def rank_auc(values: np.ndarray, marked: np.ndarray) -> float:
    """Return the area under the ROC curve: how often a marked value is above an unmarked one; ties count half.

    It follows from the rank sum of Mann and Whitney. Both kinds of values must occur.
    """
    num_marked = int(marked.sum())
    excess = ranks(values)[marked].sum() - num_marked * (num_marked + 1) / 2
    return float(excess / (num_marked * (len(values) - num_marked)))


def ranks(values: np.ndarray) -> np.ndarray:
    """Rank values from 1, the smallest; equal values share their mean rank."""
    _, indices, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean_ranks: np.ndarray = np.cumsum(counts) - (counts - 1) / 2
    return mean_ranks[indices]


def fit_words(evidence: Sequence[float], is_translated: Sequence[bool]) -> Curve:
    """Return the curve from a word's evidence to the probability that it is translated: isotonic regression.

    Words with similar evidence form bins of about the same size. Adjacent bins are pooled until the share of
    translated words increases from each to the next.
    """
    values, labels = np.asarray(evidence, dtype=float), np.asarray(is_translated, dtype=float)
    if values.shape != labels.shape or len(values) < 2:
        raise ValueError(
            f"`evidence` and `is_translated` need at least 2 values each, got {len(values)}, {len(labels)}"
        )
    order = values.argsort(kind="stable")
    pooled: list[tuple[float, float, int]] = []  # mean evidence, share of translated words, number of words
    for indices in np.array_split(order, min(WORD_BINS, len(order))):
        x, y, size = float(values[indices].mean()), float(labels[indices].mean()), len(indices)
        while pooled and (y <= pooled[-1][1] or round(x, 4) <= round(pooled[-1][0], 4)):
            last_x, last_y, last_size = pooled.pop()
            total = last_size + size
            x, y = (last_x * last_size + x * size) / total, (last_y * last_size + y * size) / total
            size = total
        pooled.append((x, y, size))
    return [[round(x, 4), round(y, 4)] for x, y, _ in pooled]


def fit_threshold(probabilities: Sequence[float], is_translated: Sequence[bool]) -> float:
    """Return the probability of being translated below which marks have the highest F score (with `BETA`).

    It lies between two of the probabilities; if these are all the same, or no word is missing, it is 0.5.
    """
    values, missing = np.asarray(probabilities, dtype=float), ~np.asarray(is_translated, dtype=bool)
    distinct = np.unique(values)
    if not missing.any() or len(distinct) < 2:
        return 0.5
    scored = []
    for threshold in (distinct[1:] + distinct[:-1]) / 2:
        marked = values < threshold
        hits = (marked & missing).sum()
        scored.append(((1 + BETA**2) * hits / (marked.sum() + BETA**2 * missing.sum()), threshold))
    return round(float(max(scored)[1]), 4)


def fit_sentences(
    candidates: Mapping[float, Sequence[float]],
    shares: Sequence[float],
    groups: Sequence[float],
    bounds: Sequence[float],
) -> tuple[float, Curve]:
    """Return the name of the candidate that predicts the completeness of sentences best, and its curve to their score.

    The curve is f(x) = 0.97 sigmoid(a log(x) - b log(1 - x) + c) + 0.03 x, with a, b > 0: beta calibration (Kull
    et al. 2017) that never ties. A grid search minimises the squared error of the mean score of each group of
    sentences, plus 0.3 times the mean squared error of single sentences, which alone would draw every score towards
    the middle.

    Args:
        candidates: by name (a weight), the completeness of each sentence, such as the mean probability of its words.
        shares: the true share of translated words in each sentence.
        groups: the group of each sentence, such as its number of omissions.
        bounds: an upper bound of each sentence's score.
    """
    truth, group, bound = (np.asarray(numbers, dtype=float) for numbers in (shares, groups, bounds))
    members = [group == label for label in np.unique(group)]
    values = {name: np.asarray(sentence_values) for name, sentence_values in candidates.items()}

    def errors(name: float, low_slope: float, high_slope: float) -> np.ndarray:
        """Return the error of each of `OFFSETS`."""
        scores = _score(values[name], low_slope, high_slope, OFFSETS[:, None])  # [offsets, sentences]
        residuals = np.minimum(scores, bound) - truth
        # contiguous, so that numpy adds each row in the order in which it adds a vector
        means = [np.ascontiguousarray(residuals[:, rows]).mean(axis=1) for rows in members]
        group_error: np.ndarray = sum(mean**2 for mean in means)
        return group_error + SENTENCE_WEIGHT * (residuals**2).mean(axis=1)

    name, *slopes = min(product(candidates, LOW_SLOPES, HIGH_SLOPES), key=lambda slopes: errors(*slopes).min())
    best = (*slopes, OFFSETS[errors(name, *slopes).argmin()])
    curve = zip(SENTENCE_POINTS, _score(SENTENCE_POINTS, *best), strict=True)
    return name, [[round(float(x), 6), round(float(y), 6)] for x, y in curve]


def _score(values: np.ndarray, low_slope: float, high_slope: float, offset: float | np.ndarray) -> np.ndarray:
    inside = np.clip(values, 1e-9, 1 - 1e-9)
    logits = low_slope * np.log(inside) - high_slope * np.log(1 - inside) + offset
    scores: np.ndarray = SIGMOID_LIMIT / (1 + np.exp(-logits)) + (1 - SIGMOID_LIMIT) * values
    return scores


def read_curve(curve: Curve, values: Sequence[float]) -> np.ndarray:
    """Return the value of a curve at each of `values`."""
    x, y = np.asarray(curve).T
    return np.interp(np.asarray(values, dtype=float), x, y)
