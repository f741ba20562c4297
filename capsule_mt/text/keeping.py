"""Tags, placeholders, URLs and numbers that a translation keeps, each as often as its source has it.

Tags are taken out of what the model reads. A placeholder, a URL or a number stays where the model copies it. If it
does not, the sentence is translated once more with a stand-in that models copy more often, such as a name. `restoring`
puts everything back.

Wherever anything is copied, all but numbers is kept without being asked for. So are code, emoji, like tags, and words
that the vocabulary does not know, like placeholders. A sign that it does not know is kept with its number ("\xa320"),
or by itself like a tag.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import cast

from capsule_mt.text.copying import CODE, EMOJI, PLACEHOLDER, TAG, URL, may_have_no_words
from capsule_mt.text.normal import NormalForm, Vocabulary
from capsule_mt.text.sentences import CLOSING, OPENING, Span
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
# the kinds of what the vocabulary does not know: words, signs with a number, and signs by themselves
UNKNOWN, AMOUNT, SIGN = "unknown", "amounts", "signs"
AROUND_ITEMS = f" \t\xa0{OPENING}{CLOSING}"
MOST_ROUNDS = 2  # of other stand-ins, before a sentence is cut around what it keeps
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
    """A part of a text that is kept; its `kind` is one of `KEPT_PATTERNS`, or of what the vocabulary does not know."""

    kind: str

    def __new__(cls, text: str, kind: str) -> "Item":
        item = super().__new__(cls, text)
        item.kind = kind
        return item

    @property
    def stand_ins(self) -> tuple[str, ...]:
        if self.kind == AMOUNT:
            numbers = re.findall(r"\d+", self)
            return (*numbers, *STAND_INS["amount"]) if len(numbers) == 1 else STAND_INS["amount"]
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
    return isinstance(part, Item) and part.kind in ("tags", "emoji", SIGN)


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
        parts: with their characters of the normal form.
        prefix: what the model reads before it.
        stand_ins: by the index of the part.
        normal: the normal form of the user's text.
        tried: stand-ins that earlier translations have not kept, one set for each translation.
    """

    def __init__(
        self,
        parts: list[Part],
        kinds: Sequence[str] = (),
        prefix: str = "",
        stand_ins: Mapping[int, str] = {},
        normal: NormalForm | None = None,
        tried: Sequence[frozenset[str]] = (),
    ) -> None:
        self.parts, self.kinds, self.prefix, self.stand_ins = parts, kinds, prefix, stand_ins
        self.normal, self.tried = normal, tried
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
        return self.source_span(Span(self.parts[0][1].start, self.parts[-1][1].end))

    def source_span(self, span: Span) -> Span:
        """Return the characters of the user's text behind some of the normal form."""
        return span if self.normal is None else self.normal.source_span(span)

    @property
    def has_small_first(self) -> bool:
        """Whether the normal form has the first letter small, where the user's text has a capital."""
        if self.normal is None or self.normal.text == self.normal.source:
            return False
        index = next((index for index, character in enumerate(self.text) if character.isalpha()), None)
        if index is None or not self.text[index].islower():
            return False
        start, end = self.place(Span(index, index + 1))
        return self.normal.source[start:end].isupper()

    def has_kept(self, span: Span) -> bool:
        """Whether some characters of the user's text are of what is kept."""
        return overlaps(span, (self.source_span(place) for part, place in self.parts if isinstance(part, Item)))

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
        return self.source_span(Span(start, end))

    def is_copied(self, span: Span) -> bool:
        """Whether some characters of `text` are of an item, which the translation has as it is."""
        return is_item(self.parts[bisect_right(self.begins, span.start) - 1][0])

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
        return Masked([part for _, part in found], self.kinds, prefix, normal=self.normal)

    def with_unknown(self, spans: Mapping[Span, str]) -> "Masked":
        """Return this with these parts of `text` as items of what the vocabulary does not know, by their kinds."""
        parts: list[Part] = []
        for number, (part, place) in enumerate(self.parts):
            begin, cut = self.begins[number], 0
            for span, kind in spans.items() if not isinstance(part, Item) else ():
                first, last = max(span.start - begin, cut), min(span.end - begin, len(part))
                if first < last:
                    inner = Span(place.start + first, place.start + last)
                    content = part[first:last] if self.normal is None else self.normal.source_text(inner)
                    parts.append((part[cut:first], Span(place.start + cut, inner.start)))
                    parts.append((Item(content, kind), inner))
                    cut = last
            rest = part if isinstance(part, Item) else part[cut:]
            parts.append((rest, Span(place.start + cut, place.end)))
        parts = [part for part in parts if part[0]]
        kinds = (*self.kinds, *dict.fromkeys(spans.values()))
        unknown = [n for n, (part, _) in enumerate(parts) if isinstance(part, Item) and part.kind in (UNKNOWN, AMOUNT)]
        stand_ins = self._stand_ins({number: cast(Item, parts[number][0]) for number in unknown}, {})
        return Masked(parts, kinds, self.prefix, stand_ins, self.normal)

    def _stand_ins(self, items: Mapping[int, Item], used: Mapping[int, str]) -> dict[int, str]:
        """Return those in use with one for each of these items, as far as there are any left."""
        stand_ins = dict(used)
        tried = frozenset().union(*self.tried)
        words = "".join(part for part, _ in self.parts if not isinstance(part, Item) or part.kind != AMOUNT)
        for number, item in items.items():
            taken = (*tried, *stand_ins.values())
            free = (text for text in item.stand_ins if text not in taken and not _count(text, words))
            if stand_in := next(free, None):
                stand_ins[number] = stand_in
        return stand_ins

    def lost(self, translation: str) -> list[int]:
        """Return the items that a translation does not have, or whose stand-ins it does not have exactly once.

        All are lost where it has halves of placeholders, such as a "%" more, with which no program could fill them in.
        """
        found, others = self.items_in(translation)
        kept = [translation[place.start : place.end] for place in (*found.values(), *(place for _, place in others))]
        rest = [part for part, _ in self.parts if not isinstance(part, Item)]
        for sign in "%{}" if "placeholders" in self.kinds else "":
            if translation.count(sign) - "".join(kept).count(sign) > "".join(rest).count(sign):
                return list(self.items)
        leaks = {number for number, text in self.stand_ins.items() if _count(text, translation) != 1}
        return [number for number in self.items if number not in found or number in leaks]

    def with_stand_ins(self, lost: Sequence[int]) -> "Masked | None":
        """Return this with other stand-ins for items that a translation has lost; `None` if there are none left."""
        tried = (*self.tried, frozenset(self.stand_ins[number] for number in lost if number in self.stand_ins))
        kept = {number: text for number, text in self.stand_ins.items() if number not in lost}
        again = Masked(self.parts, self.kinds, self.prefix, kept, self.normal, tried)
        stand_ins = again._stand_ins({number: cast(Item, self.parts[number][0]) for number in lost}, kept)
        if len(tried) > MOST_ROUNDS or not all(number in stand_ins for number in lost):
            return None
        return Masked(self.parts, self.kinds, self.prefix, stand_ins, self.normal, tried)

    def around_items(self) -> "list[tuple[Span, Masked]]":
        """Return the parts of this between items that have words, with their characters of `text`."""
        spans, start = [], 0
        for end, after in (*((self.begins[n], self.begins[n + 1]) for n in self.items), (len(self.text),) * 2):
            stripped = self.text[start:end].strip(AROUND_ITEMS)  # else a model closes a quote that only begins here
            if any(map(str.isalpha, stripped)):
                first = self.text.index(stripped, start)
                spans.append(Span(first, first + len(stripped)))
            start = after
        return [(span, self.part(span, self.prefix)) for span in spans]

    def items_in(self, translation: str) -> tuple[dict[int, Span], list[Part]]:
        """Return where the items, or their stand-ins, are in a translation, and what else it has of their kinds."""
        others: list[Part] = [
            (part, place) for part, place in placed(parts_of(translation, self.kinds)) if isinstance(part, Item)
        ]
        patterns = "|".join(map(_pattern, self.stand_ins.values()))
        for match in re.finditer(patterns, translation) if patterns else ():
            if not overlaps(Span(*match.span()), (place for _, place in others)):
                others.append((Item(match[0], "urls"), Span(*match.span())))
        found: dict[int, Span] = {}
        for number in self.items:
            same = next((other for other in others if other[0] == self.written[number]), None)
            if same is not None:
                others.remove(same)
                found[number] = same[1]
        return found, others


