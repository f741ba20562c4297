"""How well a measure finds what people labelled: the area under the ROC curve, with its interval."""

from collections.abc import Sequence

import numpy as np

from capsule_mt.coverage.calibration.fitting import rank_auc


def area_under_curve(scores: Sequence[float], labels: Sequence[bool], samples: int = 1000) -> dict[str, float]:
    """Return how often a labelled sentence scores higher than an unlabelled one: 0.5 is chance.

    Equal scores count half. `low` and `high` are the 95 % bootstrap interval over sentences.
    """
    values, marked = np.asarray(scores, dtype=float), np.asarray(labels, dtype=bool)
    if values.shape != marked.shape or values.ndim != 1:
        raise ValueError(f"`scores` and `labels` must be as long as each other, got {values.shape}, {marked.shape}")
    if not marked.any() or marked.all():
        raise ValueError("`labels` must have both marked and unmarked sentences")
    if np.isnan(values).any():
        raise ValueError("`scores` must be numbers, got NaN")
    chance = np.random.default_rng(1)
    inside, outside = np.flatnonzero(marked), np.flatnonzero(~marked)
    drawn = []
    for _ in range(samples):  # the same number of each, drawn with replacement
        chosen = np.concatenate([chance.choice(inside, len(inside)), chance.choice(outside, len(outside))])
        drawn.append(rank_auc(values[chosen], marked[chosen]))
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    area = {"auc": rank_auc(values, marked), "low": low, "high": high}
    return area | {"positives": len(inside), "negatives": len(outside)}
