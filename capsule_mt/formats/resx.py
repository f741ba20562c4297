"""Resources of .NET (.resx): the values of texts; images, sizes and the names of a designer stay as they are."""

from capsule_mt.formats.catalog import Message
from capsule_mt.formats.format import XML_DECLARATION, Format
from capsule_mt.formats.units import FormatError
from capsule_mt.formats.xml import escaped
from capsule_mt.formats.xml_catalog import XmlCatalog

FORMAT = Format(
    name="resx",
    suffixes=(".resx", ".resw"),
    title="Resources of .NET",
    reader=lambda file: ResxFile(file.text, file.name),
    declaration=XML_DECLARATION,
    translated="values of texts, menu keys (`&File`)",
    unchanged="images, sizes, the designer's names (`>>`), comments",
    limits="a `DOCTYPE` is refused",
    judges="translate-toolkit",
)


class ResxFile(XmlCatalog):
    """A file of resources."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name)
        root = next(iter(self._top.elements))
        if root.name != "root":
            raise FormatError(f"{name}, line {root.line}: the root of a .resx must be <root>, got <{root.name[:40]}>")
        for element in root.elements:
            value = element.find("value")
            is_text = not {"type", "mimetype"} & set(element.attributes)
            # Windows Forms writes the designer's own names with ">>"
            if (
                element.name == "data"
                and is_text
                and value is not None
                and element.attributes.get("name", "")[:2] != ">>"
            ):
                self._add_content(value, Message(value.text, escape=escaped, has_key=True))
