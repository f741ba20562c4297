"""The base class of catalogs in XML."""

from capsule_mt.formats.catalog import Catalog, Message
from capsule_mt.formats.xml import Element, parse_text


class XmlCatalog(Catalog):
    """A catalog whose translations replace the contents of elements."""

    def __init__(self, text: str, name: str, allows_doctype: bool = False) -> None:
        super().__init__()
        self._name, self._top = name, parse_text(text, name, allows_doctype)

    def _add_content(self, element: Element, message: Message) -> None:
        """Add the message that an element has as its content; the message writes XML."""

        def write(text: str, _: bool) -> None:
            element.fill(text)

        self._add(message, f"line {element.line}", write)

    def _content(self) -> bytes:
        return self._top.raw
