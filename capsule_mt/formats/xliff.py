"""XLIFF 1.2 and 2: units without a translation get one, as `<target>`; translated and locked ones stay as they are.

Trados and memoQ write segments (`<mrk mtype="seg">`) into a unit, and their own states beside those of the standard.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from capsule_mt.formats.format import XML_DECLARATION, Format
from capsule_mt.formats.icu import QUOTED, IcuMessage, NotIcuError, has_branches, note_of
from capsule_mt.formats.markup import MARKUP, Markup
from capsule_mt.formats.plurals import rule_of
from capsule_mt.formats.units import FormatError, Translated, Unit, has_other_placeholders
from capsule_mt.formats.xml import Element, Text, escaped, parse_text
from capsule_mt.text.languages import is_other_language

ELEMENTS = frozenset({"g", "pc", "mrk"})
# a point that opens an element, and the one that closes it: the attribute that they share
OPENING = {"bpt": "id", "bx": "id", "sc": "id", "sm": "id"}
CLOSING = {"ept": "id", "ex": "id", "ec": "startRef", "em": "startRef"}
TAG_ID = re.compile(r"(START|CLOSE)_(\w+?)(?:_\d+)?|LINE_BREAK")  # Angular's ids of tags, not of values in a sentence
UNTRANSLATED = frozenset({"new", "initial", "needs-translation"})
LOCKED = {"translate": "no", "approved": "yes", "mq:locked": "locked", "m:locked": "true", "sdl:locked": "true"}
UNKNOWN_LANGUAGE = "und"  # version 2 requires a target language where there are targets

FORMAT = Format(
    name="xliff",
    suffixes=(".xliff", ".xlf", ".sdlxliff", ".mqxliff", ".mxliff", ".poxliff"),
    title="XLIFF 1.2 and 2.0, also of Angular, Trados, memoQ and Memsource",
    reader=lambda file: XliffFile(file.text, file.name, file.language),
    has_flags=True,
    has_language_tags=True,
    declaration=XML_DECLARATION,
    translated="units and segments without a target, or with a copy of the source in the state `new`, "
    "`needs-translation` or `initial`; each branch of a plural or `select`",
    unchanged="translated, approved and locked units, notes, earlier versions",
    limits="a file for another target language, and a `DOCTYPE`, are refused; a unit to check becomes "
    "`needs-review-translation` (1.2, but not in segments or of memoQ) or is not `translated` (2.0)",
    judges="lxml, translate-toolkit",
)


class Pending(NamedTuple):
    """A text that lacks a translation.

    unit: the element that has its state.
    source: the `<source>`, or a segment of the `<seg-source>`.
    """

    unit: Element
    source: Element
    markup: Markup
    message: IcuMessage | None


class XliffFile:
    """An XLIFF file, which translators exchange."""

    keep = MARKUP

    def __init__(self, text: str, name: str = "the file", language: str | None = None) -> None:
        self._top = parse_text(text, name)
        root = next((element for element in self._top.elements if element.local == "xliff"), None)
        if root is None:
            raise FormatError(f"{name}: the root of an XLIFF file must be <xliff>")
        self._root, self._language = root, language
        self._is_version_2 = root.attributes.get("version", "1.2").startswith("2")
        self._check_language(name)
        self._pending: list[Pending] = []
        self.units: list[Unit] = []
        self._collect(root, preserves_space=False)

    def write(self, translations: Sequence[Translated]) -> bytes:
        remaining = iter(translations)
        for pending in self._pending:
            texts = [pending.markup.text] if pending.message is None else pending.message.texts
            results = [next(remaining) for _ in texts]
            needs_review = any(result.needs_review for result in results)
            written = _written(pending, results)
            if written is None:
                continue
            if pending.source.local == "mrk":
                self._set_segment(pending.unit, pending.source, written)
            else:
                self._set_target(pending.unit, pending.source, written, needs_review)
        if any(translated.text is not None for translated in translations):
            self._state_language()
        return self._top.raw

    def _check_language(self, name: str) -> None:
        """Refuse a file that is for another language than the model's."""
        for element in (self._root, *self._root.elements):
            stated = element.attributes.get("trgLang", element.attributes.get("target-language"))
            if is_other_language(stated, self._language):
                raise FormatError(
                    f"{name}, line {element.line}: the file is for translations into {str(stated)[:40]}, but the "
                    f"model translates into {self._language}: use another model, or correct the language in the file"
                )

    def _collect(self, element: Element, preserves_space: bool) -> None:
        if any(element.attributes.get(name) == value for name, value in LOCKED.items()):
            return
        preserves_space = element.attributes.get("xml:space", "preserve" if preserves_space else "") == "preserve"
        source = element.find("source") if element.local in ("trans-unit", "segment") else None
        if source is None:
            for child in element.elements:
                if child.local not in ("alt-trans", "minorversions"):  # proposals and earlier versions
                    self._collect(child, preserves_space)
            return
        preserves_space = preserves_space or source.attributes.get("xml:space") == "preserve"
        segments = _segments(element.find("seg-source"))
        if segments:
            self._collect_segments(element, segments, preserves_space)
        elif not self._is_translated(element, source):
            self._add(element, source, preserves_space)

    def _is_translated(self, unit: Element, source: Element) -> bool:
        """Return whether a unit has a translation; a copy of the source that a program put there does not count."""
        target = unit.find("target")
        if target is None or not (_content(target).strip() or target.elements):
            return False
        state = (unit if self._is_version_2 else target).attributes.get("state", "")
        return state not in UNTRANSLATED or _content(target).split() != _content(source).split()

    def _collect_segments(self, unit: Element, segments: dict[str, Element], preserves_space: bool) -> None:
        states = _states_of_segments(unit)
        targets = _segments(unit.find("target"))
        for segment_id, source in segments.items():
            target = targets.get(segment_id)
            is_locked = segment_id in states and states[segment_id].attributes.get("locked") == "true"
            if not is_locked and (target is None or not (_content(target).strip() or target.elements)):
                self._add(unit, source, preserves_space)

    def _add(self, unit: Element, source: Element, preserves_space: bool) -> None:
        markup = Markup()
        fixed = [QUOTED] if has_branches(_content(source)) else []
        _add(markup, source, preserves_space, fixed)
        message, note = None, ""
        if has_branches(markup.text):
            try:
                message = IcuMessage(markup.text.strip(), rule_of(self._language))
            except NotIcuError as error:
                note = note_of(markup.text, error)
        if message is not None or note or markup.has_words:
            self._pending.append(Pending(unit, source, markup, message))
            texts, numbers = ([markup.text], {}) if message is None else (message.texts, message.numbers)
            self.units += [Unit(text, f"line {source.line}", note, numbers.get(text, "")) for text in texts]

    def _set_segment(self, unit: Element, source: Element, text: str) -> None:
        """Fill a segment of the target, which is a copy of the source's segments where there is none."""
        target = unit.find("target")
        if target is None or not target.elements:
            copied = unit.find("seg-source")
            assert copied is not None
            prefix = copied.name.removesuffix("seg-source")
            written = _copy(copied, f"{prefix}target", target.start if target is not None else b"")
            if target is None:
                unit.children.insert(unit.children.index(copied) + 1, written)
            else:
                unit.children[unit.children.index(target)] = written
            target = written
        segment_id = source.attributes.get("mid", "")
        segment = _segments(target).get(segment_id)
        if segment is None:
            segment = _copy(source, source.name)
            target.children.append(segment)
        segment.fill(text)
        state = _states_of_segments(unit).get(segment_id)
        if state is not None:  # Trados shows it as a draft by machine translation
            state.set_attribute("conf", "Draft")
            state.set_attribute("origin", "mt")

    def _set_target(self, unit: Element, source: Element, text: str, needs_review: bool) -> None:
        target = unit.find("target")
        if target is None:
            name = f"{source.name.removesuffix('source')}target"
            target = Element(name, {}, 0, f"<{name}>".encode(), [], f"</{name}>".encode())
            # after the source, indented by a copy of the white space before it
            index = unit.children.index(source)
            is_space = [isinstance(child, Text) and not child.raw.strip() for child in unit.children[:index]]
            first = max((i + 1 for i in range(index) if not is_space[i]), default=0)
            unit.children[index + 1 : index + 1] = [*unit.children[first:index], target]
        target.fill(text)
        if "mq:status" in unit.attributes:  # memoQ has its own states
            unit.set_attribute("mq:status", "Pretranslated")
        elif not self._is_version_2:
            target.set_attribute("state", "needs-review-translation" if needs_review else "translated")
        elif not needs_review:
            unit.set_attribute("state", "translated")

    def _state_language(self) -> None:
        if self._is_version_2:
            if "trgLang" not in self._root.attributes:
                self._root.set_attribute("trgLang", self._language or UNKNOWN_LANGUAGE)
            return
        for file in self._root.elements:
            if file.local == "file" and self._language and "target-language" not in file.attributes:
                file.set_attribute("target-language", self._language)


