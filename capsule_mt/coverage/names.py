"""The names of coverage's methods, and of the operating points of its marks."""

from collections.abc import Mapping
from typing import Any, Literal

CoveredBy = Literal["verified", "attention", "deletion"]
CoverageMethod = Literal["auto", "verified", "attention", "deletion"]
METHODS = ("auto", "verified", "attention", "deletion")
REMOVED = "guided"  # the method that read PAST and FUTURE, up to 0.3: calibrations still name it
Marks = Literal["sure", "likely", "all"]
MARKS: tuple[Marks, ...] = ("sure", "likely", "all")
DEFAULT_MARKS: Marks = "likely"


def head_of(calibration: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the layer and the head of "attention", which aligns words, if the calibration names them."""
    attention = calibration.get("attention")
    return None if attention is None else (int(attention["head"][0]), int(attention["head"][1]))
