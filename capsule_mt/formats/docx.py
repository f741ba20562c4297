"""Word documents (.docx): paragraphs of text, tables, headers, footers and notes, with the format of their runs."""

import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence

from capsule_mt.formats.markup import MARKUP, Markup
from capsule_mt.formats.units import FormatError, Translated, Unit
from capsule_mt.formats.xml import LONGEST, Element, Text, escaped, parse

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # Word's own; 2 KB of bzip2 can be 3 GB, whatever it states
PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml")
CONTAINERS = frozenset({"hyperlink", "ins", "smartTag", "fldSimple", "moveTo"})
BREAKS = frozenset({"tab", "br", "cr"})
DROPPED = frozenset({"proofErr", "lastRenderedPageBreak"})
NO_FORMAT = re.compile(rb"<w:(?:lang|noProof)\b[^>]*/>|<w:rPr>\s*</w:rPr>|<w:rPr/>")
ACTION = re.compile("\ue000(\\d+)\ue001")
MARKS = re.compile("[\ue000\ue001]")  # of private use: they stand for actions
CHARACTERS = {"noBreakHyphen": "\u2011", "softHyphen": "\u00ad"}


class _Paragraph:
    """A paragraph as runs between breaks; `holes` are those with words."""

    def __init__(self, element: Element) -> None:
        self.element = element
        self.actions: list[Callable[[], str] | str] = []  # the format from here on, or what is written
        self.parts: list[Markup | str] = []
        self._markup = Markup()
        self._format = ""
        self._field: list[Element] = []
        self._fields = 0
        formats: Counter[str] = Counter()
        for run in element.walk():
            if run.local == "r":
                formats[_format(run)] += len("".join(one.text for one in run.elements if one.local == "t"))
        self.base = formats.most_common(1)[0][0] if formats else ""
        self._format = self.base
        for child in element.elements:
            if child.local != "pPr":
                self._add(child)
        self._end()
        self.holes = [part for part in self.parts if isinstance(part, Markup) and part.has_words]

    def write(self, translations: Sequence[Translated]) -> None:
        if all(one.text is None for one in translations):
            return
        waiting, holes = iter(translations), set(map(id, self.holes))
        written = []
        for part in self.parts:
            if isinstance(part, Markup):
                found = next(waiting).text if id(part) in holes else None
                written.append(self._runs(part.filled(part.text if found is None else found, str)))
            else:
                written.append(self._runs(part))
        properties = [child for child in self.element.elements if child.local == "pPr"]
        self.element.children = [*properties, Text("".join(written).encode())]

    def _runs(self, filled: str) -> str:
        """Return a text with actions in it as runs."""
        written, current = [], self.base
        for place, part in enumerate(ACTION.split(filled)):
            if place % 2:
                action = self.actions[int(part)]
                if callable(action):
                    written.append(action())
                else:
                    current = action
            elif part:
                written.append(f'<w:r>{current}<w:t xml:space="preserve">{escaped(part)}</w:t></w:r>')
        return "".join(written)

    def _action(self, action: Callable[[], str] | str) -> str:
        self.actions.append(action)
        return f"\ue000{len(self.actions) - 1}\ue001"

    def _add(self, element: Element) -> None:
        if self._fields or (element.local == "r" and _field_mark(element) == "begin"):
            self._add_field(element)
        elif element.local == "r":
            self._add_run(element)
        elif element.local in CONTAINERS:
            self._set_format(self.base)
            self._markup.open(self._action(lambda: element.start.decode()), element.local)
            for child in element.elements:
                self._add(child)
            self._set_format(self.base)
            self._markup.close(self._action(lambda: element.end.decode()), element.local)
        elif element.local not in DROPPED:
            self._markup.add_point(self._action(lambda: element.raw.decode()))

    def _add_run(self, run: Element) -> None:
        mark = _field_mark(run)
        if mark == "end":
            self._set_format(self.base)
            self._markup.close(self._action(lambda: run.raw.decode()), "field")
            return
        own, raw = _format(run), next((one.raw.decode() for one in run.elements if one.local == "rPr"), "")
        for child in run.elements:
            if child.local == "t" or child.local in CHARACTERS:
                self._set_format(own)
                self._markup.add_text(CHARACTERS.get(child.local, MARKS.sub("", child.text)))
            elif child.local in BREAKS:
                self._end()
                self.parts.append(self._action(_wrapped(run, raw, child)))
            elif child.local not in DROPPED and child.local != "rPr":
                self._markup.add_point(self._action(_wrapped(run, raw, child)))

    def _add_field(self, element: Element) -> None:
        """Collect a field up to its result, which is text; a field without a result is a point."""
        mark = _field_mark(element)
        self._field.append(element)
        self._fields += (mark == "begin") - (mark == "end")
        parts = list(self._field)
        if self._fields == 1 and mark == "separate":
            self._set_format(self.base)
            self._markup.open(self._action(lambda: "".join(one.raw.decode() for one in parts)), "field")
        elif self._fields == 0:
            self._markup.add_point(self._action(lambda: "".join(one.raw.decode() for one in parts)))
        else:
            return
        self._fields, self._field = 0, []

    def _set_format(self, new: str) -> None:
        if new == self._format:
            return
        if self._format != self.base:
            self._markup.close(self._action(self.base), "format")
        if new != self.base:
            self._markup.open(self._action(new), "format")
        self._format = new

    def _end(self) -> None:
        self._set_format(self.base)
        self.parts.append(self._markup)
        self._markup = Markup()


