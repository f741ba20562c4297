"""Word documents (.docx): paragraphs of text, tables, headers, footers and notes, with the format of their runs."""

import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice

from capsule_mt.formats.markup import MARKUP, Markup
from capsule_mt.formats.units import FormatError, Translated, Unit
from capsule_mt.formats.xml import MAX_BYTES, Element, Text, escaped, parse

# those of Word; 2 KB of bzip2 can unpack to 3 GB, whatever size the archive states
COMPRESSION_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml")
CONTAINERS = frozenset({"hyperlink", "ins", "smartTag", "fldSimple", "moveTo"})
BREAKS = frozenset({"tab", "br", "cr"})
DROPPED = frozenset({"proofErr", "lastRenderedPageBreak"})
NO_FORMAT = re.compile(rb"<w:(?:lang|noProof)\b[^>]*/>|<w:rPr>\s*</w:rPr>|<w:rPr/>")
# characters of private use around the index of an action in `_Paragraph.actions`
ACTION = re.compile("\ue000(\\d+)\ue001")
ACTION_MARKS = re.compile("[\ue000\ue001]")
CHARACTERS = {"noBreakHyphen": "\u2011", "softHyphen": "\u00ad"}


class _Paragraph:
    """A paragraph, cut at its breaks into parts; `holes` are the parts with words.

    The markup of a part stands for *actions*: a string is the format of the text behind it, a function returns XML.
    """

    def __init__(self, element: Element) -> None:
        self.element = element
        self.actions: list[Callable[[], str] | str] = []
        self.parts: list[Markup | str] = []
        self._markup = Markup()
        self._format = ""
        self._field: list[Element] = []  # the runs of an open field
        self._field_depth = 0
        formats: Counter[str] = Counter()
        for run in element.walk():
            if run.local == "r":
                formats[_format(run)] += len("".join(child.text for child in run.elements if child.local == "t"))
        self.base = formats.most_common(1)[0][0] if formats else ""
        self._format = self.base
        for child in element.elements:
            if child.local != "pPr":
                self._add(child)
        self._end()
        self.holes = [part for part in self.parts if isinstance(part, Markup) and part.has_words]

    def write(self, translations: Sequence[Translated]) -> None:
        if all(translated.text is None for translated in translations):
            return
        remaining, hole_ids = iter(translations), set(map(id, self.holes))
        written = []
        for part in self.parts:
            if isinstance(part, Markup):
                text = next(remaining).text if id(part) in hole_ids else None
                written.append(self._runs(part.filled(part.text if text is None else text, str)))
            else:
                written.append(self._runs(part))
        properties = [child for child in self.element.elements if child.local == "pPr"]
        self.element.children = [*properties, Text("".join(written).encode())]

    def _runs(self, filled: str) -> str:
        """Return the XML of the runs of a text with actions."""
        written, current = [], self.base
        for index, part in enumerate(ACTION.split(filled)):
            if index % 2:  # the index in an `ACTION`; even parts are text
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
        if self._field_depth or (element.local == "r" and _field_mark(element) == "begin"):
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
        run_format, properties = _format(run), _properties(run).decode()
        for child in run.elements:
            if child.local == "t" or child.local in CHARACTERS:
                self._set_format(run_format)
                self._markup.add_text(CHARACTERS.get(child.local, ACTION_MARKS.sub("", child.text)))
            elif child.local in BREAKS:
                self._end()
                self.parts.append(self._action(_wrapped(run, properties, child)))
            elif child.local not in DROPPED and child.local != "rPr":
                self._markup.add_point(self._action(_wrapped(run, properties, child)))

    def _add_field(self, element: Element) -> None:
        """Collect the runs of a field up to its result, which is text; a field without a result is a point."""
        mark = _field_mark(element)
        self._field.append(element)
        self._field_depth += (mark == "begin") - (mark == "end")
        runs = list(self._field)
        if self._field_depth == 1 and mark == "separate":
            self._set_format(self.base)
            self._markup.open(self._action(lambda: "".join(run.raw.decode() for run in runs)), "field")
        elif self._field_depth == 0:
            self._markup.add_point(self._action(lambda: "".join(run.raw.decode() for run in runs)))
        else:
            return
        self._field_depth, self._field = 0, []

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
            prefix = "" if part == "word/document.xml" else f"{part.removeprefix('word/').removesuffix('.xml')}, "
            elements = (element for element in tree.walk() if element.local == "p")
            for number, element in enumerate(elements, start=1):
                if element.name != "w:p":
                    continue
                paragraph = _Paragraph(element)
                self._paragraphs.append(paragraph)
                self.units += [Unit(hole.text, f"{prefix}paragraph {number}") for hole in paragraph.holes]

    def write(self, translations: Sequence[Translated]) -> bytes:
        remaining = iter(translations)
        shares = [list(islice(remaining, len(paragraph.holes))) for paragraph in self._paragraphs]
        # backwards: a paragraph inside another, as in a text box, must be written before the outer one copies its XML
        for paragraph, share in reversed(list(zip(self._paragraphs, shares, strict=True))):
            paragraph.write(share)
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            for part in self._archive.infolist():
                tree = self._trees.get(part.filename)
                archive.writestr(part, self._read(part) if tree is None else tree.raw)
        return written.getvalue()

    def _read(self, part: zipfile.ZipInfo) -> bytes:
        """Return the content of a part; no more is inflated than the size that the archive states."""
        with self._archive.open(part) as stream:
            return stream.read(part.file_size)


def _check(parts: Sequence[zipfile.ZipInfo], name: str) -> None:
    """Raise an error if an archive is not a Word document or would take too much memory."""
    names = Counter(part.filename for part in parts)
    if "word/document.xml" not in names:
        raise FormatError(f"{name}: not a Word document, it has no word/document.xml")
    duplicate = next((part for part, count in names.items() if count > 1), None)
    if duplicate is not None:
        raise FormatError(f"{name}: has the part {duplicate[:80]} twice")
    unsupported = next((part for part in parts if part.compress_type not in COMPRESSION_METHODS), None)
    if unsupported is not None:
        raise FormatError(
            f"{name}: {unsupported.filename[:80]} is compressed by method {unsupported.compress_type}; "
            "a Word document has 8 (deflate) or 0 (stored): save it again"
        )
    size = sum(part.file_size for part in parts)
    if size > MAX_BYTES:
        raise FormatError(f"{name}: its parts have {size} bytes, at most {MAX_BYTES} are read")


def _properties(run: Element) -> bytes:
    properties = run.find("rPr")
    return b"" if properties is None else properties.raw


def _format(run: Element) -> str:
    """Return the format of a run, without its language."""
    # twice: without its language, the element may be empty
    return NO_FORMAT.sub(b"", NO_FORMAT.sub(b"", _properties(run))).decode()


def _field_mark(run: Element) -> str:
    mark = run.find("fldChar")
    return mark.attributes.get("w:fldCharType", "") if mark is not None else ""


def _wrapped(run: Element, properties: str, child: Element) -> Callable[[], str]:
    """Return an action that writes a run with one child."""
    return lambda: f"{run.start.decode()}{properties}{child.raw.decode()}{run.end.decode()}"
