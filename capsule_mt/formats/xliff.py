"""XLIFF 1.2 and 2: units without a translation get one, as `<target>`; translated and locked ones stay as they are."""

import re
from collections.abc import Sequence

from capsule_mt.formats.markup import MARKUP, Markup
from capsule_mt.formats.units import FormatError, Translated, Unit
from capsule_mt.formats.xml import Element, Text, escaped, parse

PAIRS = frozenset({"g", "pc", "mrk"})
POINTS = frozenset({"bx", "ex", "bpt", "ept", "it", "sc", "ec", "sm", "em", "cp"})
TAG_ID = re.compile(r"(?:START|CLOSE)_|LINE_BREAK")  # Angular's ids of elements that stand for no word
UNTRANSLATED = frozenset({"new", "initial", "needs-translation"})
ENCODING = re.compile(r"""\A(<\?xml[^>]*encoding\s*=\s*)["'][^"']*["']""")
UNKNOWN_LANGUAGE = "und"  # version 2 requires a target language where there are targets


class XliffFile:
    """An XLIFF file, which translators exchange."""

    keep = MARKUP

    def __init__(self, text: str, name: str = "the file", language: str | None = None) -> None:
        self._top = parse(ENCODING.sub(r'\1"UTF-8"', text).encode("utf-8"), name)
        root = next((element for element in self._top.elements if element.local == "xliff"), None)
        if root is None:
            raise FormatError(f"{name}: the root of an XLIFF file is <xliff>, this one has another")
        self._root, self._language = root, language
        self._is_version_2 = root.attributes.get("version", "1.2").startswith("2")
        self._pending: list[tuple[Element, Element, Markup]] = []  # a source's parent, the source, its text
        self.units: list[Unit] = []
        self._collect(root, preserves_space=False)

    def write(self, translations: Sequence[Translated]) -> bytes:
        for (parent, source, markup), translated in zip(self._pending, translations, strict=True):
            if translated.text is None:
                continue
            text = markup.filled(translated.text, escaped)
            prefix = source.name.removesuffix("source")
            self._set_target(parent, source, f"{prefix}target", text, translated.needs_review)
        if any(translated.text is not None for translated in translations):
            self._state_language()
        return self._top.raw

    def _collect(self, element: Element, preserves_space: bool) -> None:
        if element.attributes.get("translate") == "no" or element.attributes.get("approved") == "yes":
            return
        preserves_space = element.attributes.get("xml:space", "preserve" if preserves_space else "") == "preserve"
        source = element.find("source") if element.local in ("trans-unit", "segment") else None
        if source is None:
            for child in element.elements:
                self._collect(child, preserves_space)
            return
        target = element.find("target")
        state = (element if self._is_version_2 else target or element).attributes.get("state", "")
        # a target in one of these states is only a copy of the source
        if target is not None and (target.text.strip() or target.elements) and state not in UNTRANSLATED:
            return
        markup = Markup()
        _add(markup, source, preserves_space)
        if markup.has_words:
            self._pending.append((element, source, markup))
            self.units.append(Unit(markup.text, f"line {source.line}"))

    def _set_target(self, parent: Element, source: Element, name: str, text: str, needs_review: bool) -> None:
        state = (
            "" if self._is_version_2 else f' state="{"needs-review-translation" if needs_review else "translated"}"'
        )
        written = Text(f"<{name}{state}>{text}</{name}>".encode())
        target = parent.find("target")
        if target is not None:
            parent.children[parent.children.index(target)] = written
        else:
            # behind the source, indented by a copy of the white space before it
            index = parent.children.index(source)
            is_space = [isinstance(child, Text) and not child.raw.strip() for child in parent.children[:index]]
            first = max((i + 1 for i in range(index) if not is_space[i]), default=0)
            parent.children[index + 1 : index + 1] = [*parent.children[first:index], written]
        if self._is_version_2 and not needs_review:
            _set_attribute(parent, "state", "translated")

    def _state_language(self) -> None:
        if self._is_version_2:
            if "trgLang" not in self._root.attributes:
                _set_attribute(self._root, "trgLang", self._language or UNKNOWN_LANGUAGE)
            return
        for file in self._root.elements:
            if file.local == "file" and self._language and "target-language" not in file.attributes:
                _set_attribute(file, "target-language", self._language)


def _add(markup: Markup, element: Element, preserves_space: bool) -> None:
    for child in element.children:
        if isinstance(child, Text):
            markup.add_text(child.text if preserves_space else re.sub(r"\s+", " ", child.text))
        elif child.attributes.get("translate") == "no" or child.attributes.get("mtype") == "protected":
            markup.add_fixed(child.raw.decode())
        elif child.local in PAIRS:
            markup.open(child.start.decode())
            _add(markup, child, preserves_space)
            markup.close(child.end.decode())
        elif child.local in POINTS or TAG_ID.match(child.attributes.get("id", "")):
            markup.add_point(child.raw.decode())
        else:
            markup.add_fixed(child.raw.decode())


def _set_attribute(element: Element, name: str, value: str) -> None:
    """Set an attribute in the start tag of an element."""
    start = re.sub(rf"""\s{name}\s*=\s*("[^"]*"|'[^']*')""".encode(), b"", element.start)
    element.attributes[name] = value
    content = start.removesuffix(b">").removesuffix(b"/").rstrip()
    element.start = content + f' {name}="{escaped(value)}"'.encode() + start[len(content) :]
