"""Markup in a text as tags that a translation keeps.

`<g1>bold</g1>` is an element, `<g2/>` a point (an element without content), `{3}` a fixed part such as code.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Sequence

from capsule_mt.text.keeping import lacks_words

# the markup that a tag stands for: a text, or a function that returns it when a translation is filled
Raw = str | Callable[[], str]
MARK = re.compile(r"<(/?)g(\d+)(/?)>|\{(\d+)\}")
EMPTY = re.compile(r"(<g\d+>)</g\d+>")
TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)")
VOID = ("br", "img", "wbr")
MARKUP = ("tags", "placeholders")  # the kinds of `KEEP_KINDS` that preserve these tags

CHARACTER_REFERENCE = re.compile(r"&#0*([0-9]{1,8})[0-9]*")


def unescaped(text: str) -> str:
    """Replace character references as HTML5 says: one beyond Unicode becomes U+FFFD, however many digits it has."""
    # eight digits are beyond Unicode already, and `int` refuses more than 4,300
    return html.unescape(CHARACTER_REFERENCE.sub(r"&#\1", text))


class Markup:
    """A text with tags in place of its markup, numbered in the order in which it is added."""

    def __init__(self) -> None:
        self._written: list[str] = []
        self._raw: dict[str, Raw] = {}
        self._open: list[tuple[int, str, int]] = []  # number, name and index in `_written` of each element
        self._last_number = 0
        # the marks of elements that are not written if a translation leaves them empty
        self._vanishing: set[str] = set()

    def add_text(self, text: str, fixed: Sequence["re.Pattern[str]"] = ()) -> None:
        """Add a text, in which what matches one of these patterns is fixed.

        Whatever looks like one of our own tags becomes a fixed part, too, or it would be read as a tag.
        """
        offset = 0
        for match in re.finditer("|".join(pattern.pattern for pattern in (*fixed, MARK)), text):
            self._written.append(text[offset : match.start()])
            self.add_fixed(match[0])
            offset = match.end()
        self._written.append(text[offset:])

    def add_fixed(self, raw: str) -> None:
        """Add a part that is copied and that the translation may move within the sentence, such as code."""
        self._mark("{%d}", raw)

    def add_point(self, raw: Raw) -> None:
        """Add markup without content, such as a line break."""
        self._mark("<g%d/>", raw)

    def add_tag(self, raw: str, written: Raw | None = None) -> None:
        """Add a tag of HTML, which may be written differently; a void element or a comment is a point."""
        tag = TAG.match(raw)
        written = raw if written is None else written
        if tag is None or raw.endswith("/>") or tag[2].lower() in VOID:
            self.add_point(written)
        elif tag[1]:
            self.close(written, f"<{tag[2].lower()}")
        else:
            self.open(written, f"<{tag[2].lower()}")

    def open(self, raw: Raw, name: str = "", vanishes: bool = False) -> None:
        """Open an element; if it `vanishes`, it is not written if a translation leaves it empty."""
        self._mark("<g%d>", raw)
        self._open.append((self._last_number, name, len(self._written) - 1))
        if vanishes:
            self._vanishing.add(self._written[-1])

    def close(self, raw: Raw, name: str = "") -> None:
        """Close the last opened element; an end tag of another name becomes a point."""
        if self._open and self._open[-1][1] == name:
            mark = f"</g{self._open.pop()[0]}>"
            self._raw[mark] = raw
            self._written.append(mark)
        else:
            self.add_point(raw)

    def _mark(self, form: str, raw: Raw) -> None:
        self._last_number += 1
        mark = form % self._last_number
        self._raw[mark] = raw
        self._written.append(mark)

    @property
    def text(self) -> str:
        """The text with tags; an element that was never closed is a point."""
        written = list(self._written)
        for number, _, index in self._open:
            written[index] = f"<g{number}/>"
        return "".join(written)

    @property
    def has_words(self) -> bool:
        return not lacks_words(MARK.sub(" ", self.text))

    def filled(self, translation: str, escape: Callable[[str], str] = str, text: str | None = None) -> str:
        """Return a translation with the markup restored and its text escaped.

        If tags are missing, or cross, all markup is put after the text: nothing is lost, and it stays well-formed.
        With `text`, the translation is of this part of the text.
        """
        text = self.text if text is None else text
        if not _is_sound(text, translation):
            marks = "".join(match[0] for match in MARK.finditer(text))
            translation = MARK.sub("", translation) + marks
        if self._vanishing:
            translation = EMPTY.sub(lambda match: "" if match[1] in self._vanishing else match[0], translation)
        written, offset = [], 0
        for match in MARK.finditer(translation):
            written += [escape(translation[offset : match.start()]), self._raw_of(match[0])]
            offset = match.end()
        return "".join([*written, escape(translation[offset:])])

    def _raw_of(self, mark: str) -> str:
        # an element that was never closed was added as "<g1>", and the text has it as the point "<g1/>"
        raw = self._raw[mark if mark in self._raw else mark.replace("/>", ">")]
        return raw if isinstance(raw, str) else raw()


def _is_sound(text: str, translation: str) -> bool:
    """Return whether a translation has the same tags as its text, properly nested."""
    marks = [match[0] for match in MARK.finditer(translation)]
    if Counter(marks) != Counter(match[0] for match in MARK.finditer(text)):
        return False
    opened: list[str] = []
    for mark in marks:
        if mark.startswith("</"):
            if not opened or opened.pop() != mark[2:]:
                return False
        elif mark.startswith("<") and not mark.endswith("/>"):
            opened.append(mark[1:])
    return not opened
