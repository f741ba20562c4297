"""How well measures find the sentences that people have labelled: areas under ROC curves, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from hf_capsule_mt.evaluation.results import markdown_table


@dataclass(frozen=True)
class AreaUnderCurve:
    """The probability that a measure ranks a labelled sentence above another one: 0.5 is chance.

    low, high: the 95 % bootstrap interval over sentences.
    """

    auc: float
    low: float
    high: float
    positives: int
    negatives: int

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def area_under_curve(
    scores: Sequence[float], labels: Sequence[bool], samples: int = 1000, seed: int = 1
) -> AreaUnderCurve:
    """Return how often a labelled sentence scores higher than an unlabelled one; equal scores count half."""
    values, marked = np.asarray(scores, dtype=float), np.asarray(labels, dtype=bool)
    if values.shape != marked.shape or values.ndim != 1:
        raise ValueError(f"`scores` and `labels` must be as long as each other, got {values.shape}, {marked.shape}")
    if not marked.any() or marked.all():
        raise ValueError("`labels` must have both marked and unmarked sentences")
    if np.isnan(values).any():
        raise ValueError("`scores` must be numbers, got NaN")
    auc = _rank_auc(values, marked)
    chance = np.random.default_rng(seed)
    inside, outside = np.flatnonzero(marked), np.flatnonzero(~marked)
    drawn = []
    for _ in range(samples):  # the same number of each, drawn with replacement
        chosen = np.concatenate([chance.choice(inside, len(inside)), chance.choice(outside, len(outside))])
        drawn.append(_rank_auc(values[chosen], marked[chosen]))
    low, high = np.quantile(drawn, [0.025, 0.975]) if drawn else (auc, auc)
    return AreaUnderCurve(auc, float(low), float(high), len(inside), len(outside))


def _rank_auc(values: np.ndarray, marked: np.ndarray) -> float:
    """Compute the area from the rank sum of Mann and Whitney."""
    inside = int(marked.sum())
    return float((_ranks(values)[marked].sum() - inside * (inside + 1) / 2) / (inside * (len(values) - inside)))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Rank values from 1, the smallest; equal values share their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks


def ranks_together(*measures: Sequence[float]) -> list[float]:
    """Combine measures of different scales: return the sum of their ranks."""
    return [float(total) for total in np.sum([_ranks(np.asarray(values)) for values in measures], axis=0)]


def auc_table(
    measures: Mapping[str, Sequence[float]], labels: Mapping[str, Sequence[bool]], samples: int = 1000
) -> dict[str, dict[str, AreaUnderCurve]]:
    """Return the area of each measure for each label: {measure: {label: AreaUnderCurve}}."""
    return {
        measure: {label: area_under_curve(scores, marked, samples) for label, marked in labels.items()}
        for measure, scores in measures.items()
    }


def auc_markdown(table: dict[str, dict[str, AreaUnderCurve]]) -> str:
    """Format the table as Markdown, the best measure of each label in bold."""
    labels = list(next(iter(table.values())))
    best = {label: max(row[label].auc for row in table.values()) for label in labels}
    lines = []
    for measure, row in table.items():
        cells = [measure]
        for label in labels:
            number = f"{row[label].auc:.3f}"
            cells.append(
                f"{f'**{number}**' if row[label].auc == best[label] else number} "
                f"({row[label].low:.2f}-{row[label].high:.2f})"
            )
        lines.append(cells)
    return markdown_table(["measure", *labels], lines) + "\n"