def masked(text: str, kinds: Sequence[str] = (), copies: bool = False, vocabulary: Vocabulary | None = None) -> Masked:
    """Return a text as the model reads it if items of these kinds are kept, or also those that are `COPIED`.

    vocabulary: read the normal form of what is not kept.
    """
    parts = parts_of(text, kinds)
    if copies and (may_have_no_words(text) or not (text.isascii() or re.search(EMOJI, text) is None)):
        more = tuple(kind for kind in KEPT_PATTERNS if kind in kinds or kind in COPIED)
        with_copied = parts_of(text, more)
        if any(isinstance(part, Item) for part in with_copied):
            parts, kinds = with_copied, more
    if vocabulary is None:
        return Masked(placed(parts) or [("", Span(0, 0))], kinds)
    items = [(part, span) for part, span in placed(parts) if isinstance(part, Item)]
    normal = vocabulary.normal_form(text, [span for _, span in items])
    if normal.text != text:
        parts, start = [], 0
        for item, span in items:
            at = normal.offset(span.start)
            parts += [normal.text[start:at], item]
            start = at + len(item)
        parts = [part for part in (*parts, normal.text[start:]) if part]
    return Masked(placed(parts) or [("", Span(0, 0))], kinds, normal=normal)


_NUMBER = r"\d(?:[\d.,\u202f]*\d)?"
_BEFORE_SIGN = re.compile(rf"(?<![\w.,]){_NUMBER}([ \xa0\u202f]?)\Z")
_AFTER_SIGN = re.compile(rf"([ \xa0\u202f]?)[+-]?{_NUMBER}(?:[kKmMbB]n?\b)?(?!\w)")
_LEFT_SIDE = re.compile(rf"(?<![\w.,])(?:{_NUMBER}|[^\W\d_])([ \xa0\u202f]?)\Z")
_RIGHT_SIDE = re.compile(rf"([ \xa0\u202f]?)(?:[+-]?{_NUMBER}|[^\W\d_])(?!\w)")
LONGEST_NUMBER = 32  # characters that are looked at


