"""The interval of a difference by the spread of all arms of a plan: more degrees of freedom than its own seeds have.

    blocks: score = arm + seed + rest, since arms of a seed start from the same model or see the same batches.
        variance = sum(rest^2) / ((arms - 1) (seeds - 1)), over the seeds that all arms have
    pooled: arms are trained apart, and only arms are subtracted.
        variance = sum((score - mean of its arm)^2) / (scores - arms)

Relations: blocks of two arms are the paired t-test, and pooling two arms is Student's test of two samples. Both assume
that arms vary alike, so both leave out an arm that varies more than `UNSTABLE` times as much as the median one.
"""

import math
from collections.abc import Mapping
from statistics import fmean, median, stdev
from typing import NamedTuple

from lab.over_seeds import student_quantile, student_two_sided

Scores = Mapping[str, Mapping[int, float]]  # {arm: {seed: score}}
UNSTABLE = 3.0
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean difference with its two-sided interval and p-value.

    half_90: half the width of the 90 % interval. Two one-sided tests at 5 % find a difference equivalent to 0 if this
        interval lies within the margin of equivalence.
    """

    mean: float
    low: float
    high: float
    p: float
    half_90: float = math.inf

    def is_within(self, margin: float) -> bool:
        return abs(self.mean) + self.half_90 <= margin


class Spread(NamedTuple):
    """The standard deviation of the scores of a plan.

    kind: "blocks" or "pooled".
    scores: those that count.
    """

    kind: str
    deviation: float
    degrees: int
    scores: Scores

    def __str__(self) -> str:
        return f"{self.kind}, SD {self.deviation:.2f} BLEU, {self.degrees} degrees of freedom"

    def difference(self, arm: str, baseline: str) -> Estimate | None:
        """Compare the means of two arms; None if one of them does not count."""
        if not {arm, baseline} <= self.scores.keys():
            return None
        ours, theirs = (list(self.scores[name].values()) for name in (arm, baseline))
        mean = fmean(ours) - fmean(theirs)
        error = self.deviation * math.sqrt(1 / len(ours) + 1 / len(theirs))
        if error == 0:
            return Estimate(mean, mean, mean, 1.0 if mean == 0 else 0.0, 0.0)
        half, half_90 = (error * student_quantile(p, self.degrees) for p in (1 - CONFIDENCE, 2 * (1 - CONFIDENCE)))
        return Estimate(mean, mean - half, mean + half, student_two_sided(mean / error, self.degrees), half_90)


def blocks(scores: Scores) -> Spread | None:
    """Return the residual spread with seeds as blocks; None with fewer than two arms or two complete seeds."""
    arms = {arm: by_seed for arm, by_seed in scores.items() if by_seed}
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in arms.values()))) if arms else []
    if min(len(arms), len(seeds)) < 2:
        return None
    complete = {arm: {seed: by_seed[seed] for seed in seeds} for arm, by_seed in arms.items()}
    seed_means = {seed: fmean(by_seed[seed] for by_seed in complete.values()) for seed in seeds}
    rest = {arm: [by_seed[seed] - seed_means[seed] for seed in seeds] for arm, by_seed in complete.items()}
    stable = _stable({arm: stdev(values) for arm, values in rest.items()})
    if len(stable) < len(arms):
        return blocks({arm: complete[arm] for arm in stable})
    squares = sum(stdev(values) ** 2 * (len(seeds) - 1) for values in rest.values())
    degrees = (len(arms) - 1) * (len(seeds) - 1)
    return Spread("blocks", math.sqrt(squares / degrees), degrees, complete)


def pooled(scores: Scores) -> Spread | None:
    """Return the spread within arms of at least two seeds; None with fewer than two such arms."""
    deviations = {arm: stdev(by_seed.values()) for arm, by_seed in scores.items() if len(by_seed) > 1}
    arms = {arm: scores[arm] for arm in _stable(deviations)}
    if len(arms) < 2:
        return None
    degrees = sum(len(by_seed) - 1 for by_seed in arms.values())
    squares = sum(deviations[arm] ** 2 * (len(by_seed) - 1) for arm, by_seed in arms.items())
    return Spread("pooled", math.sqrt(squares / degrees), degrees, arms)


def _stable(deviations: Mapping[str, float]) -> list[str]:
    """Return the arms that do not vary far more than the median arm."""
    usual = median(deviations.values()) if deviations else 0.0
    return [arm for arm, deviation in deviations.items() if deviation <= UNSTABLE * usual]
