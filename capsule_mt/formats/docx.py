"""Word documents (.docx): text, tables, headers, footers and notes with the format of runs; pictures' descriptions."""

import re
from collections.abc import Iterator

from capsule_mt.formats.archive import Archive, Kind
from capsule_mt.formats.format import Format
from capsule_mt.formats.paragraphs import DocumentPart, Paragraph, ParagraphFile, descriptions
from capsule_mt.formats.runs import Dialect, RunParagraph

KIND = Kind("a Word document", "word/document.xml")
PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml")
DIALECT = Dialect(
    "w",
    '<w:t xml:space="preserve">',
    re.compile(rb"<w:(?:lang|noProof)\b[^<>]*/>|<w:rPr>\s*</w:rPr>|<w:rPr/>"),
)

FORMAT = Format(
    name="docx",
    suffixes=(".docx",),
    title="Word documents",
    reader=lambda file: DocxFile(file.content, file.name),
    is_binary=True,
    translated="text, tables, headers, footers, notes, text boxes, descriptions of pictures",
    unchanged="the format of each run; pictures, styles, comments, codes of fields, blanks to fill in",
    limits="an encrypted document is refused; soft hyphens are dropped",
    judges="python-docx",
)


class DocxFile(ParagraphFile):
    """A Word document."""

    def __init__(self, content: bytes, name: str = "the document") -> None:
        archive = Archive(content, name, KIND)
        super().__init__(archive, _document_parts(archive))


def _document_parts(archive: Archive) -> Iterator[DocumentPart]:
    for part in filter(PARTS.fullmatch, archive.names):
        label = "" if part == KIND.main_part else f"{part.removeprefix('word/').removesuffix('.xml')}, "
        tree = archive.tree(part)
        # paragraphs of drawings, which have another prefix, count, too
        elements = enumerate((element for element in tree.walk() if element.local == "p"), start=1)
        paragraphs: list[tuple[int, Paragraph]] = [
            (number, RunParagraph(element, DIALECT)) for number, element in elements if element.name == "w:p"
        ]
        yield DocumentPart(part, label, tree, [*paragraphs, *descriptions(tree)])
