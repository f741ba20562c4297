"""Catalogs in YAML, as Rails has them: mappings and lists of texts.

Read are block mappings and sequences, scalars of all styles, also over several lines, lists of texts in brackets,
anchors, aliases and comments. Anything else (most tags, filled mappings in braces, complex keys, several documents) is
an error that names its line.
"""

import re
from itertools import pairwise
from typing import NamedTuple

from capsule_mt.formats.catalog import SPACED_BAR, Choices, Edit, Message, Plural, TextCatalog, is_language_code
from capsule_mt.formats.format import Format
from capsule_mt.formats.plurals import CATEGORIES
from capsule_mt.text.languages import is_other_language

STRFTIME = re.compile(r"%[-0^#_]?[A-Za-z]")  # a part of a date, or of a number's format
DOUBLE_QUOTED, SINGLE_QUOTED = r'"(?:[^"\\]|\\(?s:.))*"', r"'(?:[^']|'')*'"
QUOTED_KEY = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\n]|'')*'"
QUOTED = re.compile(f"{DOUBLE_QUOTED}|{SINGLE_QUOTED}")
MAPPING_KEY = re.compile(
    rf"({QUOTED_KEY}|<<|(?:[^ \t\n\-?:,\[\]{{}}#&*!|>'\"%@`]|[-?:](?=[^ \t\n]))"
    r"(?:[^ \t\n:#]|:(?=[^ \t\n])|(?<=[^ \t\n])#|[ ]+(?=[^ \t\n:#]))*)[ ]*:(?=[ \n]|\Z)"
)
DASH = re.compile(r"-(?: +|(?=\n|\Z))")
BLANK = re.compile(r"[ \t]*(?:(?:(?<=[ \t\n])|\A)#[^\n]*)?(?:\n|\Z)")  # the rest of a line without content
PROPERTY = re.compile(r"&\S+[ \t]*|![ \t]+(?=[\"'])")  # an anchor, or the tag that old Ruby writes before quotes
ALIAS = re.compile(r"\*\S+")
BLOCK = re.compile(r"[|>][+-]?")
PLAIN = re.compile(r"(?:[^ \t\n:#]|:(?=[^ \t\n])|(?<=[^ \t\n])#|[ \t]+(?=[^ \t\n#]))+")  # other spaces are text
PLAIN_ITEM = r"[^\s,\[\]{}#&*!|>'\"%@`][^,\[\]{}\n#]*"
ITEM = re.compile(rf"[ \n]*(?:({DOUBLE_QUOTED}|{SINGLE_QUOTED})[ \n]*|({PLAIN_ITEM})(?:\n[ \n]*)?)(?:,|(?=\]))")
CLOSING_BRACKET = re.compile(r"[ \n]*\]")
# numbers, dates, truth values, nothing, and symbols of Ruby are not texts
NOT_TEXT = re.compile(
    r"(?i)~|null|true|false|yes|no|on|off|:\w+|[-+]?(?:[.\d][\d_.,:TZ+-]*(?:e[-+]?\d+)?|0x[\da-f_]+|\.inf|\.nan)"
    r"|\d{4}-\d\d?-\d\d?[ \t]+[\d:.]+(?:[ \t]*(?:Z|[-+][\d:]+))?"
)
SAFE_PLAIN = re.compile(r"[^\W\d_](?:[^\s:#]|:(?=\S)|(?<=\S)#|[ ]+(?=[^\s#]))*")
BREAK = r"(?:(?<![ \t])[ \t]+)?\n[ \t]*((?:\n[ \t]*)*)"  # a space; each further line break is one
ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U000[0-9A-Fa-f]{5}|(?s:.))([ \t]*)" + f"|{BREAK}")
ESCAPES = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
    '"': '"',
    "\\": "\\",
    "/": "/",
    " ": " ",
    "\n": "",
}
WRITTEN = {character: f"\\{letter}" for letter, character in ESCAPES.items() if letter not in "_ /\n"}

