"""Markdown: paragraphs, headings, lists, quotes, tables and blocks of HTML; code and front matter stay as they are.

This reader finds the blocks and inline marks of CommonMark, and GitHub's tables. markdown-it-py reads more rare cases
right, but does not report the offsets of inline marks, which we need to write the page back unchanged.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from urllib.parse import unquote

from capsule_mt.formats.format import Format
from capsule_mt.formats.html import HtmlFile
from capsule_mt.formats.markdown_inline import References, add_inline, escaped, escaped_start, normalised
from capsule_mt.formats.markdown_lines import (
    MATH_BEGIN,
    RAW_TAG,
    TEXT_FENCE,
    RawBlocks,
    Title,
    end_of_options,
    interrupts_paragraph,
    is_copied,
    title_of,
)
from capsule_mt.formats.markup import MARK, MARKUP, Markup
from capsule_mt.formats.units import Translated, Unit

FENCE = re.compile(r"\s*(`{3,}(?=(?!`)[^`]*$)|~{3,})")  # ```a``` on one line is code in a text
# the prefix of a line's text: quotes, bullets, numbers, boxes, the marks of a heading, notes
PREFIX = re.compile(
    r"(?:[ \t]{0,3}>(?:[ \t]{0,4}>)*[ \t]?)?[ \t]*(?:\[\^[^\]\s]+\]:[ \t]+)?"
    r"(?:(?:[-*+:]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?)*(?:#{1,6}[ \t]+)?"
)
QUOTES = re.compile(r"(?:[ \t]{0,3}>(?:[ \t]{0,4}>)*[ \t]?)?")
ITEM = re.compile(r"[ \t]*(?:[-*+:]|\d{1,9}[.)])[ \t]+")
HEADING = re.compile(r"(?:[ \t]{0,3}>(?:[ \t]{0,4}>)*[ \t]?)?[ \t]*#{1,6}[ \t]")
RULE = re.compile(r"[ \t]{0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,}|=+[ \t]*)$")
# no pattern repeats a character twice in a row, as `=*=*` does: that would take quadratic time
TABLE_RULE = re.compile(r"[ \t]*(?:\|[ \t]*)?:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*(?:\|[ \t]*)?$")
SETEXT = re.compile(r"[ \t]{0,3}(?:=+|-+)[ \t]*$")
DEFINITION = re.compile(r"[ \t]{0,3}\[(?!\^)((?:[^\[\]\\]|\\.){1,200})\]:[ \t]*\S")
ATTRIBUTES_AT_END = re.compile(r"(?<=[ \t])\{:?[ \t]*[.#][^{}\n]*\}[ \t]*$")
MARKDOWN_INSIDE = re.compile(r"<[^<>]*\smarkdown\b[^<>]*>[ \t]*$")  # <div markdown>, of MkDocs
ADMONITION = re.compile(r"[ \t]*(?:!!!|\?\?\?\+?|===[!+]*)[ \t]+[\w\"]")
NOTE = re.compile(r"[ \t]{0,3}\[\^[^\]\s]+\]:[ \t]+")
HTML_BLOCK = re.compile(r"[ \t]{0,3}<(?:!|\?|/?[A-Za-z][\w-]*(?:[\s/>]|$))")
LONE_TAG = re.compile(r"[ \t]*</?[A-Za-z][\w-]*(?:[^<>\"']|\"[^\"<>]*\"|'[^'<>]*')*>[ \t]*$")
# those that begin a block of HTML wherever they stand, as CommonMark lists them
BLOCK_ELEMENTS = frozenset(
    """
    address article aside base basefont blockquote body caption center col colgroup dd details dialog dir div dl dt
    fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hr html iframe legend li link
    main menu menuitem nav noframes ol optgroup option p param pre script search section style summary table tbody td
    textarea tfoot th thead title tr track ul
    """.split()  # noqa: SIM905  a word a line would be sixty lines
)

FORMAT = Format(
    name="markdown",
    suffixes=(".md", ".markdown", ".mdx"),
    title="Markdown",
    reader=lambda file: MarkdownFile(file.text),
    needs_line_feeds=True,
    translated="paragraphs, headings, lists, quotes, tables, footnotes, definitions, `alt` texts, blocks of HTML; "
    "alerts, containers and admonitions with their titles; links to headings of the same page",
    unchanged="code, mathematics, front matter, addresses and titles of links, ids, Liquid, directives that are not "
    "text, imports and components of MDX",
    limits="links from other pages keep the old anchor: give such a heading an id (`{#id}`)",
    judges="markdown-it-py, mdit-py-plugins",
)


class _Text:
    """A text of the page; `escape` is what its place needs beside the marks of Markdown.

    Args:
        starts_block: whether what the text begins with could begin a list, a heading or a quote.
    """

    def __init__(
        self, source: str, markup: Markup, escape: Callable[[str], str] = str, starts_block: bool = False
    ) -> None:
        self._source, self._markup, self._escape, self._starts_block = source, markup, escape, starts_block
        self.translation: str | None = None

    @property
    def shown(self) -> str:
        """The text without its marks."""
        return MARK.sub("", self._markup.text if self.translation is None else self.translation)

    def take(self, translations: Iterator[Translated]) -> None:
        self.translation = next(translations).text

    def written(self) -> str:
        if self.translation is None:
            return self._source
        written = self._markup.filled(self.translation, lambda part: self._escape(escaped(part)))
        return escaped_start(written) if self._starts_block else written


class _Html:
    """A block of HTML in the page."""

    def __init__(self, text: str) -> None:
        self._file = HtmlFile(text)
        self._translations: list[Translated] = []
        self.units = self._file.units

    def take(self, translations: Iterator[Translated]) -> None:
        self._translations = list(islice(translations, len(self.units)))

    def written(self) -> str:
        return self._file.write(self._translations).decode("utf-8")


class MarkdownFile:
    """A page of Markdown."""

    keep = MARKUP

    def __init__(self, text: str) -> None:
        self._ending = "\r\n" if "\r\n" in text else "\n"
        self._parts: list[str | _Text | _Html] = []
        self._headings: list[tuple[str, _Text | None]] = []  # the source of each, and its text if it has words
        self.units: list[Unit] = []
        self._lines = text.replace("\r\n", "\n").split("\n")
        labels = (definition[1] for line in self._lines if (definition := DEFINITION.match(line)))
        self._references = References(frozenset(map(normalised, labels)), self._anchor)
        self._raw_blocks = RawBlocks(self._lines)
        self._anchors: dict[str, str] = {}
        self._indents: list[int] = []  # the columns of the text in the open lists and admonitions
        self._text_fences: list[str] = []  # the open fences of directives whose content is text
        self._in_paragraph = False  # whether the line before may go on in this one
        index = self._front_matter()
        while index < len(self._lines):
            line = self._lines[index]
            inner = _without(QUOTES, line)
            self._leave_lists(inner)
            end = self._end_of_code(index, inner)
            self._in_paragraph = False
            if end is not None:
                self._copy(index, end)
            else:
                end = self._block(index, inner)
            self._enter_list(inner)
            index = end

    def write(self, translations: Sequence[Translated]) -> bytes:
        remaining = iter(translations)
        for part in self._parts:
            if not isinstance(part, str):
                part.take(remaining)
        self._anchors = self._translated_anchors()  # before links are written
        written = (part if isinstance(part, str) else part.written() for part in self._parts)
        return "".join(written).replace("\n", self._ending).encode("utf-8")

    def _anchor(self, anchor: str) -> str:
        return self._anchors.get(unquote(anchor), anchor)

    def _translated_anchors(self) -> dict[str, str]:
        """Return the anchor of each heading after translation, by the one before, as GitHub makes them of its text."""
        source_anchors = _anchors_of([source for source, _ in self._headings])
        target_anchors = _anchors_of([source if text is None else text.shown for source, text in self._headings])
        return dict(zip(source_anchors, target_anchors, strict=True))

    def _leave_lists(self, inner: str) -> None:
        """Forget the lists that a line does not continue: it has less indentation, and no paragraph goes on in it."""
        if not inner.strip():
            return
        column = _column(inner)
        while self._indents and column < self._indents[-1] and (not self._in_paragraph or ITEM.match(inner)):
            self._indents.pop()

    def _enter_list(self, inner: str) -> None:
        item = ITEM.match(inner)
        if item is not None and inner.strip():
            self._indents.append(len(item[0].expandtabs(4)))
        elif ADMONITION.match(inner) or NOTE.match(inner):
            self._indents.append(_column(inner) + 4)

    def _end_of_code(self, index: int, inner: str) -> int | None:
        """Return the index after code, a blank line or another line to copy, if one begins here, else `None`."""
        line = self._lines[index]
        fence = FENCE.match(_without(PREFIX, line) if ITEM.match(inner) else inner)
        if not inner.strip():
            return index + 1
        if fence is not None:
            return self._end_of_fence(index, fence)
        indent = self._indents[-1] if self._indents else 0
        if not self._in_paragraph and _column(inner) >= indent + 4 and not ITEM.match(inner):
            return index + 1
        if RULE.match(inner) or DEFINITION.match(line):
            return index + 1
        return self._raw_blocks.end(index)

    def _end_of_fence(self, first: int, fence: "re.Match[str]") -> int | None:
        line = self._lines[first]
        if TEXT_FENCE.match(line):
            self._text_fences.append(fence[1])
            return None if title_of(line) else end_of_options(self._lines, first)
        if self._text_fences and _without(QUOTES, line).strip() == self._text_fences[-1]:
            self._text_fences.pop()
            return first + 1
        closing = re.compile(rf"[ \t>]*{re.escape(fence[1][0])}{{{len(fence[1])},}}[ \t]*$")
        indices = range(first + 1, len(self._lines))
        return next((index + 1 for index in indices if closing.match(self._lines[index])), len(self._lines))

    def _block(self, index: int, inner: str) -> int:
        """Add the block of text that begins at a line; return the index of the line after it."""
        line = self._lines[index]
        title = title_of(line)
        if title is not None:
            self._add_title(title, index)
            end = end_of_options(self._lines, index)
            self._copy(index + 1, end)
            return end
        if is_copied(line):
            end = end_of_options(self._lines, index)
            self._copy(index, end)
            return end
        if HTML_BLOCK.match(inner) and not re.match(r"\s*<(?:https?|mailto):", inner) and _is_block(inner):
            return self._html(index, inner)
        if self._is_table(index, inner):
            return self._table(index)
        return self._paragraph(index)

    def _is_table(self, index: int, inner: str) -> bool:
        """Return whether a line, without its quotes, is the first one of a table: the line after it is a rule."""
        if "|" not in inner or index + 1 == len(self._lines):
            return False
        return TABLE_RULE.match(_without(QUOTES, self._lines[index + 1])) is not None

    def _front_matter(self) -> int:
        if self._lines[0].strip() in ("---", "+++"):
            for index in range(1, len(self._lines)):
                if self._lines[index].strip() == self._lines[0].strip():
                    self._copy(0, index + 1)
                    return index + 1
        return 0

    def _html(self, first: int, line: str) -> int:
        """Add a block of HTML: its texts, but not comments, nor what is in a quote, whose lines begin with signs.

        The block ends at a blank line, one of raw text at its end tag, a comment at its `-->`.
        """
        raw = re.match(r"\s*<(?:(!--)|(\?)|(pre|script|style|textarea)\b)", line, re.IGNORECASE)
        lines = range(first, len(self._lines))
        if raw is None:
            last = next((index for index in lines if not self._lines[index].strip()), len(self._lines))
        else:
            end = "-->" if raw[1] else "?>" if raw[2] else f"</{raw[3].lower()}>"
            last = next((index + 1 for index in lines if end in self._lines[index].lower()), len(self._lines))
        if raw is not None or self._lines[first] != line:
            self._copy(first, last)
            return last
        if MARKDOWN_INSIDE.search(line):
            self._copy(first, first + 1)
            return first + 1
        try:
            block = _Html("\n".join(self._lines[first:last]))
        except AssertionError:  # of Python's parser, for an unknown `<![...]>`
            self._copy(first, last)
            return last
        self._parts.append(block)
        for unit in block.units:
            line_number = int(unit.location.removeprefix("line ")) + first
            self.units.append(unit._replace(location=f"line {line_number}"))
        self._end_line(last - 1)
        return last

    def _end_line(self, index: int) -> None:
        if index + 1 < len(self._lines):
            self._parts.append("\n")

    def _copy(self, first: int, last: int) -> None:
        for index in range(first, last):
            self._parts.append(self._lines[index])
            self._end_line(index)

    def _add(
        self, text: str, index: int, escape: Callable[[str], str] = str, starts_block: bool = False
    ) -> _Text | None:
        """Add a text of line `index`, as a unit if it has words."""
        markup = Markup()
        add_inline(markup, text, self._references)
        if not markup.has_words:
            self._parts.append(text)
            return None
        part = _Text(text, markup, escape, starts_block)
        self._parts.append(part)
        self.units.append(Unit(markup.text, f"line {index + 1}"))
        return part

    def _add_title(self, title: Title, index: int) -> None:
        line = self._lines[index]
        escape = ESCAPES.get(title.end_mark, str)
        self._parts.append(line[: title.start])
        self._add(line[title.start : title.end], index, escape)
        self._parts.append(line[title.end :])
        self._end_line(index)

    def _paragraph(self, first: int) -> int:
        """Add a paragraph with its lines joined; return the index of the line after it."""
        prefix = PREFIX.match(self._lines[first])
        begin = prefix.end() if prefix else 0
        texts, last = [self._lines[first][begin:]], first + 1
        is_heading = HEADING.match(self._lines[first][:begin]) is not None
        while last < len(self._lines) and not is_heading and not texts[-1].endswith(("  ", "\\")):
            line = self._lines[last]
            if self._ends_paragraph(last) or _quote_depth(line) > _quote_depth(self._lines[first]):
                break
            inner = QUOTES.sub("", line, count=1)
            texts.append(inner.strip(" \t") if not inner.endswith("  ") else inner.lstrip(" \t"))
            last += 1
        text = " ".join(texts)
        end = _end_of_text(text)
        self._parts.append(self._lines[first][:begin])
        part = self._add(text[:end], first, starts_block=not is_heading)
        self._parts.append(text[end:])
        self._end_line(last - 1)
        self._in_paragraph = not is_heading
        is_underlined = last < len(self._lines) and SETEXT.match(_without(QUOTES, self._lines[last]))
        if (is_heading or is_underlined) and not ATTRIBUTES_AT_END.search(text):
            self._headings.append((_plain(text[:end]), part))
        return last

    def _ends_paragraph(self, index: int) -> bool:
        line = self._lines[index]
        inner = QUOTES.sub("", line, count=1)
        return bool(
            not inner.strip()
            or ITEM.match(inner)
            or NOTE.match(inner)
            or HEADING.match(line)
            or RULE.match(inner)
            or SETEXT.match(inner)
            or FENCE.match(inner)
            or (HTML_BLOCK.match(inner) and _is_block(inner, interrupts=True))
            or self._is_table(index, inner)
            or interrupts_paragraph(line)
            or MATH_BEGIN.match(line)
            or RAW_TAG.match(line)
        )

    def _table(self, first: int) -> int:
        last = first
        while last < len(self._lines) and "|" in self._lines[last]:
            if last == first + 1:
                self._copy(last, last + 1)
            else:
                begin = len(self._lines[last]) - len(_without(QUOTES, self._lines[last]))
                self._parts.append(self._lines[last][:begin])
                for cell in re.split(r"((?<!\\)\|)", self._lines[last][begin:]):
                    text = cell.strip()
                    if text.strip("|"):
                        begin = cell.index(text)
                        self._parts.append(cell[:begin])
                        self._add(text, last, _escaped_cell)
                        self._parts.append(cell[begin + len(text) :])
                    else:
                        self._parts.append(cell)
                self._end_line(last)
            last += 1
        return last


def _anchors_of(headings: Sequence[str]) -> list[str]:
    """Return the anchors that GitHub gives to headings; one that occurs again gets a number."""
    anchors: list[str] = []
    counts: dict[str, int] = {}
    for heading in headings:
        anchor = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        count = counts.get(anchor, -1) + 1
        counts[anchor] = count
        anchors.append(f"{anchor}-{count}" if count else anchor)
    return anchors


def _plain(text: str) -> str:
    """Return the text of a heading without its marks."""
    markup = Markup()
    add_inline(markup, text, References())
    return MARK.sub("", markup.text)


def _quote_depth(line: str) -> int:
    quotes = QUOTES.match(line)
    return quotes[0].count(">") if quotes else 0


def _column(line: str) -> int:
    """Return the column of the first character of a line, with tabs of four columns."""
    spaces = line[: len(line) - len(line.lstrip(" \t"))]
    return len(spaces.expandtabs(4))


def _escaped_cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


ESCAPES: dict[str, Callable[[str], str]] = {
    '"': lambda text: text.replace('"', "'"),
    "]": lambda text: text.replace("[", "(").replace("]", ")"),
}


def _end_of_text(text: str) -> int:
    """Return the offset of a paragraph's final marks: spaces, a hard break, the closing signs of a heading."""
    attributes = ATTRIBUTES_AT_END.search(text)
    shown = text[: attributes.start() if attributes else None].rstrip(" \t")
    without_signs = shown.rstrip("#")
    if without_signs != shown and without_signs.endswith((" ", "\t")):
        return len(without_signs.rstrip(" \t"))
    return len(shown) - 1 if shown.endswith("\\") else len(shown)


def _is_block(line: str, interrupts: bool = False) -> bool:
    """Return whether a line that begins with a tag starts a block of HTML, rather than a text with inline tags.

    A tag of an inline element does if it is alone on its line and does not interrupt a paragraph.
    """
    name = re.match(r"[ \t]*</?([A-Za-z][\w-]*)", line)
    if name is None or name[1].lower() in BLOCK_ELEMENTS:
        return True
    return not interrupts and LONE_TAG.match(line) is not None


def _without(beginning: re.Pattern[str], line: str) -> str:
    """Return a line without its beginning, which may be empty. `sub` would also search the rest of the line."""
    match = beginning.match(line)
    return line if match is None else line[match.end() :]
