"""Electronic books (.epub): pages, first those in reading order, tables of contents, titles and descriptions."""

import posixpath
import re
from collections.abc import Callable, Sequence
from itertools import islice
from urllib.parse import unquote

from capsule_mt.formats.archive import Archive, Kind
from capsule_mt.formats.format import Format
from capsule_mt.formats.html import HtmlFile
from capsule_mt.formats.markup import MARKUP, Markup
from capsule_mt.formats.units import FormatError, Parsed, Translated, Unit, named_errors
from capsule_mt.formats.xml import Element, Text, escaped

KIND = Kind("an EPUB book", "META-INF/container.xml")
ENCRYPTION = "META-INF/encryption.xml"
PAGES = ("application/xhtml+xml", "text/html")
CONTENTS = "application/x-dtbncx+xml"  # the table of contents of EPUB 2
METADATA = frozenset({"dc:title", "dc:description", "dc:subject"})
ENCODING = re.compile(rb"""\A(?:\xef\xbb\xbf)?\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)""")

FORMAT = Format(
    name="epub",
    suffixes=(".epub",),
    title="Electronic books",
    reader=lambda file: EpubFile(file.content, file.name, file.language),
    is_binary=True,
    has_language_tags=True,
    translated="pages as in `.html`, the table of contents, title, description, subjects, the language",
    unchanged="styles, fonts, pictures, addresses",
    limits="a book with copy protection, and a `DOCTYPE` with entities outside of pages, are refused",
    judges="ebooklib, lxml",
)


class EpubFile:
    """A book. Only its pages, its tables of contents and its package change."""

    keep = MARKUP

    def __init__(self, content: bytes, name: str = "the book", language: str | None = None) -> None:
        self._archive = Archive(content, name, KIND)
        self._encrypted = self._encrypted_parts()
        package_name = self._package_name(name)
        package = self._archive.tree(package_name, allows_doctype=True)
        self._parts: dict[str, Parsed] = {package_name: _LabelFile(package, METADATA.__contains__, language)}
        for part, media_type in _items(package, posixpath.dirname(package_name)):
            if part in self._parts or part not in self._archive.names or media_type not in (*PAGES, CONTENTS):
                continue
            if part in self._encrypted:
                raise FormatError(f"{name}: {part[:80]} is encrypted: only books without copy protection are read")
            if media_type == CONTENTS:
                self._parts[part] = _LabelFile(self._archive.tree(part, allows_doctype=True), _is_label, language)
            else:
                self._parts[part] = self._page(part, language)
        self.units = [
            unit._replace(location=f"{part}, {unit.location}")
            for part, file in self._parts.items()
            for unit in file.units
        ]

    def write(self, translations: Sequence[Translated]) -> bytes:
        remaining = iter(translations)
        shares = {part: list(islice(remaining, len(file.units))) for part, file in self._parts.items()}
        return self._archive.written({part: self._writer(file, shares[part]) for part, file in self._parts.items()})

    @staticmethod
    def _writer(file: Parsed, share: list[Translated]) -> Callable[[], bytes]:
        return lambda: file.write(share)

    def _encrypted_parts(self) -> set[str]:
        if ENCRYPTION not in self._archive.names:
            return set()
        elements = self._archive.tree(ENCRYPTION).walk()
        return {
            unquote(element.attributes.get("URI", "")) for element in elements if element.local == "CipherReference"
        }

    def _package_name(self, name: str) -> str:
        """Return the name of the part that lists all others."""
        files = (element for element in self._archive.tree(KIND.main_part).walk() if element.local == "rootfile")
        package = unquote(next((file.attributes.get("full-path", "") for file in files), ""))
        if package not in self._archive.names:
            raise FormatError(f"{name}: not an EPUB book, {KIND.main_part} names no package that it has")
        return package

    def _page(self, part: str, language: str | None) -> HtmlFile:
        from capsule_mt.files.encodings import check_encoding, encoding_of_mark  # late: most formats need neither
        from capsule_mt.files.reading import decoded

        content = self._archive.read(part)
        declared = ENCODING.match(content)
        encoding = encoding_of_mark(content) or (declared[1].decode("ascii") if declared else "utf-8")
        name = f"{self._archive.name}, {part}"
        try:
            check_encoding(encoding)
        except ValueError as error:
            raise FormatError(f"{name}: {error}") from None
        try:
            text = decoded(content, name, encoding)
        except ValueError as error:
            raise FormatError(str(error)) from None
        with named_errors(name, "XHTML"):
            return HtmlFile(text, encoding, language)


class _LabelFile:
    """An XML file some of whose elements are a text without markup: the package, or the table of contents.

    Its `dc:language` becomes the target language.
    """

    keep: Sequence[str] = ()

    def __init__(self, tree: Element, is_label: Callable[[str], bool], language: str | None) -> None:
        self._tree, self._language = tree, language
        self._labels: list[Element] = []
        self.units: list[Unit] = []
        for element in tree.walk():
            markup = Markup()
            markup.add_text(" ".join(element.text.split()))
            if is_label(element.name) and not element.elements and markup.has_words:
                self._labels.append(element)
                self.units.append(Unit(markup.text, f"line {element.line}"))

    def write(self, translations: Sequence[Translated]) -> bytes:
        for element, translated in zip(self._labels, translations, strict=True):
            if translated.text is not None:
                element.children = [Text(escaped(translated.text).encode())]
        for element in self._tree.walk():
            if element.name == "dc:language" and self._language:
                element.children = [Text(escaped(self._language).encode())]
        return self._tree.raw


def _is_label(name: str) -> bool:
    return name.rpartition(":")[2] == "text"


def _items(package: Element, folder: str) -> list[tuple[str, str]]:
    """Return the part and the media type of each item: first those in the reading order, then all others."""
    elements = package.walk()
    items = {}
    for element in elements:
        if element.local == "item":
            part = posixpath.normpath(posixpath.join(folder, unquote(element.attributes.get("href", ""))))
            items[element.attributes.get("id", "")] = (part, element.attributes.get("media-type", ""))
    order = [element.attributes.get("idref", "") for element in elements if element.local == "itemref"]
    ids = dict.fromkeys([*(item_id for item_id in order if item_id in items), *items])
    return [items[item_id] for item_id in ids]
