"""XML as a tree that keeps the bytes of the file, so that unchanged parts are written back exactly.

`xml.etree` would rename prefixes, and Word rejects the result. We refuse document type declarations with entities,
which can expand 1 KB to gigabytes, or read other files.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from capsule_mt.formats.units import FormatError

MAX_BYTES = 256 << 20
MAX_DEPTH = 200  # of nested elements
OTHER_ENCODING = re.compile(r"""(?i)\A(<\?xml[^>]*encoding\s*=\s*)["'](?!utf-8["'])[^"']*["']""")
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass
class Text:
    """Characters, a comment or a processing instruction; only characters have a `text`."""

    raw: bytes
    text: str = ""


@dataclass
class Element:
    """An element; `name` has its prefix, `start` and `end` are the bytes of its tags."""

    name: str
    attributes: dict[str, str]
    line: int
    start: bytes = b""
    children: list[Element | Text] = field(default_factory=list)
    end: bytes = b""

    @property
    def local(self) -> str:
        return self.name.rpartition(":")[2]

    @property
    def raw(self) -> bytes:
        return self.start + b"".join(child.raw for child in self.children) + self.end

    @property
    def elements(self) -> list[Element]:
        return [child for child in self.children if isinstance(child, Element)]

    @property
    def text(self) -> str:
        return "".join(child.text for child in self.children)

    def find(self, name: str) -> Element | None:
        return next((child for child in self.elements if child.local == name), None)

    def fill(self, xml: str) -> None:
        """Replace the content of this element, whose tag may be an empty one."""
        if self.start.endswith(b"/>"):
            self.start = self.start.removesuffix(b"/>").rstrip() + b">"
        self.children, self.end = [Text(xml.encode())], f"</{self.name}>".encode()

    def set_attribute(self, name: str, value: str | None) -> None:
        """Set an attribute in the start tag, or remove it."""
        start = re.sub(rf"""\s{name}\s*=\s*("[^"]*"|'[^']*')""".encode(), b"", self.start)
        self.attributes.pop(name, None)
        if value is not None:
            self.attributes[name] = value
            content = start.removesuffix(b">").removesuffix(b"/").rstrip()
            # a parser would read a line break in an attribute as a space
            written = escaped(value).replace('"', "&quot;").replace("\n", "&#10;")
            start = content + f' {name}="{written}"'.encode() + start[len(content) :]
        self.start = start

    def replace_forms(self, forms: Sequence[Element], written: Sequence[str]) -> None:
        """Replace elements that stand side by side by others, with the white space before the first between them."""
        begin, end = self.children.index(forms[0]), self.children.index(forms[-1]) + 1
        previous = self.children[begin - 1] if begin else None
        separator = previous.raw.decode() if isinstance(previous, Text) and not previous.raw.strip() else ""
        self.children[begin:end] = [Text(separator.join(written).encode())]

    def walk(self) -> list[Element]:
        """Return this element and all its descendants, in document order."""
        return [self, *(element for child in self.elements for element in child.walk())]


def parse_text(text: str, name: str, allows_doctype: bool = False) -> Element:
    """Parse a text that is written as UTF-8, whatever encoding it declares."""
    return parse(OTHER_ENCODING.sub(r'\1"UTF-8"', text).encode("utf-8"), name, allows_doctype)


def parse(content: bytes, name: str, allows_doctype: bool = False) -> Element:
    """Return a nameless element with the root of a file and everything beside it, such as comments.

    allows_doctype: reads a DOCTYPE that only names the type and does not declare entities.
    """
    if len(content) > MAX_BYTES:
        raise FormatError(f"{name}: {len(content)} bytes of XML, at most {MAX_BYTES} are read")
    return _TreeBuilder(content, name, allows_doctype).top


class _TreeBuilder:
    """Builds the tree of a file from what expat reports."""

    def __init__(self, content: bytes, name: str, allows_doctype: bool) -> None:
        self._content, self._name, self._allows_doctype = content, name, allows_doctype
        prolog, self.top = Text(b""), Element("", {}, 0)  # `prolog` holds a byte-order mark
        self._opened = [self.top]
        self._last: tuple[Element | Text, str] = (prolog, "raw")  # the attribute of the bytes up to the next part
        self._offset = 0
        self._parser = self._new_parser()
        try:
            self._parser.Parse(content, True)
        except expat.ExpatError as error:
            raise FormatError(f"{name}, line {error.lineno}: not XML ({expat.ErrorString(error.code)})") from None
        setattr(*self._last, content[self._offset :])
        self.top.children.insert(0, prolog)

    def _new_parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate()
        parser.StartElementHandler, parser.CharacterDataHandler = self._start, self._characters
        parser.EndElementHandler = lambda _: self._begin(self._opened.pop(), "end")
        parser.CommentHandler = parser.ProcessingInstructionHandler = parser.XmlDeclHandler = self._markup
        parser.StartCdataSectionHandler = parser.EndCdataSectionHandler = self._markup
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EntityDeclHandler = parser.SkippedEntityHandler = self._refuse
        return parser

    def _begin(self, part: Element | Text, attribute: str = "raw") -> None:
        # expat reports where a part starts, not where it ends: its bytes are known when the next one begins
        start = self._parser.CurrentByteIndex
        setattr(*self._last, self._content[self._offset : start])
        self._last, self._offset = (part, attribute), start

    def _add(self, part: Text) -> None:
        self._begin(part)
        self._opened[-1].children.append(part)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, self._parser.CurrentLineNumber)
        self._begin(element, "start")
        if len(self._opened) > MAX_DEPTH:
            raise FormatError(f"{self._name}, line {element.line}: elements are nested more than {MAX_DEPTH} deep")
        self._opened[-1].children.append(element)
        self._opened.append(element)

    def _characters(self, data: str) -> None:
        part, children = self._last[0], self._opened[-1].children
        if isinstance(part, Text) and part.text and children and children[-1] is part:
            part.text += data  # expat reports line breaks and references on their own
        else:
            self._add(Text(b"", data))

    def _markup(self, *_: object) -> None:
        self._add(Text(b""))

    def _doctype(self, _: str, system_id: str | None, public_id: str | None, has_internal_subset: bool) -> None:
        if not self._allows_doctype or has_internal_subset:
            self._refuse()
        self._markup()

    def _refuse(self, *_: object) -> None:
        line = self._parser.CurrentLineNumber
        raise FormatError(f"{self._name}, line {line}: a DOCTYPE is refused, its entities are unsafe: remove it")


def escaped(text: str) -> str:
    """Escape a text, and drop the characters that XML forbids."""
    return html.escape(NOT_XML.sub("", text), quote=False)
