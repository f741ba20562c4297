"""The names of coverage's methods, and of the operating points of its marks."""

from typing import Literal

CoveredBy = Literal["verified", "attention", "guided", "deletion"]
CoverageMethod = Literal["auto", "verified", "attention", "guided", "deletion"]
METHODS = ("auto", "verified", "attention", "guided", "deletion")
Marks = Literal["sure", "likely", "all"]
MARKS: tuple[Marks, ...] = ("sure", "likely", "all")
DEFAULT_MARKS: Marks = "likely"