def _written(pending: Pending, results: Sequence[Translated]) -> str | None:
    """Return the XML of a translation, `None` if it failed."""
    if pending.message is None:
        (result,) = results
        return None if result.text is None else pending.markup.filled(result.text, escaped)

    def restore(text: str, result: Translated) -> str | None:
        if result.text is None:
            return None
        # a brace too many would end the branch
        translation = text if has_other_placeholders(text, result.text) else result.text
        return pending.markup.filled(translation, escaped, text)

    return pending.message.filled(results, restore)


def _segments(element: Element | None) -> dict[str, Element]:
    """Return the segments in a `<seg-source>` or `<target>` by their ids."""
    elements = [] if element is None else element.walk()
    return {
        segment.attributes.get("mid", ""): segment
        for segment in elements
        if segment.local == "mrk" and segment.attributes.get("mtype") == "seg"
    }


def _states_of_segments(unit: Element) -> dict[str, Element]:
    """Return where Trados writes the state of each segment."""
    states = unit.find("seg-defs")
    return {} if states is None else {state.attributes.get("id", ""): state for state in states.elements}


def _content(element: Element) -> str:
    """Return the text of an element and its descendants."""
    return "".join(part.text for part in element.walk())


def _copy(element: Element, name: str, start: bytes = b"") -> Element:
    """Return a copy of a `<seg-source>` or a part of it, whose segments are empty."""
    is_segment = element.local == "mrk" and element.attributes.get("mtype") == "seg"
    copied = Element(name, dict(element.attributes), element.line, element.start, [], element.end)
    if name != element.name:
        copied.start, copied.end = start or f"<{name}>".encode(), f"</{name}>".encode()
    if not is_segment:
        copied.children = [
            _copy(child, child.name) if isinstance(child, Element) else child for child in element.children
        ]
    return copied


