"""Judge marks of words against known omissions: areas under ROC curves, precision, calibration, with intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hf_capsule_mt.evaluation.omissions import WithOmissions
from hf_capsule_mt.pipelines import Coverage
from lab.area_under_curve import area_under_curve

RECALL = 0.6
CALIBRATION_BINS = 10


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
    found = [
        (word.covered, is_omitted)
        for (start, end), is_omitted in example.is_omitted.items()
        for word in coverage.words
        if word.start < end and start < word.end
    ]
    return Judged(tuple(c for c, _ in found), tuple(o for _, o in found), coverage.score)


def measures(judged: Sequence[Judged], samples: int, calibrated: bool = True) -> dict[str, dict[str, float] | None]:
    """Return each measure with its 95 % interval over sentences; None for one that the labels do not allow."""
    calibration = _calibration_error if calibrated else _none
    functions = {
        "word_auc": _word_auc,
        "precision": precision_at_recall,
        "sentence_auc": _sentence_auc,
        "calibration_error": calibration,
    }
    return {name: _with_interval(function, judged, samples) for name, function in functions.items()}


def _with_interval(
    function: Callable[[Sequence[Judged]], float | None], judged: Sequence[Judged], samples: int
) -> dict[str, float] | None:
    value, chance = function(judged), np.random.default_rng(1)
    if value is None:
        return None
    drawn = [function([judged[n] for n in chance.integers(len(judged), size=len(judged))]) for _ in range(samples)]
    low, high = np.quantile([one for one in drawn if one is not None] or [value], [0.025, 0.975])
    return {"value": value, "low": float(low), "high": float(high)}


def _words(judged: Sequence[Judged]) -> tuple[np.ndarray, np.ndarray]:
    covered = np.array([value for one in judged for value in one.covered])
    return covered, np.array([value for one in judged for value in one.omitted], dtype=bool)


def _word_auc(judged: Sequence[Judged]) -> float | None:
    covered, omitted = _words(judged)
    return _auc(covered, omitted)


def _sentence_auc(judged: Sequence[Judged]) -> float | None:
    return _auc(np.array([one.score for one in judged]), np.array([any(one.omitted) for one in judged]))


def _auc(covered: np.ndarray, omitted: np.ndarray) -> float | None:
    if not omitted.any() or omitted.all():
        return None
    return area_under_curve((-covered).tolist(), omitted.tolist(), samples=0).auc


def precision_at_recall(judged: Sequence[Judged]) -> float | None:
    """Return the precision of the least covered words, as many as find 60 % of the omitted ones; ties go together."""
    covered, omitted = _words(judged)
    if not omitted.any():
        return None
    values, places = np.unique(covered, return_inverse=True)
    hits = np.cumsum(np.bincount(places, omitted, minlength=len(values)))
    marked = np.cumsum(np.bincount(places, minlength=len(values)))
    enough = int(np.argmax(hits >= RECALL * omitted.sum() - 1e-9))
    return float(hits[enough] / marked[enough])


def _calibration_error(judged: Sequence[Judged]) -> float | None:
    """Return the mean distance between probability and truth over ten bins, weighted by their words (Naeini 2015)."""
    covered, omitted = _words(judged)
    if not len(covered):
        return None
    bins = np.clip((covered * CALIBRATION_BINS).astype(int), 0, CALIBRATION_BINS - 1)
    gaps = np.bincount(bins, covered - ~omitted, minlength=CALIBRATION_BINS)
    return float(np.abs(gaps).sum() / len(covered))


def _none(judged: Sequence[Judged]) -> None:
    return None
