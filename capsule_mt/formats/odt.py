"""OpenDocument texts and presentations (.odt, .odp): paragraphs, headings, tables, headers, footers and notes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from capsule_mt.formats.archive import Archive, Kind
from capsule_mt.formats.format import Format
from capsule_mt.formats.paragraphs import ACTION, DocumentPart, Paragraph, ParagraphFile, numbered
from capsule_mt.formats.units import FormatError
from capsule_mt.formats.xml import Element, Text, escaped

KIND = Kind("an OpenDocument file", "content.xml")
MANIFEST = "META-INF/manifest.xml"
LABELS = {"content.xml": "", "styles.xml": "header or footer "}
PARAGRAPHS = frozenset({"text:p", "text:h", "svg:title", "svg:desc"})
NOT_TRANSLATED = frozenset({"text:tracked-changes", "office:annotation", "office:scripts", "style:style"})
PAIRS = frozenset({"text:span", "text:a", "text:meta", "text:ruby", "text:ruby-base"})
BREAKS = frozenset({"text:tab", "text:line-break"})
DROPPED = frozenset({"text:soft-page-break"})
REVISION = re.compile(r"officeooo:(?:paragraph-)?rsid")  # of an edit, which LibreOffice stores as a format

FORMAT = Format(
    name="odt",
    suffixes=(".odt", ".odp"),
    title="OpenDocument texts and presentations",
    reader=lambda file: OdtFile(file.content, file.name),
    is_binary=True,
    translated="text, tables, headers, footers, notes, text boxes, descriptions of pictures",
    unchanged="pictures, styles, comments, deleted text, fields, blanks to fill in",
    limits="an encrypted document is refused; soft hyphens are dropped",
    judges="odfpy",
)


class OdtParagraph(Paragraph):
    """A paragraph of mixed content. Spans without a format are not markup; adjacent ones of one format are one."""

    def __init__(self, element: Element, plain_styles: frozenset[str]) -> None:
        self._plain_styles = plain_styles
        self._follows_space = True
        super().__init__(element)

    def _xml(self, filled: str) -> str:
        written = []
        for index, part in enumerate(ACTION.split(filled)):
            action = self._actions[int(part)] if index % 2 else part
            written.append(action() if callable(action) else escaped(action))
        return "".join(written)

    def _add(self, child: "Element | Text") -> None:
        if isinstance(child, Text):
            self._add_spaced(child.text)
        elif child.name == "text:span" and child.attributes.get("text:style-name") in self._plain_styles:
            self._add_all(child.children)
        elif child.name in PAIRS:
            self._markup.open(self._action(lambda: child.start.decode()), child.name)
            self._add_all(child.children)
            self._markup.close(self._action(lambda: child.end.decode()), child.name)
        elif child.name == "text:s":
            self._add_spaced(" ")
        elif child.name in BREAKS:
            self._add_break(lambda: child.raw.decode())
            self._follows_space = True
        elif child.name not in DROPPED:
            # a field, such as a number, is a word of the sentence; a picture or a note stands between words
            is_field = child.name.startswith("text:") and child.text.strip() and not child.elements
            add = self._markup.add_fixed if is_field else self._markup.add_point
            add(self._action(lambda: child.raw.decode()))
            self._follows_space = self._follows_space and not is_field

    def _add_all(self, children: "Sequence[Element | Text]") -> None:
        merged: list[Element | Text] = []
        for child in children:
            last = merged[-1] if merged else None
            if isinstance(last, Element) and isinstance(child, Element) and _are_one_span(last, child):
                last.children += child.children
            elif isinstance(child, Element):
                merged.append(replace(child, children=list(child.children)))
            else:
                merged.append(child)
        for child in merged:
            self._add(child)

    def _add_spaced(self, text: str) -> None:
        """Add a text, whose white space means one space."""
        text = re.sub(r"[ \t\r\n]+", " ", text)
        if self._follows_space:
            text = text.lstrip(" ")
        if text:
            self._follows_space = text.endswith(" ")
            self._add_text(text)


def _are_one_span(first: Element, second: Element) -> bool:
    return first.name == second.name == "text:span" and first.end != b"" and first.attributes == second.attributes


class OdtFile(ParagraphFile):
    """An OpenDocument file."""

    def __init__(self, content: bytes, name: str = "the document") -> None:
        archive = Archive(content, name, KIND)
        if MANIFEST in archive.names and b"encryption-data" in archive.read(MANIFEST):
            raise FormatError(f"{name}: is encrypted: save it without a password")
        super().__init__(archive, _document_parts(archive))


def _document_parts(archive: Archive) -> Iterator[DocumentPart]:
    for part, label in LABELS.items():
        if part in archive.names:
            tree = archive.tree(part)
            plain_styles = _plain_styles(tree)
            elements = _paragraphs(tree, part == KIND.main_part)
            paragraphs = numbered(elements, lambda element: OdtParagraph(element, plain_styles))  # noqa: B023
            yield DocumentPart(part, label, tree, paragraphs)


def _paragraphs(element: Element, is_shown: bool) -> Iterator[Element]:
    """Yield the elements of paragraphs that are shown; in the styles, only headers and footers are."""
    if element.name in NOT_TRANSLATED:
        return
    is_shown = is_shown or element.name.startswith(("style:header", "style:footer"))
    if is_shown and element.name in PARAGRAPHS:
        yield element
    for child in element.elements:
        yield from _paragraphs(child, is_shown)


def _plain_styles(tree: Element) -> frozenset[str]:
    """Return the names of the automatic styles that only say when a text was edited."""
    names = set()
    for style in tree.walk():
        if style.name == "style:style" and style.attributes.get("style:family") == "text":
            formats = [name for child in style.elements for name in child.attributes if not REVISION.fullmatch(name)]
            if not formats and "style:parent-style-name" not in style.attributes:
                names.add(style.attributes.get("style:name", ""))
    return frozenset(names)
