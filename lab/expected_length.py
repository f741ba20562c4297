"""How much shorter a translation is than the words of its source make expect."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from capsule_mt.calibration.fitting import rank_auc, ranks
from hf_capsule_mt.evaluation.results import markdown_table

POWERS = (0.3, 0.5, 0.7, 1.0)  # the forms of `shortness` among which labels choose


def shortness(expected: np.ndarray, translations: Sequence[str], power: float = 0.5) -> np.ndarray:
    """Return (expected - actual characters) / expected^power of each translation."""
    return (expected - [len(line) for line in translations]) / expected**power


def cross_validated(candidates: np.ndarray, labels: np.ndarray, baseline: np.ndarray, samples: int) -> dict[str, Any]:
    """Return the area under the ROC curve of a measure that is chosen on other sentences than it judges.

    In each of ten random foldings, each tenth is scored by the candidate [K, N] with the largest area on the rest. The
    result is the mean over the foldings, and its difference to a baseline [N], with 95 % bootstrap intervals.
    """
    candidates = np.stack([ranks(values) for values in candidates])  # of one scale
    sides, scores = (np.flatnonzero(labels), np.flatnonzero(~labels)), []
    for seed in range(10):
        chance, fold = np.random.default_rng(seed), np.empty(len(labels), dtype=int)
        for side in sides:
            fold[chance.permutation(side)] = np.arange(len(side)) % 10
        judged = np.empty(len(labels))
        for own in (fold == number for number in range(10)):
            best = np.argmax([rank_auc(values[~own], labels[~own]) for values in candidates])
            judged[own] = candidates[best, own]
        scores.append(judged)

    def areas(drawn: np.ndarray) -> tuple[float, float]:
        mean = float(np.mean([rank_auc(judged[drawn], labels[drawn]) for judged in scores]))
        return mean, mean - rank_auc(baseline[drawn], labels[drawn])

    chance = np.random.default_rng(1)
    draws = [areas(np.concatenate([chance.choice(side, len(side)) for side in sides])) for _ in range(samples)]
    low, high = np.quantile(draws, [0.025, 0.975], axis=0).tolist()
    rows = zip(areas(np.arange(len(labels))), low, high, strict=True)
    auc, difference = (dict(zip(("value", "low", "high"), row, strict=True)) for row in rows)
    foldings = [rank_auc(judged, labels) for judged in scores]
    return {"forms": len(candidates), "auc": auc, "difference": difference, "foldings": foldings}


def cross_validated_markdown(record: dict[str, Any]) -> str:
    """Format the results of `cross_validated` for a label, with the length ratio as baseline, as Markdown."""
    rows = []
    for name, found in record["measures"].items():
        areas = ["{value:.3f} ({low:.3f} to {high:.3f})".format(**found[kind]) for kind in ("auc", "difference")]
        foldings = f"{min(found['foldings']):.3f} to {max(found['foldings']):.3f}"
        rows.append([name, str(found["forms"]), *areas, foldings])
    header = [record["label"], "forms", "cross-validated", "above the length ratio", "over ten foldings"]
    return markdown_table(header, rows) + "\n"
