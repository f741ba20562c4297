"""Markdown: paragraphs, headings, lists, quotes and tables; code, HTML blocks and front matter stay as they are.

A reader of lines and of marks, as CommonMark has them, with the tables of GitHub. markdown-it-py would read more rare
cases right, and has no places of inline marks in the source, without which nothing can be written back as it was.
"""

import re
from collections.abc import Sequence

from capsule_mt.formats.markup import MARKUP, Markup
from capsule_mt.formats.units import Translated, Unit

FENCE = re.compile(r"\s*(`{3,}|~{3,})")
# what stands before the text of a line: quotes, bullets, numbers, boxes, the marks of a heading, notes
PREFIX = re.compile(
    r"(?:[ \t]{0,3}>[ \t]?)*[ \t]*(?:\[\^[^\]\s]+\]:[ \t]+)?"
    r"(?:(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?)*(?:#{1,6}[ \t]+)?"
)
QUOTES = re.compile(r"(?:[ \t]{0,3}>[ \t]?)*")
ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+")
HEADING = re.compile(r"(?:[ \t]{0,3}>[ \t]?)*[ \t]*#{1,6}[ \t]")
RULE = re.compile(r"[ \t]{0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,}|=+[ \t]*)$")
# in each pattern, two repetitions that can take the same character never stand side by side: time would be quadratic
TABLE_RULE = re.compile(r"[ \t]*(?:\|[ \t]*)?:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*(?:\|[ \t]*)?$")
DEFINITION = re.compile(r"[ \t]{0,3}\[(?!\^)[^\]]+\]:[ \t]*\S")
NOTE = re.compile(r"[ \t]{0,3}\[\^[^\]\s]+\]:[ \t]+")
HTML_BLOCK = re.compile(r"[ \t]{0,3}<(?:!|\?|/?[A-Za-z][\w-]*(?:[\s/>]|$))")
INDENTED = re.compile(r"(?: {4}|\t)")
# where a link goes, with its title: (address "title"), (<address> 'title')
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
KINDS = ("escape", "code", "fixed", "tag", "note", "image", "link", "closed", "mark")  # of `INLINE`
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
        place = self._front_matter()
        is_blank_before, in_list = True, False
        while place < len(self._lines):
            line, end = self._lines[place], place + 1
            inner = QUOTES.sub("", line, count=1)
            fence = FENCE.match(PREFIX.sub("", line, count=1) if ITEM.match(inner) else inner)
            is_code = INDENTED.match(inner) and is_blank_before and not in_list
            if fence is not None:
                closing = re.compile(rf"[ \t>]*{re.escape(fence[1][0])}{{{len(fence[1])},}}[ \t]*$")
                while end < len(self._lines) and not closing.match(self._lines[end]):
                    end += 1
                self._copy(place, min(end + 1, len(self._lines)))
                end += 1
            elif not inner.strip() or RULE.match(inner) or DEFINITION.match(line) or is_code:
                self._copy(place, end)
            elif HTML_BLOCK.match(inner) and not re.match(r"\s*<(?:https?|mailto):", inner) and _is_block(inner):
                end = self._end_of_html(place, inner)
                self._copy(place, end)
            elif "|" in inner and end < len(self._lines) and TABLE_RULE.match(self._lines[end]):
                end = self._table(place)
            else:
                end = self._paragraph(place)
            is_blank_before = not inner.strip()
            in_list = bool(ITEM.match(inner)) or (in_list and (is_blank_before or bool(re.match(r"[ \t]", inner))))
            place = end

    def write(self, translations: Sequence[Translated]) -> bytes:
        waiting = iter(translations)
        written = []
        for part in self._parts:
            if isinstance(part, Markup):
                text = next(waiting).text
                written.append(part.filled(part.text if text is None else text, _escaped))
            else:
                written.append(part)
        return "".join(written).replace("\n", self._ending).encode("utf-8")

    def _front_matter(self) -> int:
        if self._lines[0].strip() in ("---", "+++"):
            for place in range(1, len(self._lines)):
                if self._lines[place].strip() == self._lines[0].strip():
                    self._copy(0, place + 1)
                    return place + 1
        return 0

    def _end_of_html(self, first: int, begins: str) -> int:
        """Return the line after a block of HTML: a blank one, or the one after the end of a comment or of raw text."""
        raw = re.match(r"\s*<(?:(!--)|(\?)|(pre|script|style|textarea)\b)", begins, re.IGNORECASE)
        lines = range(first, len(self._lines))
        if raw is None:
            return next((place for place in lines if not self._lines[place].strip()), len(self._lines))
        end = "-->" if raw[1] else "?>" if raw[2] else f"</{raw[3].lower()}>"
        return next((place + 1 for place in lines if end in self._lines[place].lower()), len(self._lines))

    def _end_line(self, place: int) -> None:
        if place + 1 < len(self._lines):
            self._parts.append("\n")

    def _copy(self, first: int, last: int) -> None:
        for place in range(first, last):
            self._parts.append(self._lines[place])
            self._end_line(place)

    def _add(self, text: str, place: int) -> None:
        """Add a text at line `place`, as a unit if there is anything to translate."""
        markup = Markup()
        _add_inline(markup, text)
        if markup.has_words:
            self._parts.append(markup)
            self.units.append(Unit(markup.text, f"line {place + 1}"))
        else:
            self._parts.append(text)

    def _paragraph(self, first: int) -> int:
        """Add a paragraph, whose lines are joined, and return the line after it."""
        prefix = PREFIX.match(self._lines[first])
        begin = prefix.end() if prefix else 0
        texts, last = [self._lines[first][begin:]], first + 1
        is_heading = HEADING.match(self._lines[first][:begin])
        while last < len(self._lines) and not is_heading and not texts[-1].endswith(("  ", "\\")):
            line = self._lines[last]
            inner = QUOTES.sub("", line, count=1)
            ends = (
                not inner.strip() or ITEM.match(inner) or NOTE.match(inner) or HEADING.match(line) or RULE.match(inner)
            )
            if ends or FENCE.match(inner) or (HTML_BLOCK.match(inner) and _is_block(inner)) or inner.count("|") > 1:
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
    """Return where the marks at the end of a paragraph begin: spaces, a hard break, the closing signs of a heading."""
    shown = text.rstrip(" \t")
    without_signs = shown.rstrip("#")
    if without_signs != shown and without_signs.endswith((" ", "\t")):
        return len(without_signs.rstrip(" \t"))
    return len(text) - 1 if text.endswith("\\") else len(shown)


