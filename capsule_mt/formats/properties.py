"""Catalogs of Java (.properties): values with their escapes, in ISO-8859-1 or UTF-8.

Arguments such as {0} are filled in by `MessageFormat`, in which an apostrophe is written twice.
"""

import re

from capsule_mt.files.encodings import is_utf8
from capsule_mt.formats.catalog import Message, TextCatalog
from capsule_mt.formats.format import Format

# a comment, or a key, its separator and its value, which may go on on the next line
SEPARATOR = r"(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|(?=\n|\Z))"
ENTRY = re.compile(rf"[ \t\f]*(?:[#!][^\n]*|((?:[^\\\s=:]|\\(?s:.))*){SEPARATOR}((?:[^\\\n]|\\(?s:.))*))")
ESCAPE = re.compile(r"\\(\n[ \t\f]*|u+[0-9A-Fa-f]{4}|.)")
BAD_ESCAPE = re.compile(r"u(?!u*[0-9A-Fa-f]{4})")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
ARGUMENT = re.compile(r"\{\s*\d")
EXPRESSION = re.compile(r"\$\{[A-Za-z]")
LONE_APOSTROPHE = re.compile(r"(?<!')'(?!')")

FORMAT = Format(
    name="properties",
    suffixes=(".properties",),
    title="Catalogs of Java",
    reader=lambda file: PropertiesFile(file.text, file.name, file.language, file.content),
    needs_line_feeds=True,
    default_encoding="latin-1",  # before Java 9
    translated="values, with the doubled apostrophes of `MessageFormat`",
    unchanged="keys, comments, the encoding if it is UTF-8, Latin-1 or ASCII; the latter two get escapes",
    limits="branches such as `{0,choice,...}` stay in the source language",
    judges="javaproperties, translate-toolkit",
)


class PropertiesFile(TextCatalog):
    """A catalog of Java, written in UTF-8 if its `content` is and not ASCII, else in Latin-1 with escapes."""

    def __init__(self, text: str, name: str, language: str | None, content: bytes) -> None:
        self._ending = "\r\n" if "\r\n" in text else "\n"
        super().__init__(text.replace("\r\n", "\n"), name, language)
        # a file in ASCII may be read as ISO-8859-1, as before Java 9
        self._encoding = "utf-8" if is_utf8(content) and not content.isascii() else "latin-1"
        spans, offset = [], 0
        while offset < len(self._text):
            entry = ENTRY.match(self._text, offset)
            if entry is not None and entry[2]:
                spans.append((entry.start(2), entry.end(2)))
            line_end = self._text.find("\n", entry.end() if entry else offset)
            offset = line_end + 1 if line_end >= 0 else len(self._text)
        values = [self._unescaped(start, end) for start, end in spans]
        # MessageFormat would drop a lone apostrophe beside an argument, and refuse an expression such as
        # "${max == 1 ? 'a' : ''}" of Bean Validation: a file that has one is not for MessageFormat
        may_double = not any(
            EXPRESSION.search(value) or (ARGUMENT.search(value) and LONE_APOSTROPHE.search(value)) for value in values
        )
        for (start, end), value in zip(spans, values, strict=True):
            is_doubled = may_double and ("''" in value or ARGUMENT.search(value) is not None)
            self._add_value(start, end, value, is_doubled)

    def _add_value(self, start: int, end: int, value: str, is_doubled: bool) -> None:
        """Add the message of a value, in which each apostrophe may be doubled, as MessageFormat reads it."""
        replace = self._replace(start, end)
        message = Message(value.replace("''", "'") if is_doubled else value, has_key=True)

        def write(text: str, needs_review: bool) -> None:
            replace(text.replace("'", "''") if is_doubled else text, needs_review)

        self._add(message, f"line {self._line(start)}", write)

    def _unescaped(self, start: int, end: int) -> str:
        def character(match: "re.Match[str]") -> str:
            if match[1].startswith("\n"):
                return ""
            if BAD_ESCAPE.match(match[1]):
                self._refuse(start, "`\\u` must have four hexadecimal digits after it, or Java cannot read the file")
            is_code = len(match[1]) > 1
            return chr(int(match[1].lstrip("u"), 16)) if is_code else ESCAPES.get(match[1], match[1])

        return self._joined(ESCAPE.sub(character, self._text[start:end]), start)

    def _escaped(self, text: str) -> str:
        names = {character: f"\\{letter}" for letter, character in ESCAPES.items()} | {"\\": "\\\\"}
        written = "".join(names.get(character, character) for character in text)
        if written.startswith(" "):
            written = "\\" + written
        if self._encoding == "utf-8":
            return written
        codes = written.encode("utf-16-be")
        units = [int.from_bytes(codes[index : index + 2], "big") for index in range(0, len(codes), 2)]
        return "".join(chr(unit) if unit < 128 else f"\\u{unit:04X}" for unit in units)

    def _content(self) -> bytes:
        return super()._content().decode().replace("\n", self._ending).encode(self._encoding)
