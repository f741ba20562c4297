"""How complete a translation is, by its covered words, its length, and its largest gap.

    completeness = 1 - (1 - covered + w short + 0.25 gap) / (1 + w + 0.25)

covered: the mean share of the words. short: the share of the expected length that the translation lacks, with a weight
w that is fitted for each model. gap: the mean doubt of the least attended words in a row, scaled to 0 ... 1.
"""

from collections.abc import Sequence

from capsule_mt.coverage.curves import evidence_of

GAP_WORDS, SMALLEST_DOUBT, LARGEST_DOUBT = 3, -4.0, 6.0
# chosen, with the formula, on translations of dev text by the released models and a student, with words cut out
GAP_WEIGHT = 0.25


def gap_of(attention: Sequence[float]) -> float:
    """Return the mean doubt of the least attended words in a row, at most three, scaled to 0 ... 1."""
    doubts = [min(max(-evidence_of(share), SMALLEST_DOUBT), LARGEST_DOUBT) for share in attention]
    length = min(GAP_WORDS, len(doubts))
    if not length:
        return 0.0
    max_mean = max(sum(doubts[start : start + length]) / length for start in range(len(doubts) - length + 1))
    return (max_mean - SMALLEST_DOUBT) / (LARGEST_DOUBT - SMALLEST_DOUBT)


def completeness(covered: float, short: float, gap: float, weight: float) -> float:
    """Return the completeness, 0 ... 1; `weight` is the w of `short`."""
    return 1 - (1 - covered + weight * short + GAP_WEIGHT * gap) / (1 + weight + GAP_WEIGHT)
