"""The numbers of a judge: probabilities of words, fitted to what people marked, and thresholds of reasons.

`capsule_mt.coverage.calibration.judging` fits them. The file beside this one says on which data.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from capsule_mt.judge.witness import PairEvidence, WordEvidence

FILE = os.path.join(os.path.dirname(__file__), "e5_small.json")
MAX_DEVIATIONS = 6.0  # of evidence from its mean: what is further away counts as this
# Words in a row whose mean is a line's statistic. Of 1 to 5, this one catches most lost clauses and omissions at the
# same share of clean pairs.
WINDOW = 5


class WordOdds(NamedTuple):
    """A logistic regression of a word's evidence, and the Platt scaling that makes its sum a probability.

    means, deviations: of each kind of evidence, over the words it was fitted to.
    shares: from a probability on, the share of such marks that people confirm: the mean probability of a band, where
        that held within .05 on held-out text.
    """

    means: tuple[float, ...]
    deviations: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    slope: float
    intercept: float
    shares: tuple[tuple[float, float], ...] = ()

    def share(self, probabilities: Sequence[float]) -> float | None:
        """Return how often such marks are right, by the least sure of them; `None` where `shares` do not say it."""
        least = min(probabilities, default=0.0)
        return next((share for start, share in reversed(self.shares) if least >= start), None)

    def probability(self, evidence: WordEvidence) -> float:
        score = self.bias
        rows = zip(evidence.distances, self.means, self.deviations, self.weights, strict=True)
        for value, mean, deviation, weight in rows:
            deviations = (value - mean) / deviation
            score += weight * max(-MAX_DEVIATIONS, min(deviations, MAX_DEVIATIONS))
        return 1 / (1 + math.exp(-(self.slope * score + self.intercept)))

    def probabilities(self, words: Iterable[WordEvidence]) -> list[float]:
        return [self.probability(word) for word in words]


class JudgeNumbers(NamedTuple):
    """What a file of numbers says.

    encoder: the name of the encoder that they were fitted for. layers: that of words, and that of texts.
    probes: pairs of texts with the cosine that this encoder gives them.
    left_out, made_up: the odds of words of the source, and of the translation.
    thresholds: of each reason's statistic, by its name.
    """

    encoder: str
    layers: tuple[int, int]
    probes: tuple[tuple[str, str, float], ...]
    left_out: WordOdds
    made_up: WordOdds
    thresholds: Mapping[str, float]


def read_numbers(file: str = FILE) -> JudgeNumbers:
    with open(file, encoding="utf-8") as stream:
        values = json.load(stream)
    return JudgeNumbers(
        encoder=values["encoder"],
        layers=tuple(values["layers"]),
        probes=tuple((first, second, cosine) for first, second, cosine in values["probes"]),
        left_out=read_odds(values["words"]["left out"]),
        made_up=read_odds(values["words"]["made up"]),
        thresholds={name: reason["threshold"] for name, reason in values["reasons"].items()},
    )


def read_odds(values: Mapping[str, Any]) -> WordOdds:
    means, deviations, weights = (tuple(values[name]) for name in ("means", "deviations", "weights"))
    shares = tuple((start, share) for start, share in values.get("shares", ()))
    return WordOdds(means, deviations, weights, values["bias"], values["slope"], values["intercept"], shares)


def statistics_of(evidence: PairEvidence, left_out: Sequence[float], made_up: Sequence[float]) -> dict[str, float]:
    """Return the statistic of each reason that has a threshold: the larger, the worse.

    left_out, made_up: the probabilities of the words of the source, and of the translation.
    """
    return {
        # of thirty statistics, the one that catches most translations of other texts; the cosine catches fewer
        "another text": _mean(left_out) + _mean(made_up),
        "left out": largest_window(left_out),
        "made up": largest_window(made_up),
        "order": evidence.disorder,
    }


def _mean(probabilities: Sequence[float]) -> float:
    return sum(probabilities) / len(probabilities) if probabilities else 0.0


def largest_window(probabilities: Sequence[float], size: int = WINDOW) -> float:
    """Return the largest mean of `size` numbers in a row; of fewer numbers, the sum over `size`."""
    starts = range(max(1, len(probabilities) - size + 1))
    return max(sum(probabilities[start : start + size]) / size for start in starts)
