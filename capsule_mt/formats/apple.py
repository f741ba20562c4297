"""Catalogs of Apple's systems: .strings ("key" = "value";) and .stringsdict, a property list with plural forms."""

import codecs
import re
from collections.abc import Callable

from capsule_mt.formats.catalog import Edit, Message, Plural, TextCatalog
from capsule_mt.formats.format import XML_DECLARATION, Format
from capsule_mt.formats.plurals import CATEGORIES, rule_of
from capsule_mt.formats.units import FormatError
from capsule_mt.formats.xml import Element, escaped
from capsule_mt.formats.xml_catalog import XmlCatalog

SPACE = re.compile(r"(?:\s|//[^\n]*|/\*(?s:.*?)\*/)*")
STRING = re.compile(r'"((?:[^"\\]|\\(?s:.))*)"|([\w./$:-]+)')
ESCAPE = re.compile(r"\\([0-7]{3}|[Uu][0-9A-Fa-f]{4}|(?s:.))")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
VARIABLE = re.compile(r"%(?:\d+\$)?#@\w+@|%(?:\d+\$)?[-+ 0#]*\d*(?:\.\d+)?(?:hh|h|ll|l|q|z|t|j)?[@a-zA-Z%]")
# dictionaries of texts for widths of the screen ("20") and for devices ("mac")
VARIANTS = ("NSStringVariableWidthRuleType", "NSStringDeviceSpecificRuleType")
MARKS = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE, "utf-8": codecs.BOM_UTF8}

# of a property list that Xcode has compiled
COMPILED = {b"bplist": "is a binary property list, as in a built app: translate the file of the project"}
STRINGS = Format(
    name="strings",
    suffixes=(".strings",),
    title="Catalogs of Apple's systems",
    reader=lambda file: StringsFile(file.text, file.name, file.language, file.content, file.encoding),
    keeps_mark=False,  # written by the reader, also that of UTF-16
    refused_starts=COMPILED,
    translated="values, also of keys without one",
    unchanged="keys, comments, the encoding if it is UTF-8 or UTF-16",
    limits="compiled property lists, and escapes by numbers of an old encoding, are refused",
    judges="openstep-plist",
)
STRINGSDICT = Format(
    name="stringsdict",
    suffixes=(".stringsdict",),
    title="Plurals of Apple's systems",
    reader=lambda file: StringsdictFile(file.text, file.name, file.language),
    declaration=XML_DECLARATION,
    refused_starts=COMPILED,
    translated="the plural forms of the target language, variants by width or device",
    unchanged="other keys",
    limits="compiled property lists, and a `DOCTYPE` with entities, are refused",
    judges="plistlib",
)


