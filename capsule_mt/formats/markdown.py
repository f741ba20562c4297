"""Markdown: paragraphs, headings, lists, quotes and tables; code, HTML blocks and front matter stay as they are.

This reader finds the blocks and inline marks of CommonMark, and GitHub's tables. markdown-it-py reads more rare cases
right, but does not report the offsets of inline marks, which we need to write the page back unchanged.
"""

import re
from collections.abc import Sequence

from capsule_mt.formats.markup import MARKUP, Markup
from capsule_mt.formats.units import Translated, Unit

FENCE = re.compile(r"\s*(`{3,}|~{3,})")
# the prefix of a line's text: quotes, bullets, numbers, boxes, the marks of a heading, notes
PREFIX = re.compile(
    r"(?:[ \t]{0,3}>(?:[ \t]{0,4}>)*[ \t]?)?[ \t]*(?:\[\^[^\]\s]+\]:[ \t]+)?"
    r"(?:(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?)*(?:#{1,6}[ \t]+)?"
)
QUOTES = re.compile(r"(?:[ \t]{0,3}>(?:[ \t]{0,4}>)*[ \t]?)?")
ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+")
HEADING = re.compile(r"(?:[ \t]{0,3}>(?:[ \t]{0,4}>)*[ \t]?)?[ \t]*#{1,6}[ \t]")
RULE = re.compile(r"[ \t]{0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,}|=+[ \t]*)$")
# in no pattern do two repetitions of the same character meet: that would take quadratic time
TABLE_RULE = re.compile(r"[ \t]*(?:\|[ \t]*)?:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*(?:\|[ \t]*)?$")
DEFINITION = re.compile(r"[ \t]{0,3}\[(?!\^)(?:[^\[\]\\]|\\.){1,200}\]:[ \t]*\S")
NOTE = re.compile(r"[ \t]{0,3}\[\^[^\]\s]+\]:[ \t]+")
HTML_BLOCK = re.compile(r"[ \t]{0,3}<(?:!|\?|/?[A-Za-z][\w-]*(?:[\s/>]|$))")
INDENTED = re.compile(r"(?: {4}|\t)")
# the target of a link, with its title: (address "title"), (<address> 'title')
TITLE = r"(?:\"[^\"]*\"|'[^']*'|\([^()]*\))"
TARGET = (
    r"\(\s*(?:(?:(?:<[^<>\n]*>|[^()\s<][^()\s]*(?:\([^()\s]*\)[^()\s]*)*)"
    rf"(?:\s+{TITLE})?|{TITLE})\s*)?\)"
)
INLINE = re.compile(
    r"(?P<escape>\\[!-/:-@\[-`{-~])"
    r"|(?P<code>(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<fixed><(?:https?|mailto):[^\s<>]+>|\$\$[^$]+\$\$|\$[^$\s](?:[^$]*[^$\s])?\$(?!\d)|\{\{.{0,200}?\}\}|:[a-z_]+:(?![\w]))"
    r"|(?P<tag></?[A-Za-z][^<>]*>|<!--(?:(?!<!--).)*?-->)"
    r"|(?P<note>\[\^[^\[\]\s]+\])"
    r"|(?P<image>!\[(?P<alt>[^\[\]]*)\](?P<source>" + TARGET + r"|\[[^\]]*\]))"
    r"|(?P<link>\[(?=[^\]]))"
    r"|(?P<closed>\](?:" + TARGET + r"|\[[^\]]*\])?)"
    r"|(?P<mark>\*{1,3}|_{1,3}|~~)",
    re.DOTALL,
)
KINDS = ("escape", "code", "fixed", "tag", "note", "image", "link", "closed", "mark")  # the groups of `INLINE`
LINK = "["
SPECIAL = re.compile(r"([\\`*_\[\]<>])")


