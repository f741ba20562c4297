"""Paragraphs of office documents, cut at their breaks into texts with markup, and files of such paragraphs."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from capsule_mt.formats.archive import Archive
from capsule_mt.formats.markup import MARKUP, Markup
from capsule_mt.formats.units import Translated, Unit
from capsule_mt.formats.xml import Element, Text

# characters of private use around the index of an action in `Paragraph._actions`
ACTION = re.compile("\ue000(\\d+)\ue001")
ACTION_MARKS = re.compile("[\ue000\ue001]")
BLANKS = re.compile(r"_{3,}|\.{5,}|\u2026{2,}")  # of a form, to be filled in
DESCRIPTIONS = {"docPr": ("title", "descr"), "cNvPr": ("title", "descr"), "shape": ("alt",)}  # attributes of elements
TABLE_DESCRIPTIONS = ("tblCaption", "tblDescription")  # elements in the properties of a table of Word
# programs describe a picture by the name of its file until somebody does better
PICTURE_FILE = re.compile(r"\s*|.*\.(?:bmp|emf|gif|jpe?g|png|svg|tiff?|webp|wmf)\s*", re.IGNORECASE)
SOFT_HYPHEN = "\xad"  # where a word of the source may be broken
Action = Callable[[], str] | str


class Paragraph(ABC):
    """A paragraph, cut at its breaks into parts; `passages` are the parts with words.

    The markup of a part stands for *actions*: a string is the format of the text after it, a function returns XML.
    The function is called when the paragraph is written: by then, those inside of it, as in a text box, have been.
    """

    kind = "paragraph"
    first_names: frozenset[str] = frozenset()  # of elements that stay before the text
    last_names: frozenset[str] = frozenset()  # and after it

    def __init__(self, element: Element) -> None:
        self._element = element
        self._actions: list[Action] = []
        self._parts: list[Markup | str] = []
        self._markup = Markup()
        edges = self.first_names | self.last_names
        self._add_all([child for child in element.children if isinstance(child, Text) or child.local not in edges])
        self._end()
        self.passages = [part for part in self._parts if isinstance(part, Markup) and part.has_words]

    def write(self, translations: Sequence[Translated]) -> None:
        if all(translated.text is None for translated in translations):
            return
        texts = _texts_of(self.passages, translations)
        written = []
        for part in self._parts:
            if isinstance(part, Markup):
                written.append(self._xml(part.filled(texts.get(id(part), part.text), self._escaped)))
            else:
                written.append(self._xml(part))
        children = self._element.elements
        first = [child for child in children if child.local in self.first_names]
        last = [child for child in children if child.local in self.last_names]
        self._element.children = [*first, Text("".join(written).encode()), *last]

    @abstractmethod
    def _add(self, child: "Element | Text") -> None:
        """Add a child of the paragraph or of an element in it."""

    def _add_all(self, children: "Sequence[Element | Text]") -> None:
        for child in children:
            self._add(child)

    @abstractmethod
    def _xml(self, text: str) -> str:
        """Return a text with actions as XML."""

    def _escaped(self, text: str) -> str:
        """Return a text as `_xml` takes it."""
        return ACTION_MARKS.sub("", text)

    def _action(self, action: Action) -> str:
        self._actions.append(action)
        return f"\ue000{len(self._actions) - 1}\ue001"

    def _add_text(self, text: str) -> None:
        offset = 0
        text = ACTION_MARKS.sub("", text.replace(SOFT_HYPHEN, ""))
        for blank in BLANKS.finditer(text):
            self._markup.add_text(text[offset : blank.start()])
            self._markup.add_fixed(blank[0])
            offset = blank.end()
        self._markup.add_text(text[offset:])

    def _add_break(self, action: Action) -> None:
        self._end()
        self._parts.append(self._action(action))

    def _end(self) -> None:
        self._parts.append(self._markup)
        self._markup = Markup()


class Description:
    """What an attribute says of a picture, shape or table for those who do not see it: a text for each line."""

    def __init__(self, element: Element, attribute: str, kind: str = "picture") -> None:
        self._element, self._attribute, self.kind = element, attribute, kind
        self._lines = []
        for line in element.attributes[attribute].split("\n"):
            markup = Markup()
            markup.add_text(line)
            self._lines.append(markup)
        self.passages = [line for line in self._lines if line.has_words]

    def write(self, translations: Sequence[Translated]) -> None:
        if all(translated.text is None for translated in translations):
            return
        texts = _texts_of(self.passages, translations)
        written = [line.filled(texts.get(id(line), line.text)) for line in self._lines]
        self._element.set_attribute(self._attribute, "\n".join(written))


class DocumentPart(NamedTuple):
    """A file of an archive whose paragraphs are translated; `label` precedes their numbers in messages."""

    name: str
    label: str
    tree: Element
    paragraphs: Sequence[tuple[int, Paragraph | Description]]  # with their numbers


class ParagraphFile:
    """A document of paragraphs and descriptions of pictures. Everything else stays as it is."""

    keep = MARKUP

    def __init__(self, archive: Archive, parts: Iterator[DocumentPart]) -> None:
        self._archive = archive
        self._document_parts = list(parts)
        self._paragraphs = [paragraph for part in self._document_parts for _, paragraph in part.paragraphs]
        self.units = [
            Unit(passage.text, f"{part.label}{paragraph.kind} {number}")
            for part in self._document_parts
            for number, paragraph in part.paragraphs
            for passage in paragraph.passages
        ]

    def write(self, translations: Sequence[Translated]) -> bytes:
        remaining = iter(translations)
        shares = [list(islice(remaining, len(paragraph.passages))) for paragraph in self._paragraphs]
        # backwards: a paragraph or picture in another paragraph must be written before that one copies its XML
        for paragraph, share in reversed(list(zip(self._paragraphs, shares, strict=True))):
            paragraph.write(share)
        return self._archive.written({part.name: lambda tree=part.tree: tree.raw for part in self._document_parts})  # type: ignore[misc]


def numbered(elements: Iterator[Element], paragraph_of: Callable[[Element], Paragraph]) -> list[tuple[int, Paragraph]]:
    """Return a paragraph for each element, with its number from 1."""
    return [(number, paragraph_of(element)) for number, element in enumerate(elements, start=1)]


def descriptions(tree: Element) -> list[tuple[int, Description]]:
    """Return the descriptions of the pictures and tables in Office Open XML, with their numbers from 1."""
    pictures = [element for element in tree.walk() if element.local in DESCRIPTIONS]
    picture_descriptions = [
        (number, Description(picture, attribute))
        for number, picture in enumerate(pictures, start=1)
        for attribute in DESCRIPTIONS[picture.local]
        if not PICTURE_FILE.fullmatch(picture.attributes.get(attribute, ""))
    ]
    tables = (element for element in tree.walk() if element.local == "tbl")
    table_descriptions = [
        (number, Description(child, "w:val", "table"))
        for number, table in enumerate(tables, start=1)
        for properties in table.elements
        if properties.local == "tblPr"
        for child in properties.elements
        if child.local in TABLE_DESCRIPTIONS and "w:val" in child.attributes
    ]
    return picture_descriptions + table_descriptions


def _texts_of(passages: Sequence[Markup], translations: Sequence[Translated]) -> dict[int, str]:
    """Return the translations of the passages that have one, by the identity of the passage."""
    pairs = zip(passages, translations, strict=True)
    return {id(passage): translated.text for passage, translated in pairs if translated.text is not None}
