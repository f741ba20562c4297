"""How well measures find labelled sentences, and marks labelled words: areas under ROC curves, with intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from capsule_mt import Coverage
from capsule_mt.coverage.calibration.fitting import rank_auc
from capsule_mt.coverage.calibration.omissions import WithOmissions
from hf_capsule_mt.evaluation.results import markdown_table


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


def auc_markdown(table: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Format {measure: {label: area}} as Markdown, the best measure of each label in bold."""
    labels = list(next(iter(table.values())))
    best = {label: max(row[label]["auc"] for row in table.values()) for label in labels}
    lines = []
    for measure, row in table.items():
        cells = [measure]
        for label in labels:
            number = f"{row[label]['auc']:.3f}"
            shown = f"**{number}**" if row[label]["auc"] == best[label] else number
            cells.append(f"{shown} ({row[label]['low']:.2f}-{row[label]['high']:.2f})")
        lines.append(cells)
    return markdown_table(["measure", *labels], lines) + "\n"


RECALL = 0.6


@dataclass(frozen=True)
class Judged:
    """Content words of a sentence: how much of each is `covered`, whether it is `omitted`; the sentence's score."""

    covered: tuple[float, ...]
    omitted: tuple[bool, ...]
    score: float

    def by_length(self, ratio: float) -> "Judged":
        """Return the same sentence judged by its length ratio alone."""
        return replace(self, covered=(ratio,) * len(self.covered), score=ratio)


def judge(example: WithOmissions, coverage: Coverage) -> Judged:
    """Pair the content words of an example with the words of its coverage, by their characters."""
    labels = example.labelled(coverage.words)
    covered, omitted = (tuple(word.covered for word, _ in labels), tuple(not is_covered for _, is_covered in labels))
    return Judged(covered, omitted, coverage.score)


def measures(judged: Sequence[Judged], samples: int) -> dict[str, dict[str, float] | None]:
    """Return each measure with its 95 % interval over sentences; None for one that the labels do not allow."""
    functions = {"word_auc": _word_auc, "precision": precision_at_recall, "sentence_auc": _sentence_auc}
    return {name: _with_interval(function, judged, samples) for name, function in functions.items()}


def _with_interval(
    function: Callable[[Sequence[Judged]], float | None], judged: Sequence[Judged], samples: int
) -> dict[str, float] | None:
    value, chance = function(judged), np.random.default_rng(1)
    if value is None:
        return None
    drawn = [function([judged[n] for n in chance.integers(len(judged), size=len(judged))]) for _ in range(samples)]
    low, high = np.quantile([area for area in drawn if area is not None] or [value], [0.025, 0.975])
    return {"value": value, "low": float(low), "high": float(high)}


def _words(judged: Sequence[Judged]) -> tuple[np.ndarray, np.ndarray]:
    covered = np.array([value for sentence in judged for value in sentence.covered])
    return covered, np.array([value for sentence in judged for value in sentence.omitted], dtype=bool)


def _word_auc(judged: Sequence[Judged]) -> float | None:
    covered, omitted = _words(judged)
    return _auc(covered, omitted)


def _sentence_auc(judged: Sequence[Judged]) -> float | None:
    return _auc(
        np.array([sentence.score for sentence in judged]), np.array([any(sentence.omitted) for sentence in judged])
    )


def _auc(covered: np.ndarray, omitted: np.ndarray) -> float | None:
    if not omitted.any() or omitted.all():
        return None
    return rank_auc(-covered, omitted)


def precision_at_recall(judged: Sequence[Judged]) -> float | None:
    """Return the precision of the least covered words, as many as find 60 % of the omitted ones; ties go together."""
    covered, omitted = _words(judged)
    if not omitted.any():
        return None
    values, indices = np.unique(covered, return_inverse=True)
    hits = np.cumsum(np.bincount(indices, omitted, minlength=len(values)))
    marked = np.cumsum(np.bincount(indices, minlength=len(values)))
    enough = int(np.argmax(hits >= RECALL * omitted.sum() - 1e-9))
    return float(hits[enough] / marked[enough])
