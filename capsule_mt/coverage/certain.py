"""Certain faults: those for which a sentence is translated again.

Nearly always right are the checks of brackets, of numbers in digits, and of doubled phrases. Before them goes a
comparison that most translations pass: the checks' module takes 20 ms to import.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from capsule_mt.coverage.repetition import doubled_phrases

if TYPE_CHECKING:
    from capsule_mt.coverage.results import Check
from capsule_mt.text.words import BRACKET_MARKS

_MARKS = re.escape("".join(sorted(BRACKET_MARKS)))
NUMBERS_AND_BRACKETS = re.compile(rf"\d+|[{_MARKS}]")
_IN_THEM = re.compile(rf"[\d{_MARKS}]")  # a fast check for most texts


def certain_faults(source: str, translation: str, languages: tuple[str | None, str | None]) -> "Sequence[Check]":
    """Return the certain faults of the translation of a sentence."""
    compared = [NUMBERS_AND_BRACKETS.findall(text) if _IN_THEM.search(text) else [] for text in (source, translation)]
    if compared[0] == compared[1] and not doubled_phrases(translation):
        return ()
    from capsule_mt.coverage.checks import certain_checks_of  # late: see above

    return certain_checks_of(source, translation, *languages)


def has_invented_bracket(source: str, text: str) -> bool:
    """Return whether a text has a bracket that the source does not have at all."""
    return not BRACKET_MARKS.isdisjoint({*text} - {*source})
