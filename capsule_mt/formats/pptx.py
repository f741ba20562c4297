"""PowerPoint presentations (.pptx): the texts of slides, tables, diagrams and notes, and titles of charts."""

import re
from collections.abc import Iterator

from capsule_mt.formats.archive import Archive, Kind
from capsule_mt.formats.format import Format
from capsule_mt.formats.paragraphs import DocumentPart, ParagraphFile, descriptions, numbered
from capsule_mt.formats.runs import Dialect, RunParagraph

KIND = Kind("a PowerPoint presentation", "ppt/presentation.xml")
# without masters and layouts, whose placeholders a show does not have
PARTS = re.compile(
    r"ppt/(?:slides/(slide)|notesSlides/(notes)Slide|charts/(chart)|diagrams/(d)(?:ata|rawing))(\d+)\.xml"
)
LABELS = {"slide": "slide {}, ", "notes": "notes {}, ", "chart": "chart {}, ", "d": "diagram {}, "}
DIALECT = Dialect(
    "a",
    "<a:t>",
    re.compile(
        rb'\s(?:lang|altLang|dirty|err|smtClean|smtId|noProof)="[^"]*"|<a:rPr\s*/>|<a:rPr\s*>\s*</a:rPr>',
    ),
)

FORMAT = Format(
    name="pptx",
    suffixes=(".pptx",),
    title="PowerPoint presentations",
    reader=lambda file: PptxFile(file.content, file.name),
    is_binary=True,
    translated="slides, tables, titles of charts, diagrams, speaker notes, descriptions of pictures",
    unchanged="the format of each run; pictures, masters, layouts, comments, blanks to fill in",
    limits="an encrypted presentation is refused; soft hyphens are dropped",
    judges="python-pptx",
)


class PptxFile(ParagraphFile):
    """A PowerPoint presentation."""

    def __init__(self, content: bytes, name: str = "the presentation") -> None:
        archive = Archive(content, name, KIND)
        super().__init__(archive, _document_parts(archive))


def _document_parts(archive: Archive) -> Iterator[DocumentPart]:
    """Yield the parts with text: slides first, by their numbers."""
    matches = [match for part in archive.names if (match := PARTS.fullmatch(part))]
    kinds = list(LABELS)
    for match in sorted(matches, key=lambda match: (kinds.index(_kind(match)), int(match[5]), match[0])):
        tree = archive.tree(match[0])
        elements = (element for element in tree.walk() if element.name == "a:p")
        paragraphs = numbered(elements, lambda element: RunParagraph(element, DIALECT))
        label = LABELS[_kind(match)].format(match[5])
        yield DocumentPart(match[0], label, tree, [*paragraphs, *descriptions(tree)])


def _kind(match: "re.Match[str]") -> str:
    return next(kind for kind in match.groups() if kind)
