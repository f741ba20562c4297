"""Format scores over seeds."""

from collections.abc import Sequence
from statistics import fmean, stdev

UNSTABLE_RANGE = 10.0  # BLEU between the best and the worst seed, beyond which the mean describes no run


def mean_and_spread(values: Sequence[float], form: str = ".2f") -> str:
    """Return the mean and the standard deviation over seeds, or the only value.

    >>> mean_and_spread([1.0, 3.0]), mean_and_spread([1.0])
    ('2.00 ± 1.41', '1.00')
    """
    mean = format(fmean(values), form)
    return mean if len(values) == 1 else f"{mean} ± {format(stdev(values), form)}"


def values_if_unstable(values: Sequence[float], frame: str, form: str = ".2f") -> str:
    """Format all values if they span more than `UNSTABLE_RANGE`, else return an empty string.

    >>> values_if_unstable([99.03, 98.64, 0.85], " ({})")
    ' (99.03 / 98.64 / 0.85)'
    """
    if max(values) - min(values) <= UNSTABLE_RANGE:
        return ""
    return frame.format(" / ".join(format(value, form) for value in values))
