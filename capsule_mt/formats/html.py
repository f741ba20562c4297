"""HTML: blocks of text with inline elements. The rest of the page stays as it is, byte for byte."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

from capsule_mt.formats.markup import MARKUP, Markup
from capsule_mt.formats.units import Translated, Unit
from capsule_mt.formats.xml import escaped

# the phrasing elements of the HTML standard, which stand inside a sentence; `br` ends one
INLINE = frozenset(
    {
        *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "img"),
        *("ins", "label", "mark", "meter", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt"),
        *("u", "wbr"),
    }
)
VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
)
INLINE_FIXED = frozenset({"code", "kbd", "samp", "var"})  # parts of a sentence, as a word is
NOT_TRANSLATED = INLINE_FIXED | {"math", "pre", "script", "style", "svg", "textarea"}
ATTRIBUTES = ("alt", "title", "placeholder", "aria-label")
# of XHTML, where `<a id="x"/>` is an element without content; an HTML page opens one
XHTML = re.compile(r"<html\b[^>]*\sxmlns\s*=")
LANGUAGE = re.compile(r"""(\s(?:xml:)?lang\s*=\s*)("[^"]*"|'[^']*'|[\w-]+)""")
META = re.compile(r"description|(?:og|twitter):(?:title|description|image:alt)", re.I)


@dataclass
class Event:
    """A part of the page: its characters from `start` up to the next event."""

    kind: str  # "start", "end", "text", "fixed" or "other"
    start: int
    name: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    raw: str = ""
    is_empty: bool = False  # an element without an end tag


class _Reader(HTMLParser):
    def __init__(self, text: str, is_xml: bool) -> None:
        super().__init__(convert_charrefs=False)
        self._is_xml = is_xml
        self.events: list[Event] = []
        self._lines = [0]
        for match in re.finditer("\n", text):
            self._lines.append(match.end())
        self.feed(text)
        self.close()
        ends = [event.start for event in self.events[1:]] + [len(text)]
        for event, end in zip(self.events, ends, strict=True):
            event.raw = text[event.start : end]

    def _add(self, kind: str, name: str = "", attributes: dict[str, str] | None = None) -> None:
        line, column = self.getpos()
        self.events.append(Event(kind, self._lines[line - 1] + column, name, attributes or {}))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("start", tag, {name: value or "" for name, value in attrs})

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)  # as browsers do: "<b/>" opens an element
        self.events[-1].is_empty = self._is_xml

    def handle_endtag(self, tag: str) -> None:
        self._add("end", tag)

    def handle_data(self, data: str) -> None:
        self._add("text")

    def handle_comment(self, data: str) -> None:
        self._add("other")

    handle_entityref = handle_charref = handle_data  # type: ignore[assignment]
    handle_decl = handle_pi = unknown_decl = handle_comment  # type: ignore[assignment]


@dataclass
class _Hole:
    """A span of the page that a translation fills: a run of text, or the value of an attribute."""

    prefix: str
    markup: Markup
    raw: str
    suffix: str = ""
    is_attribute: bool = False

    def filled(self, translated: Translated, is_xml: bool) -> str:
        if translated.text is None:
            return self.raw
        escape = _escaped_value if self.is_attribute else escaped if is_xml else _escaped
        return self.prefix + self.markup.filled(translated.text, escape) + self.suffix


