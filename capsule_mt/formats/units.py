"""The interface of every format: units of text with their locations, and the file around them."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from capsule_mt.files.lines import coverage_record
from capsule_mt.text.keeping import placeholders_of
from capsule_mt.text.rules import PRINTF_FORMAT
from capsule_mt.text.segments import MAX_UNKNOWN_SHARE

# "%s" takes the next argument of the formatting call, so their order must be kept; "%1$s" and "%(name)s" may move
UNNUMBERED_PLACEHOLDER = rf"%{PRINTF_FORMAT}[dioufcxXegrsp@](?!\w*%)"
# arguments with texts in them, which are copied; catalogs with messages of ICU translate those but `choice` one by one
COPIED_BRANCHES = r"\{\s*\w+\s*,\s*(?:plural|select(?:ordinal)?|choice)\s*,"

BY_HAND = "translate it by hand"


class FormatError(ValueError):
    """A file that cannot be read or written; the message names the file and the fault."""


@contextmanager
def named_errors(name: str, format: str) -> Iterator[None]:
    """Turn errors of a parser, but not a lack of memory, into a `FormatError` that names the file."""
    try:
        yield
    except (FormatError, MemoryError):  # a lack of memory is not a fault of the file
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        shown = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        raise FormatError(f"{name}: not {format} that can be read and written ({shown})") from error


class Unit(NamedTuple):
    """A text that is translated as a whole, such as a paragraph.

    location: where it stands: "line 7", "cue 3".
    note: which part stays untranslated and why, or what else a person should know.
    number: the digits in the text that stand for the placeholder of a plural form. Where a translation does not have
        them exactly once, the file gets another form's, if any.
    """

    text: str
    location: str
    note: str = ""
    number: str = ""

    def facts(self, translation: str) -> dict[str, Any]:
        """Return what is known about a translation by its placeholders, as `problems_in` reads it."""
        facts: dict[str, Any] = {"has_other_placeholders": has_other_placeholders(self.text, translation)}
        is_lost = self.number and len(parts_around(self.number, translation)) != 2
        return {**facts, "lost_number": self.number} if is_lost else facts


class Note(NamedTuple):
    """The note of a unit, and where the unit stands."""

    location: str
    note: str


def notes_of(units: Sequence[Unit]) -> list[Note]:
    """Return each note of these units once, in their order; texts inside of placeholders have one, too."""
    notes = (Note(unit.location, unit.note or note_of_branches(unit.text)) for unit in units)
    return [note for note in dict.fromkeys(notes) if note.note]


def note_of_branches(text: str) -> str:
    """Return the note of a text with branches in a format whose reader copies them; empty for other texts."""
    match = re.search(COPIED_BRANCHES, text)
    reason = f"this format's reader does not translate the texts in it; {BY_HAND}"
    return f"{match[0]} ...}} stays as it is: {reason}" if match else ""


class Translated(NamedTuple):
    """The translation of a unit, `None` if it failed; it `needs_review` if there is something to check."""

    text: str | None
    needs_review: bool = False


def parts_around(number: str, text: str) -> list[str]:
    """Return the parts of a text before, between and after the occurrences of a number."""
    return re.split(rf"(?<!\d){number}(?!\d)", text)


def has_other_placeholders(text: str, translation: str) -> bool:
    """Return whether a translation has other placeholders than its text, or unnumbered ones in another order."""
    placeholders = placeholders_of(text)
    if placeholders != placeholders_of(translation):
        return True
    order, other_order = (re.findall(UNNUMBERED_PLACEHOLDER, string) for string in (text, translation))
    return placeholders.total() > 1 and order != other_order


def translated(unit: Unit, translation: Any) -> Translated:
    """Return the translation of a unit, which needs a review if there is anything to check in it.

    Args:
        translation: a `Translation`, or another object with its `text`.
    """
    from capsule_mt.coverage.problems import problems_in  # late: many formats have no flags

    record = facts_of(translation) | unit.facts(translation.text)
    return Translated(translation.text, bool(problems_in(unit.text, translation.text, record)))


def facts_of(translation: Any) -> dict[str, Any]:
    """Return what a `Translation` says about its quality, as `problems_in` reads it."""
    unknown, coverage = getattr(translation, "unknown", 0.0), getattr(translation, "coverage", None)
    facts = {"unknown": unknown} if unknown > MAX_UNKNOWN_SHARE else {}
    return facts if coverage is None else {**facts, "coverage": coverage_record(coverage)}


class Parsed(Protocol):
    """A file that has been read.

    units: the texts to translate. Markup in them is written as tags (`<g1>`), and fixed parts as placeholders (`{2}`).
    keep: those of `KEEP_KINDS` that the translations of the units must preserve.
    """

    @property
    def units(self) -> Sequence[Unit]: ...

    @property
    def keep(self) -> Sequence[str]: ...

    def write(self, translations: Sequence[Translated]) -> bytes:
        """Return the file with a translation for each unit; a unit that failed stays as it is."""
        ...