def _add(markup: Markup, element: Element, preserves_space: bool, fixed: Sequence[re.Pattern[str]]) -> None:
    for child in element.children:
        if isinstance(child, Text):
            markup.add_text(child.text if preserves_space else re.sub(r"\s+", " ", child.text), fixed)
            continue
        raw, attributes = child.raw.decode(), child.attributes
        tag_id = TAG_ID.fullmatch(attributes.get("id", "")) or TAG_ID.fullmatch(attributes.get("equiv", ""))
        if attributes.get("translate") == "no" or attributes.get("mtype") == "protected":
            markup.add_fixed(raw)
        elif child.local in ELEMENTS:
            markup.open(child.start.decode())
            _add(markup, child, preserves_space, fixed)
            markup.close(child.end.decode())
        elif child.local in OPENING:
            markup.open(raw, attributes.get("rid", attributes.get(OPENING[child.local], "")))
        elif child.local in CLOSING:
            markup.close(raw, attributes.get("rid", attributes.get(CLOSING[child.local], "")))
        elif tag_id is not None and tag_id[1] == "START":
            markup.open(raw, tag_id[2])
        elif tag_id is not None and tag_id[1] == "CLOSE":
            markup.close(raw, tag_id[2])
        elif tag_id is not None or child.local == "it":
            markup.add_point(raw)
        else:
            markup.add_fixed(raw)
