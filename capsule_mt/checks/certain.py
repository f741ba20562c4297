"""Certain faults: those for which a sentence is translated again.

The checks of brackets, of numbers in digits, and of doubled phrases give few false alarms; and so does a comparison of
quote marks, which is not a check. Before them goes a comparison that most translations pass: the rules take
tens of milliseconds to import.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from capsule_mt.checks.repetition import doubled_phrases
from capsule_mt.text.words import BRACKET_MARKS

if TYPE_CHECKING:
    from capsule_mt.checks.results import Check

_MARKS = re.escape("".join(sorted(BRACKET_MARKS)))
NUMBERS_AND_BRACKETS = re.compile(rf"\d+|[{_MARKS}]")
_HAS_NUMBER_OR_BRACKET = re.compile(rf"[\d{_MARKS}]")  # a fast check for most texts
QUOTE_MARKS = '"\u201c\u201d\u201e\u00ab\u00bb'
# what may become a quote mark: others of any script, signs of inches, dashes of dialogues; but not an apostrophe
MAY_QUOTE = (
    r"''|[\"`\xab\xbb\u2013-\u2015\u2018\u201a-\u201f\u2033\u2039\u203a\u3008-\u300f\uff02]"
    r"|(?<!\w)['\u2019-]|['\u2019](?!\w)"
)


def count_certain_faults(source: str, translation: str, languages: tuple[str | None, str | None]) -> int:
    """Return how many certain faults the translation of a sentence has; invented quotes are one."""
    return len(certain_faults(source, translation, languages)) + _has_invented_quotes(source, translation)


def certain_faults(source: str, translation: str, languages: tuple[str | None, str | None]) -> "Sequence[Check]":
    """Return the certain faults that are checks; none if digits and brackets are alike, and no phrase is doubled."""
    compared = [
        NUMBERS_AND_BRACKETS.findall(text) if _HAS_NUMBER_OR_BRACKET.search(text) else []
        for text in (source, translation)
    ]
    if compared[0] == compared[1] and not doubled_phrases(translation):
        return ()
    from capsule_mt.checks.rules import certain_checks_of  # late: see above

    return certain_checks_of(source, translation, *languages)


def _has_invented_quotes(source: str, translation: str) -> bool:
    """Return whether only the translation has quotes, or it alone has an odd number of straight ones."""
    if not _has_quotes(translation):
        return False
    num_quotes = _count_quotes(source)
    return num_quotes == 0 or (num_quotes % 2 == 0 and translation.count('"') % 2 == 1)


def _has_quotes(translation: str) -> bool:
    return any(mark in translation for mark in QUOTE_MARKS)


def _count_quotes(source: str) -> int:
    from capsule_mt.text.entities import without_entities  # late: few translations have quotes

    return len(re.findall(MAY_QUOTE, without_entities(source)))


def has_invented_mark(source: str, text: str) -> bool:
    """Return whether a text has a bracket that its source lacks, or double quotes and the source nothing like them."""
    if not BRACKET_MARKS.isdisjoint({*text} - {*source}):
        return True
    return _has_quotes(text) and _count_quotes(source) == 0
