"""XML as a tree whose parts are the bytes of the file: what is not changed is written as it was.

`xml.etree` would rename prefixes, which Word refuses. A document type declaration is refused: by its entities, 1 KB
becomes gigabytes, or reads other files.
"""

import html
import re
from dataclasses import dataclass, field
from xml.parsers import expat

from capsule_mt.formats.units import FormatError

LONGEST = 256 << 20  # bytes
DEEPEST = 200  # elements inside each other
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass
class Text:
    """Characters, a comment or a processing instruction; only characters have a `text`."""

    raw: bytes
    text: str = ""


@dataclass
class Element:
    """An element by its name with its prefix, as it is written; `raw` are its start tag and its end tag."""

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
        """Return this and all elements in it, in the order of the file."""
        return [self, *(found for child in self.elements for found in child.walk())]


def parse(content: bytes, name: str) -> Element:
    """Return the tree of a file below an element without a name, which also holds what is beside the root."""
    if len(content) > LONGEST:
        raise FormatError(f"{name}: {len(content)} bytes of XML are more than the {LONGEST} that are read")
    parser = expat.ParserCreate()
    before, top = Text(b""), Element("", {}, 0)  # `before` is a byte-order mark
    opened = [top]
    last: tuple[Element | Text, str] = (before, "raw")  # where the bytes up to the next part go
    first = 0

    def begin(part: "Element | Text", bytes_of: str = "raw") -> None:
        nonlocal last, first
        setattr(*last, content[first : parser.CurrentByteIndex])
        last, first = (part, bytes_of), parser.CurrentByteIndex

    def refuse(*_: object) -> None:
        raise FormatError(f"{name}, line {parser.CurrentLineNumber}: a DOCTYPE is refused, its entities are not safe")

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, parser.CurrentLineNumber)
        begin(element, "start")
        if len(opened) > DEEPEST:
            raise FormatError(f"{name}, line {element.line}: elements are nested more than {DEEPEST} deep")
        opened[-1].children.append(element)
        opened.append(element)

    def text(data: str) -> None:
        part = Text(b"", data)
        begin(part)
        opened[-1].children.append(part)

    def other(*_: object) -> None:
        text("")

    parser.StartElementHandler, parser.CharacterDataHandler = start, text
    parser.EndElementHandler = lambda _: begin(opened.pop(), "end")
    parser.CommentHandler = parser.ProcessingInstructionHandler = parser.XmlDeclHandler = other
    parser.StartCdataSectionHandler = parser.EndCdataSectionHandler = other
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise FormatError(f"{name}, line {error.lineno}: no XML ({expat.ErrorString(error.code)})") from None
    setattr(*last, content[first:])
    top.children.insert(0, before)
    return top


def escaped(text: str) -> str:
    """Escape a text, and leave out the characters that XML has not."""
    return html.escape(NOT_XML.sub("", text), quote=False)
