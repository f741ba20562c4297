"""Tags, placeholders, URLs and numbers that a translation keeps, each as often as its source has it.

Tags are taken out of what the model reads. A placeholder, a URL or a number stays where the model copies it. If it
does not, the sentence is translated once more with a stand-in that models copy more often, such as a name. `restoring`
puts everything back.

Wherever anything is copied, all but numbers is kept without being asked for. So are code, emoji, like tags, and words
that the vocabulary does not know, like placeholders.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import cast

from capsule_mt.text.copying import CODE, EMOJI, PLACEHOLDER, TAG, URL, may_have_no_words
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import Offsets

# what a translation may keep as it is in the source
KEPT = ("tags", "urls", "placeholders", "numbers")
KEPT_PATTERNS = {
    "tags": TAG,
    "urls": URL,
    "placeholders": PLACEHOLDER,
    "numbers": r"(?<!\w)(?<!\d[.,:/\-])\d+(?:[.,:/\-]\d+)*(?!\w|[.,:/\-]\d)",
    "code": CODE,
    "emoji": rf"{EMOJI}+(?:\s*{EMOJI}+)*",
}
COPIED = ("tags", "urls", "placeholders", "code", "emoji")  # kept wherever anything is copied
UNKNOWN = "unknown"  # the kind of words that the vocabulary does not know
NAME_OF_TAG = r"<(/?)([\w:-]+)"
# a sentence ends at these, which the model reads as a line break
BLOCK_TAG = (
    r"(?i)</?(?:p|div|br|hr|h[1-6]|[uod]l|li|d[td]|table|thead|tbody|tr|t[dh]|pre|blockquote|section|article)\b"
)
BLOCK_BREAK = "\x1e"
# the more a model has seen of them, the better it copies them, and the better it translates what is around them
STAND_INS = {
    "name": ("Tom", "John", "Boston", "Paris", "London", "David", "Berlin", "Peter", "Anna", "Maria"),
    "year": ("2013", "1999", "2005", "1980", "2000", "1970"),
    "amount": ("20", "30", "10", "50", "40", "100", "15", "60", "25", "80"),
}
NUMBER_PLACEHOLDER = r"%.*[difugx]"
YEAR = r"(?:1[5-9]|20)\d\d"


class Item(str):
    """A part of a text that is kept; its `kind` is one of `KEPT_PATTERNS`, or `UNKNOWN`."""

    kind: str

    def __new__(cls, text: str, kind: str) -> "Item":
        item = super().__new__(cls, text)
        item.kind = kind
        return item

    @property
    def stand_ins(self) -> tuple[str, ...]:
        if self.kind != "numbers" and not re.fullmatch(NUMBER_PLACEHOLDER, self):
            return STAND_INS["name"]
        return STAND_INS["year" if re.fullmatch(YEAR, self) else "amount"]


Part = tuple[str, Span]  # a string or an `Item`, and its characters of the user's text


def parts_of(text: str, kinds: Sequence[str]) -> list[str]:
    """Cut a text into strings and `Item`s of these kinds, which joined give the text."""
    pattern = "|".join(f"(?P<{kind}>{found})" for kind, found in KEPT_PATTERNS.items() if kind in kinds)
    parts: list[str] = []
    place = 0
    for match in re.finditer(pattern, text) if pattern else ():
        parts += [text[place : match.start()], Item(match[0], str(match.lastgroup))]
        place = match.end()
    return [part for part in [*parts, text[place:]] if part]


def placed(parts: Iterable[str]) -> list[Part]:
    """Return each of the parts of a text with its place."""
    found: list[Part] = []
    end = 0
    for part in parts:
        found.append((part, Span(end, end := end + len(part))))
    return found


def overlaps(span: Span, others: Iterable[Span]) -> bool:
    return any(span.start < end and start < span.end for start, end in others)


def is_item(part: str) -> bool:
    """Return whether a part is kept in the sentence, where a tag stands beside it."""
    return isinstance(part, Item) and not is_tag(part)


def is_tag(part: str) -> bool:
    return isinstance(part, Item) and part.kind in ("tags", "emoji")


def partners_of(parts: Sequence[str]) -> dict[int, int]:
    """Return the index of the end tag of each start tag among the parts that has one, and of its start tag.

    Elements that overlap have no partners: no order of words says which comes first.
    """
    opened: list[tuple[int, str]] = []
    left: set[str] = set()  # without an end inside the element around them
    partners = {}
    for number, part in enumerate(parts):
        tag = re.match(NAME_OF_TAG, part) if is_tag(part) else None
        if tag is None or part.endswith("/>"):
            continue
        name = tag[2].lower()
        places = [place for place, (_, other) in enumerate(opened) if other == name]
        if not tag[1]:
            opened.append((number, name))
        elif places:
            partners[opened[places[-1]][0]] = number
            left.update(other for _, other in opened[places[-1] + 1 :])
            del opened[places[-1] :]
        elif name in left:
            return {}
    return partners | {end: start for start, end in partners.items()}


class Masked:
    """A text, or a part of it, as the model reads it: without tags, and some of its items behind stand-ins.

    Args:
        prefix: what the model reads before it.
        stand_ins: by the index of the part.
    """

    def __init__(
        self, parts: list[Part], kinds: Sequence[str] = (), prefix: str = "", stand_ins: Mapping[int, str] = {}
    ) -> None:
        self.parts, self.kinds, self.prefix, self.stand_ins = parts, kinds, prefix, stand_ins
        self.offsets: Offsets = ()  # of its tokens
        self.written = [
            (BLOCK_BREAK if re.match(BLOCK_TAG, part) else "") if is_tag(part) else stand_ins.get(number, part)
            for number, (part, _) in enumerate(parts)
        ]
        self.text = "".join(self.written)  # what the model reads
        self.begins = [0, *accumulate(map(len, self.written))]  # of each part in the text
        self.tags = [number for number, (part, _) in enumerate(parts) if is_tag(part)]
        self.items = [number for number, (part, _) in enumerate(parts) if is_item(part)]
        self._given: set[int] = set()  # the tags that a part of this one has

    @property
    def shadow(self) -> str:
        """The text with items that hold no marks of sentences."""
        shown = list(self.written)
        for number in self.items:
            item = cast(Item, self.parts[number][0])
            shown[number] = ("1" if item.kind == "numbers" else "X") * len(item)
        return "".join(shown)

    @property
    def span(self) -> Span:
        """The characters of the user's text."""
        return Span(self.parts[0][1].start, self.parts[-1][1].end)

    def has_kept(self, span: Span) -> bool:
        """Whether some characters of the user's text are of what is kept."""
        return overlaps(span, (place for part, place in self.parts if isinstance(part, Item)))

    @property
    def has_words(self) -> bool:
        """Whether there is anything but items to translate."""
        words = (part for part, _ in self.parts if not isinstance(part, Item))
        return not self.items or any(character.isalpha() for part in words for character in part)

    def place(self, span: Span) -> Span:
        """Return the characters of the user's text behind some of `text`."""
        first, last = bisect_right(self.begins, span.start) - 1, bisect_right(self.begins, span.end - 1) - 1
        start, end = self.parts[first][1].start, self.parts[last][1].end
        start += 0 if isinstance(self.parts[first][0], Item) else span.start - self.begins[first]
        end -= 0 if isinstance(self.parts[last][0], Item) else self.begins[last + 1] - span.end
        return Span(start, end)

    def is_unknown(self, span: Span) -> bool:
        """Whether some characters of `text` stand for a word that the vocabulary does not know."""
        part = self.parts[bisect_right(self.begins, span.start) - 1][0]
        return isinstance(part, Item) and part.kind == UNKNOWN

    def part(self, span: Span, prefix: str = "") -> "Masked":
        """Return what some characters of `text` are, with the tags between them.

        A tag at an edge is with them if its partner is further inside, and if no other part has it.
        """
        found: list[tuple[int, Part]] = []
        for number, (part, place) in enumerate(self.parts):
            begin, end = self.begins[number : number + 2]
            first, last = max(begin, span.start), min(end, span.end)
            if is_tag(part):
                if first <= last and number not in self._given:
                    found.append((number, (part, place)))
            elif first < last:
                whole = (first, last) == (begin, end)
                cut = Span(place.start + first - begin, place.start + last - begin)
                found.append((number, (part, place) if whole else (str(part)[first - begin : last - begin], cut)))
        while True:
            parts = [part for _, (part, _) in found]
            partners, inner = partners_of(parts), [n for n, part in enumerate(parts) if not is_tag(part)]
            end = len(parts) - 1
            if inner[-1] < end and not partners.get(end, end) < inner[-1]:
                del found[end]
            elif inner[0] > 0 and not inner[0] < partners.get(0, 0) < end:
                del found[0]
            else:
                break
        self._given.update(number for number, (part, _) in found if is_tag(part))
        return Masked([part for _, part in found], self.kinds, prefix)

    def with_unknown(self, spans: Sequence[Span]) -> "Masked":
        """Return this with these parts of `text` as words that the vocabulary does not know, behind stand-ins."""
        parts: list[Part] = []
        for number, (part, place) in enumerate(self.parts):
            begin, cut = self.begins[number], 0
            for span in spans if not isinstance(part, Item) else ():
                first, last = max(span.start - begin, cut), min(span.end - begin, len(part))
                if first < last:
                    parts.append((part[cut:first], Span(place.start + cut, place.start + first)))
                    parts.append((Item(part[first:last], UNKNOWN), Span(place.start + first, place.start + last)))
                    cut = last
            rest = part if isinstance(part, Item) else part[cut:]
            parts.append((rest, Span(place.start + cut, place.end)))
        parts = [part for part in parts if part[0]]
        unknown = [n for n, (part, _) in enumerate(parts) if isinstance(part, Item) and part.kind == UNKNOWN]
        free = (name for name in STAND_INS["name"] if name not in self.text)
        kinds = (*self.kinds, UNKNOWN)
        return Masked(parts, kinds, self.prefix, dict(zip(unknown, free, strict=False)))

    def with_stand_ins(self, translation: str) -> "Masked | None":
        """Return this with stand-ins for the items that a translation does not have; `None` if there is no need.

        All have one where it has halves of placeholders, such as a "%" more, with which no program could fill them in.
        """
        found, others = self.items_in(translation)
        kept = [translation[place.start : place.end] for place in (*found.values(), *(place for _, place in others))]
        rest = [part for part, _ in self.parts if not isinstance(part, Item)]
        for sign in "%{}" if "placeholders" in self.kinds else "":
            if translation.count(sign) - "".join(kept).count(sign) > "".join(rest).count(sign):
                found = {}
        stand_ins: dict[int, str] = {}
        for number in self.items:
            free = (one for one in cast(Item, self.parts[number][0]).stand_ins if one not in self.text)
            free = (one for one in free if one not in stand_ins.values())
            if number not in found and (stand_in := next(free, None)):
                stand_ins[number] = stand_in
        return Masked(self.parts, self.kinds, self.prefix, stand_ins) if stand_ins and not self.stand_ins else None

    def items_in(self, translation: str) -> tuple[dict[int, Span], list[Part]]:
        """Return where the items, or their stand-ins, are in a translation, and what else it has of their kinds."""
        others: list[Part] = [
            (part, place) for part, place in placed(parts_of(translation, self.kinds)) if isinstance(part, Item)
        ]
        names = "|".join(text for text in self.stand_ins.values() if text.isalpha())
        for match in re.finditer(rf"\b(?:{names})\b", translation) if names else ():
            if not overlaps(Span(*match.span()), (place for _, place in others)):
                others.append((Item(match[0], "urls"), Span(*match.span())))
        found: dict[int, Span] = {}
        for number in self.items:
            same = next((other for other in others if other[0] == self.written[number]), None)
            if same is not None:
                others.remove(same)
                found[number] = same[1]
        return found, others


def masked(text: str, kinds: Sequence[str] = (), copies: bool = False) -> Masked:
    """Return a text as the model reads it if items of these kinds are kept, or also those that are `COPIED`."""
    if copies and (may_have_no_words(text) or not (text.isascii() or re.search(EMOJI, text) is None)):
        more = tuple(kind for kind in KEPT_PATTERNS if kind in kinds or kind in COPIED)
        found = Masked(placed(parts_of(text, more)), more)
        if found.tags or found.items:
            return found
    return Masked(placed(parts_of(text, kinds)) or [("", Span(0, 0))], kinds)