class MarkdownFile:
    """A page of Markdown."""

    keep = MARKUP

    def __init__(self, text: str) -> None:
        self._ending = "\r\n" if "\r\n" in text else "\n"
        self._parts: list[str | Markup] = []
        self.units: list[Unit] = []
        self._lines = text.replace("\r\n", "\n").split("\n")
        index = self._front_matter()
        is_blank_before, in_list = True, False
        while index < len(self._lines):
            line, end = self._lines[index], index + 1
            inner = _without(QUOTES, line)
            fence = FENCE.match(_without(PREFIX, line) if ITEM.match(inner) else inner)
            is_code = INDENTED.match(inner) and is_blank_before and not in_list
            if fence is not None:
                closing = re.compile(rf"[ \t>]*{re.escape(fence[1][0])}{{{len(fence[1])},}}[ \t]*$")
                while end < len(self._lines) and not closing.match(self._lines[end]):
                    end += 1
                self._copy(index, min(end + 1, len(self._lines)))
                end += 1
            elif not inner.strip() or RULE.match(inner) or DEFINITION.match(line) or is_code:
                self._copy(index, end)
            elif HTML_BLOCK.match(inner) and not re.match(r"\s*<(?:https?|mailto):", inner) and _is_block(inner):
                end = self._end_of_html(index, inner)
                self._copy(index, end)
            elif "|" in inner and end < len(self._lines) and TABLE_RULE.match(self._lines[end]):
                end = self._table(index)
            else:
                end = self._paragraph(index)
            is_blank_before = not inner.strip()
            in_list = bool(ITEM.match(inner)) or (in_list and (is_blank_before or bool(re.match(r"[ \t]", inner))))
            index = end

    def write(self, translations: Sequence[Translated]) -> bytes:
        remaining = iter(translations)
        written = []
        for part in self._parts:
            if isinstance(part, Markup):
                text = next(remaining).text
                written.append(part.filled(part.text if text is None else text, _escaped))
            else:
                written.append(part)
        return "".join(written).replace("\n", self._ending).encode("utf-8")

    def _front_matter(self) -> int:
        if self._lines[0].strip() in ("---", "+++"):
            for index in range(1, len(self._lines)):
                if self._lines[index].strip() == self._lines[0].strip():
                    self._copy(0, index + 1)
                    return index + 1
        return 0

    def _end_of_html(self, first: int, line: str) -> int:
        """Return the index of the line after a block of HTML.

        The block ends at a blank line, one of raw text at its end tag, a comment at its `-->`.
        """
        raw = re.match(r"\s*<(?:(!--)|(\?)|(pre|script|style|textarea)\b)", line, re.IGNORECASE)
        lines = range(first, len(self._lines))
        if raw is None:
            return next((index for index in lines if not self._lines[index].strip()), len(self._lines))
        end = "-->" if raw[1] else "?>" if raw[2] else f"</{raw[3].lower()}>"
        return next((index + 1 for index in lines if end in self._lines[index].lower()), len(self._lines))

    def _end_line(self, index: int) -> None:
        if index + 1 < len(self._lines):
            self._parts.append("\n")

    def _copy(self, first: int, last: int) -> None:
        for index in range(first, last):
            self._parts.append(self._lines[index])
            self._end_line(index)

    def _add(self, text: str, index: int) -> None:
        """Add a text of line `index`, as a unit if it has words."""
        markup = Markup()
        _add_inline(markup, text)
        if markup.has_words:
            self._parts.append(markup)
            self.units.append(Unit(markup.text, f"line {index + 1}"))
        else:
            self._parts.append(text)

    def _paragraph(self, first: int) -> int:
        """Add a paragraph with its lines joined; return the index of the line after it."""
        prefix = PREFIX.match(self._lines[first])
        begin = prefix.end() if prefix else 0
        texts, last = [self._lines[first][begin:]], first + 1
        is_heading = HEADING.match(self._lines[first][:begin])
        while last < len(self._lines) and not is_heading and not texts[-1].endswith(("  ", "\\")):
            line = self._lines[last]
            inner = QUOTES.sub("", line, count=1)
            is_end = (
                not inner.strip() or ITEM.match(inner) or NOTE.match(inner) or HEADING.match(line) or RULE.match(inner)
            )
            if is_end or FENCE.match(inner) or (HTML_BLOCK.match(inner) and _is_block(inner)) or inner.count("|") > 1:
                break
            texts.append(inner.strip(" \t") if not inner.endswith("  ") else inner.lstrip(" \t"))
            last += 1
        text = " ".join(texts)
        end = _end_of_text(text)
        self._parts.append(self._lines[first][:begin])
        self._add(text[:end], first)
        self._parts.append(text[end:])
        self._end_line(last - 1)
        return last

    def _table(self, first: int) -> int:
        last = first
        while last < len(self._lines) and "|" in self._lines[last]:
            if last == first + 1:
                self._copy(last, last + 1)
            else:
                for cell in re.split(r"((?<!\\)\|)", self._lines[last]):
                    text = cell.strip()
                    if text.strip("|"):
                        begin = cell.index(text)
                        self._parts.append(cell[:begin])
                        self._add(text, last)
                        self._parts.append(cell[begin + len(text) :])
                    else:
                        self._parts.append(cell)
                self._end_line(last)
            last += 1
        return last