class StringsFile(TextCatalog):
    """A .strings file, written with the byte-order mark and the UTF of its `content`: UTF-8 or UTF-16.

    Args:
        encoding: the encoding that the caller names. A file in another one than UTF-8 and UTF-16 is written as UTF-8,
            and one in "utf-16", whose order of bytes its mark should state, with a mark.
    """

    def __init__(self, text: str, name: str, language: str | None, content: bytes, encoding: str | None) -> None:
        super().__init__(text, name, language)
        self._encoding = encoding if encoding and codecs.lookup(encoding).name in (*MARKS, "utf-16") else "utf-8"
        self._mark = b""
        for marked_encoding, mark in MARKS.items():
            if content.startswith(mark):
                self._encoding, self._mark = marked_encoding, mark
        offset = self._skip(0)
        while offset < len(text):
            key = STRING.match(text, offset)
            if key is None:
                self._refuse(offset, f'`"key" = "value";` is expected, got {text[offset : offset + 20]!r}')
            offset = self._skip(key.end())
            if text.startswith("=", offset):
                value = STRING.match(text, self._skip(offset + 1))
                if value is None:
                    self._refuse(offset, "a value in double quotes is expected after `=`")
                if value[1] is not None:
                    self._add_value(value, self._replace(value.start(1), value.end(1)))
                offset = self._skip(value.end())
            elif key[1] is not None and text.startswith(";", offset):  # its value is the same text
                self._add_value(key, self._give_value(key.end()))
            if not text.startswith(";", offset):
                self._refuse(offset, f"`;` is expected, got {text[offset : offset + 20]!r}")
            offset = self._skip(offset + 1)

    def _add_value(self, quoted: "re.Match[str]", write: Callable[[str, bool], None]) -> None:
        message = Message(self._unescaped(quoted[1], quoted.start()), VARIABLE)
        self._add(message, f"line {self._line(quoted.start())}", write)

    def _give_value(self, end: int) -> Callable[[str, bool], None]:
        """Return a function that adds a value to a key that ends at this offset."""
        return lambda text, _: self._edits.append(Edit(end, end, f' = "{self._escaped(text)}"'))

    def _skip(self, offset: int) -> int:
        match = SPACE.match(self._text, offset)
        assert match is not None
        return match.end()

    def _unescaped(self, raw: str, start: int) -> str:
        def character(match: "re.Match[str]") -> str:
            if match[1][0] in "Uu" and len(match[1]) > 1:
                return chr(int(match[1][1:], 16))
            if len(match[1]) > 1:
                self._refuse(start, f"write the character for {match[0]}: its number depends on an old encoding")
            return ESCAPES.get(match[1], match[1])

        return self._joined(ESCAPE.sub(character, raw), start)

    def _escaped(self, text: str) -> str:
        names = {character: f"\\{letter}" for letter, character in ESCAPES.items()} | {"\\": "\\\\", '"': '\\"'}
        return "".join(names.get(character, character) for character in text)

    def _content(self) -> bytes:
        return self._mark + super()._content().decode().encode(self._encoding)


class StringsdictFile(XmlCatalog):
    """A .stringsdict file: each variable of a message has a text for each plural form."""

    def __init__(self, text: str, name: str, language: str | None) -> None:
        super().__init__(text, name, allows_doctype=True)
        self._rule = rule_of(language)
        root = next((element for element in self._top.elements if element.local == "plist"), None)
        if root is None:
            raise FormatError(f"{name}: the root of a .stringsdict must be <plist>")
        for element in root.walk():
            if element.local == "dict":
                self._add_dictionary(element)

    def _add_dictionary(self, element: Element) -> None:
        pairs = _pairs(element)
        if "NSStringLocalizedFormatKey" in pairs:
            self._add_text(pairs["NSStringLocalizedFormatKey"])
        for variants in (pairs[key] for key in VARIANTS if key in pairs):
            for value in _pairs(variants).values():
                if value.local == "string":
                    self._add_text(value)
        if pairs.get("NSStringFormatSpecTypeKey") is None:
            return
        texts = {name: value for name, value in pairs.items() if name in CATEGORIES}
        if self._rule is None or "other" not in texts:  # without "other", these are texts for single numbers
            for value in texts.values():
                self._add_text(value)
            return
        forms = self._rule.forms_for(texts)
        sources = {name: Message(value.text, VARIABLE) for name, value in texts.items()}

        children = element.elements
        keys = [child for child in children[::2] if child.text in texts]
        first = children.index(keys[0])
        if children[first : first + 2 * len(keys) : 2] != keys:
            raise FormatError(f"{self._name}, line {keys[0].line}: write the plural forms side by side")

        def write(translations: dict[str, str], _: bool) -> None:
            key_index, text_index = map(element.children.index, (keys[0], texts[keys[0].text]))
            space = "".join(part.raw.decode() for part in element.children[key_index + 1 : text_index])
            element.replace_forms(
                children[first : first + 2 * len(keys)],
                [f"<key>{name}</key>{space}<string>{escaped(text)}</string>" for name, text in translations.items()],
            )

        self._add(Plural(sources, forms), f"line {element.line}", write)

    def _add_text(self, element: Element) -> None:
        def write(text: str, _: bool) -> None:
            element.fill(escaped(text))

        self._add(Message(element.text, VARIABLE), f"line {element.line}", write)


def _pairs(element: Element) -> dict[str, Element]:
    """Return the values of a dictionary of a property list by their keys."""
    children = element.elements
    return {key.text: value for key, value in zip(children[::2], children[1::2], strict=False) if key.local == "key"}
