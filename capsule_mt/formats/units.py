"""The interface of every format: units of text with their locations, and the file around them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class FormatError(ValueError):
    """A file that cannot be read or written; the message names the file and the fault."""


class Unit(NamedTuple):
    """A text that is translated as a whole, such as a paragraph; `location` is where it stands: "line 7", "cue 3"."""

    text: str
    location: str


class Translated(NamedTuple):
    """The translation of a unit, `None` if it failed; it `needs_review` if something seems to be left out."""

    text: str | None
    needs_review: bool = False


class Parsed(Protocol):
    """A file that has been read.

    units: the texts to translate. Markup in them is written as tags (`<g1>`), and fixed parts as placeholders (`{2}`).
    keep: the kinds of `KEEP_KINDS` that their translations must preserve.
    """

    @property
    def units(self) -> Sequence[Unit]: ...

    @property
    def keep(self) -> Sequence[str]: ...

    def write(self, translations: Sequence[Translated]) -> bytes:
        """Return the file with a translation for each unit; a unit that failed stays as it is."""
        ...
