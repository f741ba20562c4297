"""The formats by name, and what the name of a file says about its format.

Each format is a `Format` row in the module of its reader. A command asks for names and suffixes at its start, so these
are also in `index.py`, and a reader is imported when its first file is read.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from capsule_mt.formats.index import ROWS
from capsule_mt.text.languages import is_known_language

if TYPE_CHECKING:
    from capsule_mt.formats.format import Format


class IndexEntry(NamedTuple):
    """A format in the index: the module that has its row, and those fields of the row that a command's start needs."""

    name: str
    module: str
    suffixes: tuple[str, ...]
    needs_column: bool = False
    is_binary: bool = False
    has_flags: bool = False


INDEX: Mapping[str, IndexEntry] = {
    name: IndexEntry(name, module, suffixes, **facts) for name, module, suffixes, facts in ROWS
}
BY_SUFFIX = {suffix: entry for entry in INDEX.values() for suffix in entry.suffixes}
TABLES = tuple(entry.name for entry in INDEX.values() if entry.needs_column)
FLAGGING = tuple(entry.name for entry in INDEX.values() if entry.has_flags)
# suffixes of files whose lines are sentences; a file may also be named after its language, as text.pt_BR
LINE_SUFFIXES = (".txt", ".text", ".src", ".trg", ".tgt", ".ref", ".hyp")
# programs of the Translate Toolkit that make a .po of a kind of file
CONVERTERS = {
    ".toml": "toml2po",
    ".ini": "ini2po",
    ".ftl": "fluent2po",
    ".php": "php2po",
    ".rc": "rc2po",
    ".adoc": "asciidoc2po",
    ".ics": "ical2po",
    ".sub": "sub2po",
}
# suffixes of files that are more than lines of text and that we cannot read, and what else to do with them
UNREADABLE_SUFFIXES = {
    **{suffix: f"`{program}` of the Translate Toolkit makes a .po of it" for suffix, program in CONVERTERS.items()},
    ".xcstrings": "let Xcode export the localization as .xliff",
    **dict.fromkeys((".json5", ".jsonc"), "write it as .json, without comments"),
    **dict.fromkeys((".jsonl", ".tmx", ".svg", ".rst", ".tex", ".ipynb", ".sbv", ".ttml"), ""),
    **dict.fromkeys((".tbx", ".dtd", ".catkeys"), ""),
}


def suffix_of(name: object) -> str:
    """Return the suffix of a name in lower case, without a final .gz."""
    stem, suffix = os.path.splitext(str(name).lower())
    return os.path.splitext(stem)[1] if suffix == ".gz" else suffix


def format_of(name: object) -> str | None:
    """Return the format of a file by its name, which may also end in .gz; `None` if we do not have a reader for it."""
    entry = BY_SUFFIX.get(suffix_of(name))
    return None if entry is None else entry.name


def has_plain_lines(name: object) -> bool:
    """Return whether a file has plain lines of text by its name, which may also end in .gz."""
    suffix = suffix_of(name)
    return suffix in ("", *LINE_SUFFIXES) or is_known_language(suffix[1:])


def format_named(name: str) -> "Format":
    """Return the row of a format."""
    module = import_module(f"capsule_mt.formats.{INDEX[name].module}")
    return next(row for row in rows_of(module) if row.name == name)


def rows_of(module: ModuleType) -> "list[Format]":
    """Return the rows of a module."""
    from capsule_mt.formats.format import Format  # late: with the readers

    return [value for value in vars(module).values() if isinstance(value, Format)]