def _is_block(line: str) -> bool:
    """Return whether a line that begins with a tag is of a block of HTML, and no text with inline tags."""
    from capsule_mt.formats.html import INLINE as INLINE_ELEMENTS  # late: a page without HTML needs none

    name = re.match(r"[ \t]*</?([A-Za-z][\w-]*)", line)
    return name is None or name[1].lower() not in INLINE_ELEMENTS


def _add_inline(markup: Markup, text: str) -> None:
    """Add a text with its marks of emphasis, links and code."""
    tokens = list(INLINE.finditer(text))
    partners = _partners(text, tokens)
    place = 0
    for number, match in enumerate(tokens):
        kind, raw = next(name for name in KINDS if match[name] is not None), match[0]
        markup.add_text(text[place : match.start()])
        place = match.end()
        if kind == "escape" and raw != r"\|":  # which may not end a cell
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
        elif number not in partners:
            markup.add_text(raw)
        elif partners[number] > number:
            markup.open(raw, raw if kind == "mark" else "link")
        else:
            markup.close(raw, raw if kind == "mark" else "link")
    markup.add_text(text[place:])


def _partners(text: str, tokens: list["re.Match[str]"]) -> dict[int, int]:
    """Return the closing mark of each opening one, and the other way round; elements that cross have none."""
    opened: list[int] = []
    waiting: dict[str, list[int]] = {}  # the indices in `opened` of each kind of mark
    partners: dict[int, int] = {}

    def open_(number: int, kind: str) -> None:
        waiting.setdefault(kind, []).append(len(opened))
        opened.append(number)

    def forget(index: int) -> None:
        """Drop what was opened at an index of `opened` and after it."""
        for indices in waiting.values():
            while indices and indices[-1] >= index:
                indices.pop()
        del opened[index:]

    for number, match in enumerate(tokens):
        before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        if match["link"] is not None:
            open_(number, LINK)
        elif match["closed"] is not None:
            if links := waiting.get(LINK):
                start = opened[links[-1]]
                if len(match[0]) > 1:
                    partners[start], partners[number] = number, start
                forget(links[-1])
        elif match["mark"] is not None:
            in_word = match[0][0] == "_" and before.isalnum() and after.isalnum()
            index = next(reversed(waiting.get(match[0], ())), None)
            link = next(reversed(waiting.get(LINK, ())), -1)
            if index is not None and index > link and not before.isspace() and not in_word:
                start = opened[index]
                partners[start], partners[number] = number, start
                forget(index)
            elif after and not after.isspace() and not in_word and not (match[0][0] == "_" and before.isalnum()):
                open_(number, match[0])
    return partners


def _escaped(text: str) -> str:
    """Escape what would be a mark: a pair of signs with something between them."""
    if not SPECIAL.search(text):
        return text
    written = re.sub(r"(?<!\w)([*_`])(?=\S)|(?<=\S)([*`])(?!\w)", r"\\\g<0>", text)
    # a bracket would open a link where the next closing one goes on so
    parts = written.split("]")
    is_link = [after.startswith(("(", "[", ":")) for after in parts[1:]] + [False]
    written = "]".join(
        part.replace("[", r"\[") if linked else part for part, linked in zip(parts, is_link, strict=True)
    )
    return re.sub(r"<(?=[A-Za-z/!?])", r"\\<", written)