FORMAT = Format(
    name="yaml",
    suffixes=(".yml", ".yaml"),
    title="Catalogs of Rails",
    reader=lambda file: YamlCatalog(file.text, file.name, file.language),
    needs_line_feeds=True,
    translated="texts, lists, the plural forms of the target language; the root, which becomes the target language",
    unchanged="other keys, numbers, symbols, formats of dates, comments",
    limits="tags, filled mappings in braces, complex keys and several documents in one file are refused",
    judges="PyYAML",
)


class Scalar(NamedTuple):
    """A text with its key and span. Its `style` is one of " ' | > and "plain", or "item" in brackets."""

    key: str
    key_start: int
    start: int
    end: int
    text: str
    style: str


class Mapping(NamedTuple):
    """A mapping that is read: the column of its keys, its texts, and the keys of everything else."""

    column: int
    scalars: list[Scalar]
    other_keys: list[str]


class YamlCatalog(TextCatalog):
    """A catalog in YAML."""

    def __init__(self, text: str, name: str, language: str | None) -> None:
        self._ending = "\r\n" if "\r\n" in text else "\n"
        super().__init__(text.replace("\r\n", "\n"), name, language)
        self._root_keys: list[tuple[int, int]] = []
        self._scalars: list[Scalar] = []
        self._mappings: list[Mapping] = []
        self._group_of: dict[int, list[Scalar]] = {}  # plurals by the starts of their texts
        offset = 0
        while offset < len(self._text):
            offset = self._read_line(offset)
        self._close(-1)
        for scalar in self._scalars:
            group = self._group_of.get(scalar.start)
            if group is None:
                self._add_scalar(scalar)
            elif scalar is group[0]:
                self._add_plural(group)

    def _add_scalar(self, scalar: Scalar) -> None:
        def write(text: str, _: bool) -> None:
            self._edits.append(Edit(scalar.start, scalar.end, self._styled(text, scalar)))

        message: Message | Choices = Message(scalar.text, STRFTIME)
        if SPACED_BAR.search(scalar.text):
            message = Choices(scalar.text, SPACED_BAR, lambda text: Message(text, STRFTIME))
        self._add(message, f"line {self._line(scalar.start)}", write)

    def _add_plural(self, group: list[Scalar]) -> None:
        assert self._rule is not None
        sources = {scalar.key: Message(scalar.text, STRFTIME) for scalar in group}
        forms = self._rule.forms_for(sources)
        start, end = group[0].key_start, group[-1].end
        separator = "\n" + " " * self._column(start)

        def write(texts: dict[str, str], _: bool) -> None:
            lines = [f"{name}: {self._styled(text, group[-1])}" for name, text in texts.items()]
            self._edits.append(Edit(start, end, separator.join(lines)))

        self._add(Plural(sources, forms), f"line {self._line(start)}", write)

    def _state_language(self) -> None:
        """Rename the root of a catalog of Rails, which is its language."""
        if len(self._root_keys) != 1 or not self._language:
            return
        start, end = self._root_keys[0]
        key = self._text[start:end]
        code = key.strip("\"'")
        if is_language_code(code) and is_other_language(code, self._language):
            self._edits.append(Edit(start, end, key.replace(code, self._language)))

    def _content(self) -> bytes:
        return super()._content().decode().replace("\n", self._ending).encode()

    def _styled(self, text: str, scalar: Scalar) -> str:
        """Return a text in the style of the scalar that it replaces, or else in double quotes."""
        if scalar.style in ("|", ">"):
            extra_breaks = scalar.style == ">"  # n + 1 of them are read as n
            indent = " " * self._column(scalar.start)
            return re.sub("\n+", lambda breaks: "\n" * (len(breaks[0]) + extra_breaks) + indent, text)
        is_plain = SAFE_PLAIN.fullmatch(text) and not NOT_TEXT.fullmatch(text)
        if is_plain and (scalar.style == "plain" or (scalar.style == "item" and not re.search(r"[,\[\]{}]", text))):
            return text
        if scalar.style == "'" and "\n" not in text:
            return "'" + text.replace("'", "''") + "'"
        return '"' + "".join(WRITTEN.get(character, character) for character in text) + '"'

    def _column(self, offset: int) -> int:
        return offset - (self._text.rfind("\n", 0, offset) + 1)

    def _read_line(self, offset: int) -> int:
        """Read the line at an offset, and those into which its value goes on; return the offset after them."""
        start = offset
        while self._text.startswith(" ", start):
            start += 1
        if (end := self._end_of_line(start)) is not None:
            return end
        if self._text.startswith(("---", "...", "%"), offset):
            is_start = self._text.startswith("---", offset) and not self._scalars and not self._mappings
            end = self._end_of_line(offset + 3) if is_start else None
            if end is None:
                self._refuse(offset, "directives and several documents in a file are not read")
            return end
        if self._text.startswith("\t", start):
            self._refuse(offset, "YAML is indented by spaces, not by tabs")
        column = parent = start - offset
        while dash := DASH.match(self._text, start):
            parent = start - offset
            self._close(parent)
            start = dash.end()
            column = start - offset
            if (end := self._end_of_line(start)) is not None:
                return end
        key = MAPPING_KEY.match(self._text, start)
        if key is None:
            if parent == column:
                self._refuse(offset, f"`key: text` is expected, got {self._text[start : start + 20]!r}")
            return self._read_value(Scalar("", start, start, start, "", "plain"), parent)
        self._close(column)
        if not self._mappings or self._mappings[-1].column < column:
            self._mappings.append(Mapping(column, [], []))
        if column == 0:
            self._root_keys.append(key.span(1))
        return self._read_value(Scalar(key[1].strip("\"'"), start, key.end(), key.end(), "", "plain"), column)

    def _read_value(self, scalar: Scalar, parent: int) -> int:
        """Read the value of a key or a list's item, which is deeper than the column of its parent."""
        start = self._skip(scalar.start)
        if prefix := PROPERTY.match(self._text, start):
            start = prefix.end()
        sign = self._text[start : start + 1]
        alias = ALIAS.match(self._text, start)
        mapping = self._mappings[-1] if self._mappings and scalar.key else None
        if mapping is not None:
            mapping.other_keys.append(scalar.key)
        if (end := self._end_of_line(start)) is not None:
            return end
        if alias or self._text.startswith(("{}", "[]"), start):
            return self._required_end(alias.end() if alias else start + 2)
        if sign == "[":
            return self._read_items(start)
        if sign in "!{%@`?":
            self._refuse(
                start, f"`{sign}` is not read here: write texts in quotes, and mappings on lines of their own"
            )
        if block := BLOCK.match(self._text, start):
            return self._read_block(scalar._replace(style=sign), self._required_end(block.end()), parent, mapping)
        if sign in "\"'":
            quoted = QUOTED.match(self._text, start)
            if quoted is None:
                self._refuse(start, f"the text does not end with {sign}")
            text, end = self._unquoted(quoted[0], start), quoted.end()
        else:
            end = self._end_of_plain(start, parent)
            text = re.sub(BREAK, _folded, self._text[start:end])
            sign = "plain"
        if sign != "plain" or not NOT_TEXT.fullmatch(text):
            self._append(scalar._replace(start=start, end=end, text=text, style=sign), mapping)
        return self._required_end(end)

    def _append(self, scalar: Scalar, mapping: Mapping | None) -> None:
        self._scalars.append(scalar)
        if mapping is not None:
            mapping.other_keys.pop()
            mapping.scalars.append(scalar)

    def _end_of_plain(self, start: int, parent: int) -> int:
        """Return where a text without quotes ends, which goes on in lines that are deeper than its parent."""
        match = PLAIN.match(self._text, start)
        if match is None:
            self._refuse(start, f"a text is expected, got {self._text[start : start + 20]!r}")
        end = match.end()
        while self._text.startswith("\n", self._skip(end)):
            following = self._skip(end)
            while self._text.startswith("\n", following):
                following = self._skip(following + 1)
            if self._column(following) <= parent or self._text.startswith("#", following):
                break
            match = PLAIN.match(self._text, following)
            if match is None or MAPPING_KEY.match(self._text, following):
                self._refuse(following, "a text goes on here, and has a key in it: write it in quotes")
            end = match.end()
        return end

    def _read_block(self, scalar: Scalar, offset: int, parent: int, mapping: Mapping | None) -> int:
        """Read the lines of a text that begins with `|` or `>`."""
        lines: list[str] = []
        start = end = offset
        column = -1
        while offset < len(self._text):
            line_end = self._text.find("\n", offset)
            line_end = len(self._text) if line_end < 0 else line_end
            line = self._text[offset:line_end]
            depth = len(line) - len(line.lstrip(" "))
            if line.strip():
                if depth <= parent:
                    break
                if column < 0:
                    column, start = depth, offset + depth
                if depth < column or (scalar.style == ">" and depth > column):
                    self._refuse(offset, "a line of a text is indented differently: use one indent, or `|` for `>`")
                end = line_end
            lines.append(line[max(column, 0) :])
            offset = line_end + 1
        text = "\n".join(lines).strip("\n")
        if scalar.style == ">":
            text = re.sub(BREAK, _folded, text)
        if text and not text.startswith((" ", "\t")):
            self._append(scalar._replace(start=start, end=end, text=text), mapping)
        return offset

    def _read_items(self, start: int) -> int:
        """Read a list in brackets."""
        offset = start + 1
        while (closing := CLOSING_BRACKET.match(self._text, offset)) is None:
            item = ITEM.match(self._text, offset)
            if item is None:
                self._refuse(start, "a list in brackets holds texts: write the items on lines with `- `")
            group = 1 if item[1] else 2
            item_start, raw = item.start(group), item[group].rstrip()
            text, style = (self._unquoted(raw, item_start), raw[0]) if group == 1 else (raw, "item")
            if style != "item" or not NOT_TEXT.fullmatch(raw):
                self._append(Scalar("", item_start, item_start, item_start + len(raw), text, style), None)
            offset = item.end()
        return self._required_end(closing.end())

    def _unquoted(self, raw: str, start: int) -> str:
        if raw[0] == "'":
            return re.sub(BREAK, _folded, raw[1:-1]).replace("''", "'")

        def character(match: "re.Match[str]") -> str:
            if match[1] is None:
                return "\n" * match[3].count("\n") or " "
            if len(match[1]) > 1:
                return chr(int(match[1][1:], 16)) + match[2]
            if match[1] not in ESCAPES:
                self._refuse(start, f"\\{match[1]} is not an escape of YAML")
            return ESCAPES[match[1]] + ("" if match[1] == "\n" else match[2])

        return self._joined(ESCAPE.sub(character, raw[1:-1]), start)

    def _close(self, column: int) -> None:
        """Close the mappings that are deeper than a column; one whose keys are plural categories is a plural."""
        while self._mappings and self._mappings[-1].column > column:
            group = self._mappings.pop()
            names = [scalar.key for scalar in group.scalars]
            is_plural = (
                self._rule is not None and "other" in names and len(names) > 1 and set(names) <= set(CATEGORIES)
            )
            gaps = (self._text[a.end : b.key_start] for a, b in pairwise(group.scalars))
            if is_plural and not group.other_keys and not any(gap.strip() for gap in gaps):
                self._group_of |= {scalar.start: group.scalars for scalar in group.scalars}

    def _skip(self, offset: int) -> int:
        while self._text.startswith((" ", "\t"), offset):
            offset += 1
        return offset

    def _end_of_line(self, offset: int) -> int | None:
        """Return the offset after the line if its rest is empty or a comment, else `None`."""
        match = BLANK.match(self._text, offset)
        return match.end() if match else None

    def _required_end(self, offset: int) -> int:
        end = self._end_of_line(offset)
        if end is None:
            self._refuse(offset, f"the end of the line is expected, got {self._text[offset : offset + 20]!r}")
        return end


def _folded(match: "re.Match[str]") -> str:
    return "\n" * match[1].count("\n") or " "
