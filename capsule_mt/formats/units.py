"""What every format reads and writes: units of text with their places, and the file around them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class FormatError(ValueError):
    """A file that cannot be read, or not be written; the message names it and what is wrong."""


class Unit(NamedTuple):
    """A text that is translated as a whole, such as a paragraph; `place` says where it is: "line 7", "cue 3"."""

    text: str
    place: str


class Translated(NamedTuple):
    """The translation of a unit; `None` where it failed. It `needs_review` where something seems to be left out."""

    text: str | None
    needs_review: bool = False


class Parsed(Protocol):
    """A file that has been read.

    units: what is to be translated. Markup in them is written as tags `<g1>`, what stays as it is as `{2}`.
    keep: the kinds of `KEPT` that their translations must keep.
    """

    @property
    def units(self) -> Sequence[Unit]: ...

    @property
    def keep(self) -> Sequence[str]: ...

    def write(self, translations: Sequence[Translated]) -> bytes:
        """Return the file with a translation for each unit; a unit that failed stays as it is."""
        ...
