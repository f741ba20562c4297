"""XML as a tree that keeps the bytes of the file, so that unchanged parts are written back exactly.

`xml.etree` would rename prefixes, and Word rejects the result. We refuse document type declarations: their entities
can expand 1 KB to gigabytes, or read other files.
"""

import html
import re
from dataclasses import dataclass, field
from xml.parsers import expat

from capsule_mt.formats.units import FormatError

MAX_BYTES = 256 << 20
MAX_DEPTH = 200  # of nested elements
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
    children: "list[Element | Text]" = field(default_factory=list)
    end: bytes = b""

    @property
    def local(self) -> str:
        return self.name.rpartition(":")[2]

    @property
    def raw(self) -> bytes:
        return self.start + b"".join(child.raw for child in self.children) + self.end

    @property
    def elements(self) -> "list[Element]":
        return [child for child in self.children if isinstance(child, Element)]

    @property
    def text(self) -> str:
        return "".join(child.text for child in self.children)

    def find(self, name: str) -> "Element | None":
        return next((child for child in self.elements if child.local == name), None)

    def walk(self) -> "list[Element]":
        """Return this element and all its descendants, in document order."""
        return [self, *(element for child in self.elements for element in child.walk())]


def parse(content: bytes, name: str) -> Element:
    """Return a nameless element with the root of a file and everything beside it, such as comments."""
    if len(content) > MAX_BYTES:
        raise FormatError(f"{name}: {len(content)} bytes of XML, at most {MAX_BYTES} are read")
    parser = expat.ParserCreate()
    prolog, top = Text(b""), Element("", {}, 0)  # `prolog` holds a byte-order mark
    opened = [top]
    last: tuple[Element | Text, str] = (prolog, "raw")  # the attribute that gets the bytes up to the next part
    offset = 0

    def begin(part: "Element | Text", attribute: str = "raw") -> None:
        # expat reports where a part starts, not where it ends: its bytes are known when the next one begins
        nonlocal last, offset
        setattr(*last, content[offset : parser.CurrentByteIndex])
        last, offset = (part, attribute), parser.CurrentByteIndex

    def refuse(*_: object) -> None:
        line = parser.CurrentLineNumber
        raise FormatError(f"{name}, line {line}: a DOCTYPE is refused, its entities are unsafe: remove it")

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, parser.CurrentLineNumber)
        begin(element, "start")
        if len(opened) > MAX_DEPTH:
            raise FormatError(f"{name}, line {element.line}: elements are nested more than {MAX_DEPTH} deep")
        opened[-1].children.append(element)
        opened.append(element)

    def text(data: str) -> None:
        part = Text(b"", data)
        begin(part)
        opened[-1].children.append(part)

    def markup(*_: object) -> None:
        text("")

    parser.StartElementHandler, parser.CharacterDataHandler = start, text
    parser.EndElementHandler = lambda _: begin(opened.pop(), "end")
    parser.CommentHandler = parser.ProcessingInstructionHandler = parser.XmlDeclHandler = markup
    parser.StartCdataSectionHandler = parser.EndCdataSectionHandler = markup
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise FormatError(f"{name}, line {error.lineno}: not XML ({expat.ErrorString(error.code)})") from None
    setattr(*last, content[offset:])
    top.children.insert(0, prolog)
    return top


def escaped(text: str) -> str:
    """Escape a text, and drop the characters that XML forbids."""
    return html.escape(NOT_XML.sub("", text), quote=False)