def _end_of_text(text: str) -> int:
    """Return the offset of a paragraph's final marks: spaces, a hard break, the closing signs of a heading."""
    shown = text.rstrip(" \t")
    without_signs = shown.rstrip("#")
    if without_signs != shown and without_signs.endswith((" ", "\t")):
        return len(without_signs.rstrip(" \t"))
    return len(text) - 1 if text.endswith("\\") else len(shown)


def _is_block(line: str) -> bool:
    """Return whether a line that begins with a tag starts a block of HTML, rather than a text with inline tags."""
    from capsule_mt.formats.html import INLINE as INLINE_ELEMENTS  # late: a page without HTML does not need it

    name = re.match(r"[ \t]*</?([A-Za-z][\w-]*)", line)
    return name is None or name[1].lower() not in INLINE_ELEMENTS


def _add_inline(markup: Markup, text: str) -> None:
    """Add a text with its marks of emphasis, links and code."""
    tokens = list(INLINE.finditer(text))
    partners = _partners(text, tokens)
    offset = 0
    for index, match in enumerate(tokens):
        kind, raw = next(name for name in KINDS if match[name] is not None), match[0]
        markup.add_text(text[offset : match.start()])
        offset = match.end()
        if kind == "escape" and raw != r"\|":  # unescaped, it would end a cell
            markup.add_text(raw[1:])
        elif kind in ("escape", "code", "fixed"):
            markup.add_fixed(raw)
        elif kind in ("tag", "note"):
            markup.add_tag(raw)
        elif kind == "image":
            if any(map(str.isalpha, match["alt"])):
                markup.open("![", "image")
                markup.add_text(match["alt"])
                markup.close(f"]{match['source']}", "image")
            else:
                markup.add_point(raw)
        elif index not in partners:
            markup.add_text(raw)
        elif partners[index] > index:
            markup.open(raw, raw if kind == "mark" else "link")
        else:
            markup.close(raw, raw if kind == "mark" else "link")
    markup.add_text(text[offset:])


def _partners(text: str, tokens: list["re.Match[str]"]) -> dict[int, int]:
    """Return the index of each mark's partner, in both directions; elements that cross have none."""
    opened: list[int] = []
    open_indices: dict[str, list[int]] = {}  # the indices in `opened` of each kind of mark
    partners: dict[int, int] = {}

    def open_mark(token_index: int, kind: str) -> None:
        open_indices.setdefault(kind, []).append(len(opened))
        opened.append(token_index)

    def forget(index: int) -> None:
        """Drop the marks in `opened` from an index on."""
        for indices in open_indices.values():
            while indices and indices[-1] >= index:
                indices.pop()
        del opened[index:]

    for token_index, match in enumerate(tokens):
        previous, following = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        if match["link"] is not None:
            open_mark(token_index, LINK)
        elif match["closed"] is not None:
            if links := open_indices.get(LINK):
                start = opened[links[-1]]
                if len(match[0]) > 1:
                    partners[start], partners[token_index] = token_index, start
                forget(links[-1])
        elif match["mark"] is not None:
            is_underscore = match[0][0] == "_"  # which marks nothing inside a word, as in snake_case
            in_word = is_underscore and previous.isalnum() and following.isalnum()
            index = next(reversed(open_indices.get(match[0], ())), None)
            link = next(reversed(open_indices.get(LINK, ())), -1)
            if index is not None and index > link and not previous.isspace() and not in_word:
                start = opened[index]
                partners[start], partners[token_index] = token_index, start
                forget(index)
            elif following and not following.isspace() and not in_word and not (is_underscore and previous.isalnum()):
                open_mark(token_index, match[0])
    return partners


def _escaped(text: str) -> str:
    """Escape signs that would be read as marks."""
    if not SPECIAL.search(text):
        return text
    written = re.sub(r"(?<!\w)([*_`])(?=\S)|(?<=\S)([*`])(?!\w)", r"\\\g<0>", text)
    # an opening bracket makes a link only if one of these follows the next closing bracket
    parts = written.split("]")
    is_link = [part.startswith(("(", "[", ":")) for part in parts[1:]] + [False]
    written = "]".join(
        part.replace("[", r"\[") if linked else part for part, linked in zip(parts, is_link, strict=True)
    )
    return re.sub(r"<(?=[A-Za-z/!?])", r"\\<", written)


def _without(beginning: re.Pattern[str], line: str) -> str:
    """Return a line without its beginning, which may be empty. `sub` would also search the rest of the line."""
    match = beginning.match(line)
    return line if match is None else line[match.end() :]
