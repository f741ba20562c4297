"""A score that several seeds have, in words."""

from collections.abc import Sequence

WORLDS_APART = 10.0  # BLEU between two seeds of one model, one of which has hardly learnt anything


def each_if_apart(values: Sequence[float], frame: str, form: str = ".2f") -> str:
    """All values, in the braces of `frame`, where they are worlds apart, so that their mean is of none; else nothing.

    >>> each_if_apart([99.03, 98.64, 0.85], " ({})")
    ' (99.03 / 98.64 / 0.85)'
    """
    if max(values) - min(values) <= WORLDS_APART:
        return ""
    return frame.format(" / ".join(format(value, form) for value in values))
