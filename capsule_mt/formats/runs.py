"""Paragraphs of Office Open XML, in Word and PowerPoint: runs of text, each with its format."""

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from capsule_mt.formats.paragraphs import ACTION, SOFT_HYPHEN, Action, Paragraph
from capsule_mt.formats.xml import Element, Text, escaped

CONTAINERS = frozenset({"hyperlink", "ins", "smartTag", "fldSimple", "moveTo"})
BREAKS = frozenset({"tab", "br", "cr"})
DROPPED = frozenset({"proofErr", "lastRenderedPageBreak"})
CHARACTERS = {"noBreakHyphen": "\u2011", "softHyphen": SOFT_HYPHEN}


class Dialect(NamedTuple):
    """How Word or PowerPoint writes runs."""

    prefix: str  # of element names
    text_start: str  # the start tag of an element with text
    ignored_properties: re.Pattern[bytes]  # properties of a run that do not change how its text looks


class RunParagraph(Paragraph):
    """A paragraph of runs. Adjacent runs with the same format are joined, without markup between them."""

    first_names, last_names = frozenset({"pPr"}), frozenset({"endParaRPr"})

    def __init__(self, element: Element, dialect: Dialect) -> None:
        self._dialect = dialect
        self._field: list[Element] = []  # the runs of an open field
        self._field_depth = 0
        formats: Counter[str] = Counter()
        for run in element.walk():
            if run.local == "r":
                text = "".join(child.text for child in run.elements if child.local == "t")
                formats[self._format_of(run)] += len(text)
        self._base = self._format = formats.most_common(1)[0][0] if formats else ""
        super().__init__(element)

    def _xml(self, text: str) -> str:
        """Return a text with actions as runs."""
        prefix, text_start = self._dialect.prefix, self._dialect.text_start
        written, current = [], self._base
        for index, part in enumerate(ACTION.split(text)):
            if index % 2:  # odd parts are indices of actions; even parts are text
                action = self._actions[int(part)]
                if callable(action):
                    written.append(action())
                else:
                    current = action
            elif part:
                written.append(f"<{prefix}:r>{current}{text_start}{escaped(part)}</{prefix}:t></{prefix}:r>")
        return "".join(written)

    def _add(self, child: "Element | Text") -> None:
        if not isinstance(child, Element):
            return  # white space, a comment
        if self._field_depth or (child.local == "r" and _field_mark(child) == "begin"):
            self._add_field(child)
        elif child.local == "r":
            self._add_run(child)
        elif child.local in BREAKS:
            self._add_break(lambda: child.raw.decode())
        elif child.local in CONTAINERS:
            self._set_format(self._base)
            self._markup.open(self._action(lambda: child.start.decode()), child.local)
            for element in child.elements:
                self._add(element)
            self._set_format(self._base)
            self._markup.close(self._action(lambda: child.end.decode()), child.local)
        elif child.local not in DROPPED:
            self._markup.add_point(self._action(lambda: child.raw.decode()))

    def _add_run(self, run: Element) -> None:
        if _field_mark(run) == "end":
            self._set_format(self._base)
            self._markup.close(self._action(lambda: run.raw.decode()), "field")
            return
        run_format, properties = self._format_of(run), _properties(run).decode()
        for child in run.elements:
            if child.local == "t" or child.local in CHARACTERS:
                self._set_format(run_format)
                self._add_text(CHARACTERS.get(child.local, child.text))
            elif child.local in BREAKS:
                self._add_break(_wrapped(run, properties, child))
            elif child.local not in DROPPED and child.local != "rPr":
                self._markup.add_point(self._action(_wrapped(run, properties, child)))

    def _add_field(self, element: Element) -> None:
        """Collect the runs of a field that precede its result. The result is translated as text in the field.

        A field without a result is markup without text.
        """
        mark = _field_mark(element)
        self._field.append(element)
        self._field_depth += (mark == "begin") - (mark == "end")
        runs = list(self._field)
        if self._field_depth == 1 and mark == "separate":
            self._set_format(self._base)
            self._markup.open(self._action(lambda: "".join(run.raw.decode() for run in runs)), "field")
        elif self._field_depth == 0:
            self._markup.add_point(self._action(lambda: "".join(run.raw.decode() for run in runs)))
        else:
            return
        self._field_depth, self._field = 0, []

    def _set_format(self, new_format: str) -> None:
        if new_format == self._format:
            return
        if self._format != self._base:
            self._markup.close(self._action(self._base), "format")
        if new_format != self._base:
            self._markup.open(self._action(new_format), "format")
        self._format = new_format

    def _add_break(self, action: Action) -> None:
        self._set_format(self._base)
        super()._add_break(action)

    def _end(self) -> None:
        self._set_format(self._base)
        super()._end()

    def _format_of(self, run: Element) -> str:
        """Return the properties of a run as XML, without those that do not change its look, such as its language."""
        pattern = self._dialect.ignored_properties
        # the second pass removes an element of properties that the first one has emptied
        return pattern.sub(b"", pattern.sub(b"", _properties(run))).decode()


def _properties(run: Element) -> bytes:
    properties = run.find("rPr")
    return b"" if properties is None else properties.raw


def _field_mark(run: Element) -> str:
    mark = run.find("fldChar")
    return mark.attributes.get("w:fldCharType", "") if mark is not None else ""


def _wrapped(run: Element, properties: str, child: Element) -> Callable[[], str]:
    """Return an action that writes a child alone in a copy of its run."""
    return lambda: f"{run.start.decode()}{properties}{child.raw.decode()}{run.end.decode()}"
