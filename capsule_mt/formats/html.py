"""HTML: blocks of text with inline elements. The rest, but the `lang` of `<html>`, stays byte for byte."""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser

from capsule_mt.formats.format import Format, InputFile
from capsule_mt.formats.markup import MARKUP, Markup, unescaped
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
ATTRIBUTES = (
    *("alt", "title", "placeholder", "aria-label", "aria-description", "aria-placeholder", "aria-roledescription"),
    "aria-valuetext",
)
BUTTONS = ("submit", "button", "reset")  # types of `<input>` whose value is shown and not what a person types
LABELLED = ("option", "optgroup", "track")
ATTRIBUTE = re.compile(r"""([^\s=>"'/]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+))?""")
# of XHTML, where `<a id="x"/>` is an element without content; an HTML page opens one
LONG_REFERENCE = re.compile(r"&#[0-9]{1000,}")  # too long for `int`, from 4,301 digits on
UNFINISHED_TAG = re.compile(r"</?[A-Za-z][^<>]*\Z")
XHTML = re.compile(r"<html\b[^<>]*\sxmlns\s*=")
LANGUAGE = re.compile(r"""(\s(?:xml:)?lang\s*=\s*)("[^"]*"|'[^']*'|[\w-]+)""")
WHOLE_PAGE = re.compile(rb"(?i)<(?:html|head)[\s>]")
META = re.compile(r"description|(?:og|twitter):(?:title|description|image:alt)", re.I)

FORMAT = Format(
    name="html",
    suffixes=(".html", ".htm", ".xhtml"),
    title="Web pages",
    reader=lambda file: _read(file),
    has_language_tags=True,
    keeps_mark=False,  # written by the encoding
    declaration=rb"""(?i)<meta[^>]+charset\s*=\s*(?:["']\s*)?([\w.:-]+)""",
    translated="text with its inline tags; `alt`, `title`, `placeholder`, `aria-label` and the like; labels of "
    "options and buttons, `<textarea>`, descriptions in `<meta>`; the `lang` of `<html>`",
    unchanged='code, `<pre>`, scripts, styles, comments, SVG, MathML, `translate="no"`, the `lang` of other elements',
    limits="texts in another language are translated as if they were in the source language",
    judges="html5lib, lxml",
)


@dataclass
class Event:
    """A part of the page: its characters from `start` up to the next event."""

    kind: str  # "start", "end", "text", "fixed" or "other"
    start: int
    name: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    raw: str = ""
    is_empty: bool = False  # an element without an end tag


class _HtmlReader(HTMLParser):
    def __init__(self, text: str, is_xml: bool) -> None:
        super().__init__(convert_charrefs=False)
        self._is_xml = is_xml
        self.events: list[Event] = []
        self._lines = [0]
        for match in re.finditer("\n", text):
            self._lines.append(match.end())
        unfinished = UNFINISHED_TAG.search(text)  # browsers drop it, `HTMLParser` takes it for text
        end = unfinished.start() if unfinished else len(text)
        # the parser replaces references in attributes by itself
        self.feed(LONG_REFERENCE.sub(lambda match: "_" * len(match[0]), text[:end]))
        self.close()
        if unfinished:
            self.events.append(Event("other", end))
        end = len(text)
        for event in reversed(self.events):
            event.raw, end = text[event.start : end], event.start

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
class _Slot:
    """A span of the page that a translation replaces: a run of text, or the value of an attribute.

    parts: the span as it is, with slots for the attributes of the tags in it.
    """

    prefix: str
    markup: Markup
    parts: "list[str | _Slot]"
    suffix: str
    escape: Callable[[str], str]
    translation: str | None = None

    def written(self) -> str:
        if self.translation is None:
            return _joined(self.parts)
        return self.prefix + self.markup.filled(self.translation, self.escape) + self.suffix


Part = str | _Slot


def _joined(parts: Sequence[Part]) -> str:
    return "".join(part if isinstance(part, str) else part.written() for part in parts)


