"""Markup in a text as tags that a translation keeps: `<g1>bold</g1>`, `<g2/>` for a point, `{3}` for code."""

import re
from collections import Counter
from collections.abc import Callable

from capsule_mt.text.copying import is_no_sentence

MARK = re.compile(r"<(/?)g(\d+)(/?)>|\{(\d+)\}")
TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)")
VOID = ("br", "img", "wbr")
MARKUP = ("tags", "placeholders")  # the kinds of `KEPT` that keep it


class Markup:
    """A text whose markup is behind tags, in the order in which it is added."""

    def __init__(self) -> None:
        self._written: list[str] = []
        self._raw: dict[str, str] = {}
        self._open: list[tuple[int, str, int]] = []  # number, name and index in `_written` of each element
        self._last = 0

    def add_text(self, text: str) -> None:
        """Add a text. Where it looks like a tag here, it is kept like one."""
        place = 0
        for match in MARK.finditer(text):
            self._written.append(text[place : match.start()])
            self.add_fixed(match[0])
            place = match.end()
        self._written.append(text[place:])

    def add_fixed(self, raw: str) -> None:
        """Add what the translation has in a place of its own in the sentence, such as code."""
        self._mark("{%d}", raw)

    def add_point(self, raw: str) -> None:
        self._mark("<g%d/>", raw)

    def add_tag(self, raw: str) -> None:
        """Add a tag of HTML; one without an end, and a comment, is a point."""
        tag = TAG.match(raw)
        if tag is None or raw.endswith("/>") or tag[2].lower() in VOID:
            self.add_point(raw)
        elif tag[1]:
            self.close(raw, f"<{tag[2].lower()}")
        else:
            self.open(raw, f"<{tag[2].lower()}")

    def open(self, raw: str, name: str = "") -> None:
        self._mark("<g%d>", raw)
        self._open.append((self._last, name, len(self._written) - 1))

    def close(self, raw: str, name: str = "") -> None:
        """Close the element that was opened last; of another name, it becomes a point."""
        if self._open and self._open[-1][1] == name:
            mark = f"</g{self._open.pop()[0]}>"
            self._raw[mark] = raw
            self._written.append(mark)
        else:
            self.add_point(raw)

    def _mark(self, form: str, raw: str) -> None:
        self._last += 1
        mark = form % self._last
        self._raw[mark] = raw
        self._written.append(mark)

    @property
    def text(self) -> str:
        """The text with tags; what was opened and never closed is a point."""
        written = list(self._written)
        for number, _, index in self._open:
            written[index] = f"<g{number}/>"
        return "".join(written)

    @property
    def has_words(self) -> bool:
        return not is_no_sentence(MARK.sub(" ", self.text))

    def filled(self, translation: str, escape: Callable[[str], str] = str) -> str:
        """Return a translation with the markup, and everything else escaped.

        One without some of the tags, or with tags that cross, has all markup behind the text.
        """
        if not self._is_sound(translation):
            marks = "".join(match[0] for match in MARK.finditer(self.text))
            translation = MARK.sub("", translation) + marks
        written, place = [], 0
        for match in MARK.finditer(translation):
            written += [escape(translation[place : match.start()]), self._raw_of(match[0])]
            place = match.end()
        return "".join([*written, escape(translation[place:])])

    def _raw_of(self, mark: str) -> str:
        return self._raw[mark if mark in self._raw else mark.replace("/>", ">")]

    def _is_sound(self, translation: str) -> bool:
        """Return whether a translation has the tags of the text, each as often, and properly nested."""
        marks = [match[0] for match in MARK.finditer(translation)]
        if Counter(marks) != Counter(match[0] for match in MARK.finditer(self.text)):
            return False
        opened: list[str] = []
        for mark in marks:
            if mark.startswith("</"):
                if not opened or opened.pop() != mark[2:]:
                    return False
            elif mark.startswith("<") and not mark.endswith("/>"):
                opened.append(mark[1:])
        return not opened