class HtmlFile:
    """An HTML page, or a fragment of one."""

    keep = MARKUP

    def __init__(self, text: str, encoding: str = "utf-8", language: str | None = None) -> None:
        self.encoding, self._language = encoding, language
        self.units: list[Unit] = []
        self._parts: list[str | _Hole] = []
        self._line = 1
        self._run: list[Event] = []
        fixed: list[str] = []  # the open element that is not translated, and those of its name inside it
        raw: list[str] = []  # its source so far, if it is part of a sentence
        self._is_xml = XHTML.search(text) is not None
        for event in _Reader(text, self._is_xml).events:
            if fixed:
                if event.kind == "start" and event.name == fixed[0]:
                    fixed.append(event.name)
                elif event.kind == "end" and event.name == fixed[0]:
                    fixed.pop()
                if raw:
                    raw.append(event.raw)
                    if not fixed:
                        self._run[-1].raw = "".join(raw)
                        raw = []
                else:
                    self._add(event.raw)
                continue
            if event.kind == "start" and not _is_void(event) and _is_fixed(event):
                fixed.append(event.name)
                if event.name in INLINE_FIXED or event.name in INLINE:
                    event.kind = "fixed"
                    self._run.append(event)
                    raw = [event.raw]
                    continue
            is_inline = event.kind == "text" or (event.kind in ("start", "end") and event.name in INLINE)
            if is_inline or (event.kind == "other" and self._run):
                self._run.append(event)
                continue
            self._end_run()
            self._add_block(event)
        if raw:
            self._run[-1].raw = "".join(raw)
        self._end_run()

    def write(self, translations: Sequence[Translated]) -> bytes:
        remaining = iter(translations)
        written = (
            part if isinstance(part, str) else part.filled(next(remaining), self._is_xml) for part in self._parts
        )
        return "".join(written).encode(self.encoding, "xmlcharrefreplace")

    def _add(self, part: "str | _Hole", unit: str = "") -> None:
        self._parts.append(part)
        if isinstance(part, _Hole):
            self.units.append(Unit(unit, f"line {self._line}"))
        self._line += (part if isinstance(part, str) else part.raw).count("\n")

    def _end_run(self) -> None:
        """Make a hole of the inline content since the last block, without the space and markup at its ends."""
        run, self._run = self._run, []
        first, last = 0, len(run)
        while first < last and not _has_text(run[first]):
            first += 1
        while last > first and not _has_text(run[last - 1]):
            last -= 1
        first, last = _with_partners(run, first, last)
        for event in run[:first]:
            self._add_block(event)
        if first < last:
            self._add_hole(run[first:last])
        for event in run[last:]:
            self._add_block(event)

    def _add_hole(self, run: list[Event]) -> None:
        markup, raw, texts = Markup(), "".join(event.raw for event in run), list[str]()

        def flush_texts() -> None:
            if texts:
                markup.add_text(re.sub(r"[ \t\r\n\f]+", " ", html.unescape("".join(texts))))
                texts.clear()

        for event in _with_fixed_notes(run):
            if event.kind == "text":
                texts.append(event.raw)  # joined before unescaping: the parser may cut within a character reference
                continue
            flush_texts()
            if event.kind == "fixed":
                markup.add_fixed(event.raw)
            else:
                markup.add_tag(event.raw)
        flush_texts()
        if not markup.has_words:
            self._add(raw)
            return
        prefix, suffix = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :]
        self._add(_Hole(prefix, markup, raw, suffix), markup.text.strip())

    def _add_block(self, event: Event) -> None:
        """Add a part of the page, and translate only its attribute values."""
        raw = event.raw
        if event.kind == "start" and event.name == "html" and self._language:
            raw = LANGUAGE.sub(rf'\g<1>"{self._language}"', raw)
        names = [name for name in ATTRIBUTES if event.attributes.get(name)] if event.kind == "start" else []
        if event.kind == "start" and event.name == "meta":
            kind = event.attributes.get("name") or event.attributes.get("property") or ""
            names = ["content"] if META.fullmatch(kind) and event.attributes.get("content") else []
        for name in names:
            value = re.search(rf"""(?is)\s{name}\s*=\s*("[^"]*"|'[^']*')""", raw)
            markup = Markup()
            markup.add_text(event.attributes[name])
            if value is None or not markup.has_words:
                continue
            self._add(raw[: value.start(1)])
            self._add(_Hole('"', markup, value[1], '"', is_attribute=True), markup.text)
            raw = raw[value.end(1) :]
        self._add(raw)


def _is_void(event: Event) -> bool:
    return event.name in VOID or event.is_empty


def _is_fixed(event: Event) -> bool:
    classes = event.attributes.get("class", "").split()
    return event.name in NOT_TRANSLATED or event.attributes.get("translate") == "no" or "notranslate" in classes


def _has_text(event: Event) -> bool:
    return event.kind == "fixed" or (event.kind == "text" and not event.raw.isspace())


def _with_fixed_notes(run: list[Event]) -> list[Event]:
    """Merge each `<sup>` without a letter, such as the number of a note, into one event, which is a point."""
    events: list[Event] = []
    starts: list[int] = []
    last_letters = -1  # start of the last `<sup>` with a letter
    for event in run:
        events.append(event)
        if event.name == "sup" and event.kind == "start":
            starts.append(len(events) - 1)
        elif event.name == "sup" and event.kind == "end" and starts:
            start = starts.pop()
            if last_letters > start:
                continue  # a nested `<sup>` has letters: reading them again would be quadratic
            nested = events[start:]
            text = "".join(part.raw for part in nested if part.kind == "text")
            if not any(map(str.isalpha, html.unescape(text))):
                events[start:] = [Event("other", nested[0].start, raw="".join(part.raw for part in nested))]
            else:
                last_letters = start
    return events


def _with_partners(run: list[Event], first: int, last: int) -> tuple[int, int]:
    """Widen a span of a run until every element that starts or ends in it is wholly inside."""
    opened: list[int] = []
    partners = {}
    for index, event in enumerate(run):
        if event.kind == "start" and not _is_void(event):
            opened.append(index)
        elif event.kind == "end" and opened and run[opened[-1]].name == event.name:
            start = opened.pop()
            partners[start], partners[index] = index, start
    while True:
        inside = [partners[index] for index in range(first, last) if index in partners]
        wider = min([first, *inside]), max([last, *(index + 1 for index in inside)])
        if wider == (first, last):
            return first, last
        first, last = wider


def _escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("\xa0", "&nbsp;")


def _escaped_value(text: str) -> str:
    return escaped(text).replace('"', "&quot;")
