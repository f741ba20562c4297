"""A score that several seeds have, in words."""

from collections.abc import Sequence
from statistics import fmean, stdev

WORLDS_APART = 10.0  # BLEU between two seeds of one model, which is more than methods differ by


def mean_and_spread(values: Sequence[float], form: str = ".2f") -> str:
    """The mean and the standard deviation over seeds, or the only value.

    >>> mean_and_spread([1.0, 3.0]), mean_and_spread([1.0])
    ('2.00 ± 1.41', '1.00')
    """
    mean = format(fmean(values), form)
    return mean if len(values) == 1 else f"{mean} ± {format(stdev(values), form)}"


def each_if_apart(values: Sequence[float], frame: str, form: str = ".2f") -> str:
    """All values, in the braces of `frame`, where they are worlds apart, so that their mean is of none; else nothing.

    >>> each_if_apart([99.03, 98.64, 0.85], " ({})")
    ' (99.03 / 98.64 / 0.85)'
    """
    if max(values) - min(values) <= WORLDS_APART:
        return ""
    return frame.format(" / ".join(format(value, form) for value in values))