def with_numbers(text: str, spans: Mapping[Span, str]) -> dict[Span, str]:
    """Return parts of a text by their kinds, with the number beside a sign, such as "\xa320" or "3 \xd7 4", as one."""
    found: dict[Span, str] = {}
    for span, kind in sorted(spans.items()):
        start, end, least = *span, max((other.end for other in found), default=0)
        if start < least:
            continue  # beside the number of the one before
        if kind == SIGN:
            first = max(start - LONGEST_NUMBER, least)
            before, after = _LEFT_SIDE.search(text, first, start), _RIGHT_SIDE.match(text, end, end + LONGEST_NUMBER)
            if not (unicodedata.category(text[start]) == "Sm" and before and after):  # no formula such as "x \u2264 5"
                before = _BEFORE_SIGN.search(text, first, start)
                after = _AFTER_SIGN.match(text, end, end + LONGEST_NUMBER)
            if unicodedata.category(text[start]) == "Sc" and before and after:  # of a currency, the nearer one
                before, after = (before, None) if after[1] else (None, after)
            start, end = before.start() if before else start, after.end() if after else end
            kind = AMOUNT if before or after else SIGN
        found[Span(start, end)] = kind
    return found


def _pattern(stand_in: str) -> str:
    """Return the pattern of a stand-in in a translation: a word, or a number that is no part of another."""
    return rf"\b{stand_in}\b" if stand_in.isalpha() else rf"(?<![\w.,]){stand_in}(?!\w|[.,]\d)"


def _count(stand_in: str, text: str) -> int:
    """Return how often a stand-in is in a text, also as a part of a word."""
    return text.count(stand_in) if stand_in.isalpha() else len(re.findall(rf"(?<!\d){stand_in}(?!\d)", text))
