"""How complete a translation is, by three numbers: the words that are covered, its length, and its largest gap.

    completeness = 1 - (1 - covered + w short + 0.25 gap) / (1 + w + 0.25)

covered: the mean share of the words. short: the share of the expected length that the translation lacks; its weight w
belongs to a model. gap: how little attention the least attended words in a row receive.
"""

from collections.abc import Sequence

from capsule_mt.coverage.curves import evidence_of

GAP_WORDS, SMALLEST_DOUBT, LARGEST_DOUBT = 3, -4.0, 6.0
# chosen with the form on own translations of dev text with words cut out, of both released models and of a student
GAP_WEIGHT = 0.25


def gap_of(attention: Sequence[float]) -> float:
    """Return between 0 and 1 how little attention the three words in a row that have the least receive."""
    doubts = [min(max(-evidence_of(share), SMALLEST_DOUBT), LARGEST_DOUBT) for share in attention]
    number = min(GAP_WORDS, len(doubts))
    if not number:
        return 0.0
    most = max(sum(doubts[start : start + number]) / number for start in range(len(doubts) - number + 1))
    return (most - SMALLEST_DOUBT) / (LARGEST_DOUBT - SMALLEST_DOUBT)


def completeness(covered: float, short: float, gap: float, weight: float) -> float:
    """Return between 0 and 1 how complete a translation is; `weight` is that of `short`."""
    return 1 - (1 - covered + weight * short + GAP_WEIGHT * gap) / (1 + weight + GAP_WEIGHT)
