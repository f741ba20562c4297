"""Resources of Android (strings.xml): strings, arrays of them, and plurals, with Android's escapes.

aapt collapses white space outside of double quotes, and takes an apostrophe without a backslash for an error.
"""

import re

from capsule_mt.formats.catalog import Message, Plural
from capsule_mt.formats.format import XML_DECLARATION, Format
from capsule_mt.formats.markup import Markup
from capsule_mt.formats.plurals import CATEGORIES, rule_of
from capsule_mt.formats.units import FormatError
from capsule_mt.formats.xml import Element, Text, escaped
from capsule_mt.formats.xml_catalog import XmlCatalog

PART = re.compile(r'\\(u[0-9A-Fa-f]{4}|(?s:.))|(")|(\s+)')
ESCAPES = {"n": "\n", "t": "\t"}
RESOURCE = re.compile(r"\s*[@?][\w:+.]*/?[\w.]+\s*")  # "@string/title": another resource
CDATA = b"<![CDATA["

FORMAT = Format(
    name="android",
    suffixes=(".xml",),
    title="Resources of Android",
    reader=lambda file: AndroidFile(file.text, file.name, file.language),
    declaration=XML_DECLARATION,
    translated="strings, arrays, the plural forms of the target language",
    unchanged='`translatable="false"`, `<xliff:g>`, references, other resources',
    limits="XML with another root than `<resources>`, and a `DOCTYPE`, are refused",
    judges="aapt, translate-toolkit",
)


class AndroidFile(XmlCatalog):
    """A file of resources. Those that are not texts, and those with `translatable="false"`, stay as they are."""

    def __init__(self, text: str, name: str, language: str | None) -> None:
        super().__init__(text, name)
        self._rule = rule_of(language)
        root = next(iter(self._top.elements))
        if root.name != "resources":
            raise FormatError(
                f"{name}, line {root.line}: an .xml must be resources of Android, with the root <resources>, got "
                f"<{root.name[:40]}>: other kinds need --format html or xliff"
            )
        for element in root.elements:
            if element.attributes.get("translatable") == "false":
                continue
            if element.name == "string":
                self._add_content(element, _message(element))
            elif element.name == "string-array":
                for item in element.elements:
                    self._add_content(item, _message(item))
            elif element.name == "plurals":
                self._add_plurals(element)

    def _add_plurals(self, element: Element) -> None:
        items = {item.attributes.get("quantity", ""): item for item in element.elements if item.name == "item"}
        if self._rule is None or "other" not in items or not set(items) <= set(CATEGORIES):
            for item in items.values():
                self._add_content(item, _message(item))
            return
        start = items["other"].start.decode().replace("/>", ">")

        def write(texts: dict[str, str], _: bool) -> None:
            element.replace_forms(
                element.elements,
                [f"{start.replace('other', name, 1)}{text}</item>" for name, text in texts.items()],
            )

        sources = {quantity: _message(item) for quantity, item in items.items()}
        self._add(Plural(sources, self._rule.numbers), f"line {element.line}", write)


def _message(element: Element) -> Message:
    if RESOURCE.fullmatch(element.text) and not element.elements:
        return Message("")
    markup = Markup()
    _MarkupReader(markup).add(element)
    is_cdata = element.raw[len(element.start) :].startswith(CDATA)
    return Message("", markup=markup, escape=_escaped_in_cdata if is_cdata else _escaped)


class _MarkupReader:
    """Adds the content of a string to markup; quotes may begin in one part of it and end in another."""

    def __init__(self, markup: Markup) -> None:
        self._markup = markup
        self._in_quotes = False

    def add(self, element: Element) -> None:
        for child in element.children:
            if isinstance(child, Text):
                text = PART.sub(self._replaced, child.text)
                # two escapes may be the halves of one character, such as an emoji
                self._markup.add_text(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le"))
            elif child.local == "g":  # <xliff:g>: what is not translated
                self._markup.add_fixed(child.raw.decode())
            else:
                self._markup.open(child.start.decode())
                self.add(child)
                self._markup.close(child.end.decode())

    def _replaced(self, match: "re.Match[str]") -> str:
        if match[1] is not None:
            is_code = len(match[1]) > 1
            return chr(int(match[1][1:], 16)) if is_code else ESCAPES.get(match[1], match[1])
        if match[2] is not None:
            self._in_quotes = not self._in_quotes
            return ""
        return match[3] if self._in_quotes else " "


def _escaped(text: str) -> str:
    return escaped(_escaped_for_android(text))


def _escaped_in_cdata(text: str) -> str:
    inner = _escaped_for_android(text).replace("]]>", "]] >")
    return f"<![CDATA[{inner}]]>" if inner else ""


def _escaped_for_android(text: str) -> str:
    names: dict[str, str] = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\t": "\\t"}
    written = "".join(names.get(character, character) for character in text)
    if written.startswith(("@", "?")):
        written = "\\" + written
    # spaces that aapt would drop
    return re.sub("(?<= ) +|^ +$", lambda match: "\\u0020" * len(match[0]), written)