class DocxFile:
    """A Word document. Pictures, styles, comments and everything else stay as they are."""

    keep = MARKUP

    def __init__(self, content: bytes, name: str = "the document") -> None:
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(content))
            parts = self._archive.infolist()
            _check(parts, name)
            self._trees = {
                part.filename: parse(self._read(part), f"{name}, {part.filename}")
                for part in parts
                if PARTS.fullmatch(part.filename)
            }
        except (
            *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error),
            *(EOFError, NotImplementedError, RuntimeError, OSError),
        ) as error:
            raise FormatError(f"{name}: not a Word document, or a damaged one ({error})") from None
        self._paragraphs: list[_Paragraph] = []
        self.units: list[Unit] = []
        for part, tree in self._trees.items():
            before = "" if part == "word/document.xml" else f"{part.removeprefix('word/').removesuffix('.xml')}, "
            for number, element in enumerate((one for one in tree.walk() if one.local == "p"), start=1):
                if element.name != "w:p":
                    continue
                paragraph = _Paragraph(element)
                self._paragraphs.append(paragraph)
                self.units += [Unit(hole.text, f"{before}paragraph {number}") for hole in paragraph.holes]

    def write(self, translations: Sequence[Translated]) -> bytes:
        place, shares = 0, []
        for paragraph in self._paragraphs:
            shares.append(translations[place : place + len(paragraph.holes)])
            place += len(paragraph.holes)
        # those inside of others, as in text boxes, first
        for paragraph, own in reversed(list(zip(self._paragraphs, shares, strict=True))):
            paragraph.write(own)
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            for part in self._archive.infolist():
                tree = self._trees.get(part.filename)
                archive.writestr(part, self._read(part) if tree is None else tree.raw)
        return written.getvalue()

    def _read(self, part: zipfile.ZipInfo) -> bytes:
        """Return the content of a part, of which no more is inflated than it states."""
        with self._archive.open(part) as stream:
            return stream.read(part.file_size)


def _check(parts: Sequence[zipfile.ZipInfo], name: str) -> None:
    """Raise an error for an archive that is not a Word document, or would take too much memory."""
    names = Counter(part.filename for part in parts)
    if "word/document.xml" not in names:
        raise FormatError(f"{name}: not a Word document, it has no word/document.xml")
    duplicate = next((part for part, count in names.items() if count > 1), None)
    if duplicate is not None:
        raise FormatError(f"{name}: has the part {duplicate[:80]} twice")
    unsupported = next((part for part in parts if part.compress_type not in METHODS), None)
    if unsupported is not None:
        raise FormatError(
            f"{name}: {unsupported.filename[:80]} is compressed by method {unsupported.compress_type}; "
            "a Word document has 8 (deflate) or 0 (stored): save it again"
        )
    size = sum(part.file_size for part in parts)
    if size > LONGEST:
        raise FormatError(f"{name}: its parts have {size} bytes, more than the {LONGEST} that are read")


def _format(run: Element) -> str:
    """Return the format of a run, without its language."""
    found = next((one.raw for one in run.elements if one.local == "rPr"), b"")
    return NO_FORMAT.sub(b"", NO_FORMAT.sub(b"", found)).decode()


def _field_mark(run: Element) -> str:
    mark = run.find("fldChar")
    return mark.attributes.get("w:fldCharType", "") if mark is not None else ""


def _wrapped(run: Element, properties: str, child: Element) -> Callable[[], str]:
    """Return what writes a run of one child."""
    return lambda: f"{run.start.decode()}{properties}{child.raw.decode()}{run.end.decode()}"