class HtmlFile:
    """An HTML page, or a fragment of one."""

    keep = MARKUP

    def __init__(self, text: str, encoding: str = "utf-8", language: str | None = None) -> None:
        self.encoding, self._language = encoding, language
        self.units: list[Unit] = []
        self._parts: list[Part] = []
        self._slots: list[_Slot] = []
        self._line = 1
        self._run: list[Event] = []
        fixed: list[str] = []  # the open element that is not translated, and those of its name inside it
        raw: list[str] = []  # its source so far, if it is part of a sentence
        form_text: list[str] = []  # the content of a `<textarea>`
        is_form_text = False
        self._is_xml = XHTML.search(text) is not None
        for event in _HtmlReader(text, self._is_xml).events:
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
                elif fixed and is_form_text:
                    form_text.append(event.raw)
                else:
                    self._add_lines("".join(form_text))
                    form_text.clear()
                    self._add(event.raw)
                continue
            if event.kind == "start" and not _is_void(event) and _is_fixed(event):
                fixed.append(event.name)
                is_form_text = event.name == "textarea" and not _is_marked_fixed(event)
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
        self._add_lines("".join(form_text))
        self._end_run()

    def write(self, translations: Sequence[Translated]) -> bytes:
        for slot, translated in zip(self._slots, translations, strict=True):
            slot.translation = translated.text
        return _joined(self._parts).encode(self.encoding, "xmlcharrefreplace")

    def _add(self, raw: str) -> None:
        self._parts.append(raw)
        self._line += raw.count("\n")

    def _add_unit(self, slot: _Slot, text: str) -> None:
        self._slots.append(slot)
        self.units.append(Unit(text, f"line {self._line}"))

    def _end_run(self) -> None:
        """Make a slot of the inline content since the last block, without the space and markup at its ends."""
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
            self._add_slot(run[first:last])
        for event in run[last:]:
            self._add_block(event)

    def _add_slot(self, run: list[Event]) -> None:
        markup, raw, texts = Markup(), "".join(event.raw for event in run), list[str]()

        def flush_texts() -> None:
            if texts:
                markup.add_text(re.sub(r"[ \t\r\n\f]+", " ", unescaped("".join(texts))))
                texts.clear()

        parts: list[Part] = []
        attributes: list[_Slot] = []
        for event in _with_fixed_notes(run):
            if event.kind == "text":
                texts.append(event.raw)  # joined before unescaping: the parser may cut within a character reference
                parts.append(event.raw)
                continue
            flush_texts()
            tag = self._tag_parts(event)
            parts += tag
            attributes += [part for part in tag if isinstance(part, _Slot)]
            if event.kind == "fixed":
                markup.add_fixed(event.raw)
            else:
                markup.add_tag(event.raw, partial(_joined, tag))
        flush_texts()
        prefix, suffix = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :]
        if markup.has_words:
            slot = _Slot(prefix, markup, parts, suffix, escaped if self._is_xml else _escaped)
            self._add_unit(slot, markup.text.strip())
            parts = [slot]
        for attribute in attributes:
            self._add_unit(attribute, attribute.markup.text)
        self._parts += parts
        self._line += raw.count("\n")

    def _add_block(self, event: Event) -> None:
        """Add a part of the page, and translate only its attribute values."""
        for part in self._tag_parts(event):
            if isinstance(part, _Slot):
                self._add_unit(part, part.markup.text)
                self._parts.append(part)
                self._line += _joined(part.parts).count("\n")
            else:
                self._add(part)

    def _tag_parts(self, event: Event) -> list[Part]:
        """Return a tag with slots for the values of its attributes that are shown."""
        raw = event.raw
        if event.kind != "start":
            return [raw]
        if event.name == "html" and self._language:
            raw = LANGUAGE.sub(rf'\g<1>"{self._language}"', raw)
        names, offset, parts = _shown_attributes(event), 0, list[Part]()
        for attribute in ATTRIBUTE.finditer(raw, len(event.name) + 1):
            name, value = attribute[1].lower(), attribute[2]
            if value is None or name not in names:
                continue
            names.remove(name)  # of two attributes with one name, browsers take the first
            markup = Markup()
            markup.add_text(unescaped(value[1:-1] if value[0] in "\"'" else value))
            if markup.has_words:
                parts += [raw[offset : attribute.start(2)], _Slot('"', markup, [value], '"', _escaped_value)]
                offset = attribute.end(2)
        return [*parts, raw[offset:]]

    def _add_lines(self, raw: str) -> None:
        """Add the text of a `<textarea>`, whose lines are texts of their own."""
        for line in re.findall(r"[^\n]*\n|[^\n]+", raw):
            text = line.strip()
            markup = Markup()
            markup.add_text(unescaped(text))
            if "<" not in text and markup.has_words:
                prefix, _, suffix = line.partition(text)
                slot = _Slot(prefix, markup, [line], suffix, escaped if self._is_xml else _escaped)
                self._add_unit(slot, markup.text)
                self._parts.append(slot)
                self._line += line.count("\n")
            else:
                self._add(line)


def _read(file: InputFile) -> HtmlFile:
    """Read a page, to be written in the encoding that it states.

    Browsers do not read a page as UTF-8 unless it says so: in ASCII, other characters are references (`&#231;`).
    """
    is_ascii = file.content.isascii() and WHOLE_PAGE.search(file.content) is not None
    return HtmlFile(file.text, file.encoding or ("ascii" if is_ascii else "utf-8"), file.language)


def _shown_attributes(event: Event) -> set[str]:
    """Return the attributes of an element whose values are shown or read aloud."""
    if _is_marked_fixed(event):
        return set()
    if event.name == "meta":
        kind = event.attributes.get("name") or event.attributes.get("property") or ""
        return {"content"} if META.fullmatch(kind) else set()
    names = set(ATTRIBUTES)
    if event.name == "input" and event.attributes.get("type", "").lower() in BUTTONS:
        names.add("value")
    if event.name in LABELLED:
        names.add("label")
    return names


def _is_void(event: Event) -> bool:
    return event.name in VOID or event.is_empty


def _is_marked_fixed(event: Event) -> bool:
    classes = event.attributes.get("class", "").split()
    return event.attributes.get("translate") == "no" or "notranslate" in classes


def _is_fixed(event: Event) -> bool:
    return event.name in NOT_TRANSLATED or _is_marked_fixed(event)


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
            if not any(map(str.isalpha, unescaped(text))):
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
