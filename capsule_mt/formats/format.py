"""A format: what is known about one kind of file. The module of a reader has such a row for each of its formats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from capsule_mt.formats.units import Parsed

XML_DECLARATION = rb"""<\?xml[^>]*encoding\s*=\s*["']([\w.:-]+)"""


class InputFile(NamedTuple):
    """What a reader gets.

    name: the file's name in messages.
    content: its bytes.
    text: its text, without a byte-order mark; empty for a binary format.
    encoding: the one that the caller, the file or its format names; `None` for UTF-8 if none does.
    language: the code of the target language.
    column: the column of a table to translate.
    """

    name: str
    content: bytes
    text: str
    encoding: str | None
    language: str | None
    column: str | None


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of file.

    name: what `--format` and `parse` call it.
    suffixes: of its files, the usual one first.
    title: what pages call its files.
    reader: returns the file that it has read.
    needs_column: a table, of which one column is translated.
    is_binary: the reader takes bytes, and a terminal cannot show the file.
    has_flags: a translation can be flagged for review.
    needs_line_feeds: its lines count, so a file whose lines end with CR alone is refused.
    has_language_tags: it states a language as "pt-BR"; other formats also as "pt_BR".
    keeps_mark: the byte-order mark of UTF-8, by which some programs recognise it, is written again.
    declaration: matches the encoding that a file declares.
    default_encoding: of a file that does not state one, if it is not UTF-8.
    refused_starts: how files begin that are refused, and why.
    translated, unchanged, limits, judges: for docs/formats.md: what is translated, what stays as it is, what is
        refused or lost, and the libraries with which tests read a translation.
    """

    name: str
    suffixes: tuple[str, ...]
    title: str
    reader: Callable[[InputFile], Parsed]
    needs_column: bool = False
    is_binary: bool = False
    has_flags: bool = False
    needs_line_feeds: bool = False
    has_language_tags: bool = False
    keeps_mark: bool = True
    declaration: bytes | None = None
    default_encoding: str | None = None
    refused_starts: Mapping[bytes, str] = field(default_factory=dict)
    translated: str
    unchanged: str
    limits: str = ""
    judges: str = ""
