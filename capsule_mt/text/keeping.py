"""Tags, placeholders, URLs and numbers that a translation keeps, each as often as its source has it.

The model never reads tags. It reads placeholders, URLs and numbers, and mostly copies them. If it loses one, the
sentence is translated again with a stand-in that models copy more often, such as a name. A placeholder for a number
has a number as its stand-in from the start. `restoring` puts everything back.

Unless copying is off, everything but numbers is kept by default: emoji as tags are, and code, names and words that
the vocabulary lacks as placeholders are. A sign that the vocabulary lacks is kept with its number ("\xa320"), or alone
like a tag. The model reads an arrow between words, as in "Settings \u2192 Privacy", as ">".
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import cast

from capsule_mt.text.copying import (
    BARE_PLACEHOLDERS,
    BREAK,
    CODE,
    EMOJI,
    NAMES,
    NUMBER_PLACEHOLDER,
    PLACEHOLDER,
    TAG,
    URL,
    has_signed_numbers,
    is_ordinary,
    may_have_non_words,
)
from capsule_mt.text.normal import NormalForm, Vocabulary
from capsule_mt.text.sentences import CLOSING, OPENING, Span
from capsule_mt.text.words import Offsets

KEEP_KINDS = ("tags", "urls", "placeholders", "numbers")  # the kinds that `keep` takes
_EMOJI = rf"{EMOJI}+(?:\s*{EMOJI}+)*"
PATTERNS = {
    "tags": TAG,
    "urls": URL,
    "placeholders": PLACEHOLDER,
    "numbers": r"(?<!\w)(?<!&#)(?<!\d[.,:/\-])\d+(?:[.,:/\-]\d+)*(?!\w|[.,:/\-]\d)",
    "breaks": BREAK,
    "code": CODE,
    "names": NAMES,
    # also in quotes or brackets; not only a joiner or a selector of a variant, which may stand between letters
    "emoji": rf"(?![\u200d\ufe0f](?!\u20e3)){_EMOJI}|[(\"'\u201c\xab]{_EMOJI}[)\"'\u201d\xbb]"
    r"|(?<!\S)(?:[:;]-?\)|:-?[(DP/|])(?!\w)",  # ":-)"
}
# Markdown's marks around words, which the model does not read; underscores inside words are code
EMPHASIS_MARKS = (r"\*\*\*", r"\*\*", r"\*", "__", "_", "~~")
PATTERNS["emphasis"] = "|".join(
    rf"(?<![\w*~\\]){mark}(?=[\w\"'\u201c\u2018\xab(\[{{<%$])[^*~\n]{{0,1000}}?(?<=[^\s*~\\]){mark}(?![\w*~])"
    for mark in EMPHASIS_MARKS
)
# Numbers of several groups, or with a group and decimals: models change their digits. A sign of currency is kept with
# its number. Numbers joined by hyphens, one of them of three digits or more: "555-1234", "2021-03".
_CURRENCIES = "\xa2-\xa5\u20a0-\u20cf"
_SPACES = " '\u2019\xa0\u2007\u2009\u202f"
PATTERNS["numerals"] = (
    rf"(?<![\w.,+'\u2019{_CURRENCIES}])(?<![{_CURRENCIES}][ \xa0])(?<!\d[ \xa0\u2007\u2009\u202f])\d{{1,3}}"
    + "(?:"
    + "|".join(
        rf"{sign}\d{{3}}(?:(?:{sign}\d{{3}})+(?:{decimal}\d+)?|{decimal}\d+)"
        for sign, decimal in ((f"[{_SPACES}]", "[.,]"), (",", r"\."), (r"\.", ","))
    )
    + rf")(?![\w'\u2019]|[.,]\d|-\d\d(?![\d.,])|[ \xa0]?[{_CURRENCIES}]|[{_SPACES}]\d)"
    r"|(?<![\w.,/:+'\u2019\xa0\u202f-])\+?(?:\d{1,16}-){0,5}(?:\d{3,16}-\d{1,16}|\d{1,16}-\d{3,16})(?:-\d{1,16}){0,5}"
    r"(?![\w-]|[.,/:'\u2019\xa0\u202f]\d)"
)
# signs of notes after a word or a mark, or before a note: "word\xb9", "word*", "end.[2]", "ends(1)"; powers, as in
# "m\xb2"; an author's remarks: "word [sic]", "word (!)"; "<< Back", which vocabularies read as "< < Back"
_LETTER, _AFTER_MARK = r"[^\W\d_]", "(?<=[.,;:!?)\"'\u201d\u2019\xbb%])"
PATTERNS["signs"] = (
    rf"(?:(?<=[^\W_])|{_AFTER_MARK}|(?<!\S))[\xb9\xb2\xb3\u2070\u2074-\u207f]+(?![\u1d2c-\u1dbf])"
    rf"|(?:(?<={_LETTER}{{2}})|{_AFTER_MARK})(?:\[[1-9]\d{{0,2}}\]|\([1-9]\d?\))+(?!\()|(?<={_LETTER}{{2}})\*{{1,3}}(?![\w*])"
    rf"|(?<={_LETTER} )\([1-9]\d?\)"
    r"|(?<=[^\n])[\[(](?:sic|[-+*!?]|\.\.\.|\u2026)[\])]|(?<!\S)<<(?!\S)"
)
# a fast check: `signs` match only where one of these is, or "*", which `may_have_non_words` looks for
IN_SIGNS = r"\((?:[-1-9+*!?.\u2026]|sic)|[\[\xb9\xb2\xb3\u2070\u2074-\u207f]"
COPIED_KINDS = (
    "tags",
    "urls",
    "placeholders",
    "breaks",
    "code",
    "names",
    "emoji",
    "emphasis",
    "numerals",
    "signs",
)  # kept by default
# the kinds of items that the vocabulary lacks: words, signs with a number, and signs alone
UNKNOWN, AMOUNT, SIGN, ARROW = "unknown", "amounts", "signs", "arrows"
ARROWS = frozenset("\xab\xbb\u2039\u203a\u2192\u21d2\u21e8\u279c\u279d\u279e\u27a1\u27a4\u27f6\u25b6\u25b8\u25ba")
ARROW_STAND_IN = ">"  # in a menu path: without it, a model reorders "Settings Privacy" as one phrase
AROUND_ITEMS = f" \t\xa0{OPENING}{CLOSING}"
MAX_ROUNDS = 2  # of new stand-ins, before a sentence is cut around its items
TAG_NAME = r"<(/?)([\w:-]+)"
# tags that end a sentence, as "\n" does: the model reads a line break
BLOCK_TAG = (
    r"(?i)\\[nrt]"
    r"|</?(?:p|div|br|hr|h[1-6]|ul|ol|dl|li|dt|dd|table|thead|tbody|tr|td|th|pre|blockquote|section|article)(?!\w)"
)
BLOCK_BREAK = "\x1e"
# frequent in training data: models copy them reliably, and translate the words around them well
STAND_INS = {
    "name": ("Tom", "John", "Boston", "Paris", "London", "David", "Berlin", "Peter", "Anna", "Maria"),
    "year": ("2013", "1999", "2005", "1980", "2000", "1970"),
    "amount": ("20", "30", "10", "50", "40", "100", "15", "60", "25", "80"),
    # of placeholders for numbers: the best of eight lists on 130 messages of catalogs, Portuguese and English
    "count": ("100", "200", "300", "400", "500", "600", "700", "800"),
}
YEAR = r"(?:1[5-9]|20)\d\d"
# what the splitter of sentences reads for an item: "X" would be a Roman numeral, and a single letter an initial
ITEM_CHARACTER = "\ue000"


class Item(str):
    """A part of a text that is kept; its `kind` is one of `PATTERNS`, or UNKNOWN, AMOUNT, SIGN or ARROW."""

    kind: str

    def __new__(cls, text: str, kind: str) -> "Item":
        item = super().__new__(cls, text)
        item.kind = kind
        return item

    @property
    def stand_ins(self) -> tuple[str, ...]:
        if self.kind == ARROW:
            return (ARROW_STAND_IN,)
        if self.kind == AMOUNT:
            numbers = re.findall(r"\d+", self)
            return (*numbers, *STAND_INS["amount"]) if len(numbers) == 1 else STAND_INS["amount"]
        if self.is_number_placeholder:
            return STAND_INS["count"]
        if self.kind == "numerals":
            return STAND_INS["amount"]
        if self.kind != "numbers":
            return STAND_INS["name"]
        return STAND_INS["year" if re.fullmatch(YEAR, self) else "amount"]

    @property
    def is_number_placeholder(self) -> bool:
        """Whether it is one placeholder for a number, without text glued to it."""
        return self.kind == "placeholders" and re.fullmatch(NUMBER_PLACEHOLDER, self) is not None


Part = tuple[str, Span]  # a string or an `Item`, and its span of the text


def parts_of(text: str, kinds: Sequence[str]) -> list[str]:
    """Cut a text into strings and `Item`s of these kinds; joined they are the text."""
    return list(_parts_of(text, tuple(kinds))) if kinds else [str(text)] * bool(text)


@lru_cache(maxsize=8)  # several steps cut the same text, and the patterns are slow
def _parts_of(text: str, kinds: tuple[str, ...]) -> list[str]:
    pattern = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in PATTERNS.items() if kind in kinds)
    parts: list[str] = []
    end = 0
    for match in re.finditer(pattern, text) if pattern else ():
        parts.append(text[end : match.start()])
        if match.lastgroup == "emphasis":
            parts += _emphasised(match[0], kinds)
        else:
            parts.append(Item(match[0], str(match.lastgroup)))
        end = match.end()
    return [part for part in [*parts, text[end:]] if part]


def placeholders_of(text: str) -> Counter[str]:
    """Count the placeholders of a text, without what is glued to them, which may be translated: "{}th" and "{}."."""
    if not may_have_non_words(text):
        return Counter()
    items = (part for part in parts_of(text, ("tags", "urls", "placeholders")) if isinstance(part, Item))
    return Counter(bare(item) for item in items if item.kind == "placeholders")


def bare(item: Item) -> Item:
    """Return a placeholder without what is glued to it, and any other item as it is."""
    match = re.search(BARE_PLACEHOLDERS, item) if item.kind == "placeholders" else None
    return Item(match[0], item.kind) if match else item


def _emphasised(text: str, kinds: Sequence[str]) -> list[str]:
    """Return the parts of emphasised text: the mark, such as "**", the text's parts, and the mark."""
    length = min(len(text) - len(text.lstrip(text[0])), len(text) - len(text.rstrip(text[0])))
    mark = Item(text[:length], "emphasis")
    if mark == text:  # a blank to fill in, as in "My name is ____"; a mark around nothing would be dropped
        return [Item(text, SIGN)]
    return [mark, *parts_of(text[length:-length], kinds), mark]


def with_spans(strings: Iterable[str]) -> list[Part]:
    """Return the parts of a text, each with its span."""
    parts: list[Part] = []
    end = 0
    for string in strings:
        parts.append((string, Span(end, end := end + len(string))))
    return parts


def overlaps(span: Span, spans: Iterable[Span]) -> bool:
    """Return whether a span shares a character with any of the spans."""
    return any(span.start < end and start < span.end for start, end in spans)


def overlapping(span: Span, spans: Sequence[Span]) -> Sequence[Span]:
    """Return those of the spans that share a character with a span; they are sorted, and none overlaps another."""
    first = bisect_left(spans, (span.start,))
    first -= first > 0 and spans[first - 1].end > span.start
    return spans[first : bisect_left(spans, (span.end,))]


def is_item(part: str) -> bool:
    """Return whether a part is a kept item that the model reads, unlike a tag."""
    return isinstance(part, Item) and not is_tag(part)


def is_tag(part: str) -> bool:
    """Return whether a part is taken out of what the model reads: a tag, emoji or a sign."""
    return isinstance(part, Item) and part.kind in ("tags", "breaks", "emoji", "emphasis", SIGN)


def _is_unchanged_text(part: Part) -> bool:
    """Return whether a part is plain text of the user's, not an ending that replaces another."""
    text, span = part
    return not isinstance(text, Item) and len(text) == span.end - span.start


def partners_of(parts: Sequence[str]) -> dict[int, int]:
    """Return the index of each start tag's end tag among the parts, and of each end tag's start tag.

    Empty if elements overlap: then it is unclear which tag a translation must open or close first.
    """
    partners, overlap = _partners_before_overlap(parts)
    return partners if overlap == len(parts) else {}


def _is_emphasis(part: str) -> bool:
    return isinstance(part, Item) and part.kind == "emphasis"


def _without_edge_tags(parts: Sequence[str]) -> tuple[int, int]:
    """Return the first part and the end without tags at the edges whose partners are surely outside.

    A tag that is dropped may have been the partner of another one at an edge: call it again with what remains.
    """
    partners, overlap = _partners_before_overlap(parts)
    content = [index for index, part in enumerate(parts) if not is_tag(part)]
    end = len(parts)
    while content[-1] < end - 1 and (overlap < end or partners.get(end - 1, end) >= content[-1]):
        end -= 1
    if end < len(parts):
        return 0, end
    first = 0
    while first < content[0] and (first not in partners or (overlap == end and _is_closed(parts, partners, first))):
        first = partners.get(first, first) + 1
    if first or not content[0] or (overlap == end and content[0] < partners[0] < end - 1):
        return first, end
    if overlap == end and all(index in partners for index, part in enumerate(parts) if is_tag(part)):
        while first < content[0] and partners[first] == end - 1 > content[-1]:  # an element around everything
            first, end = first + 1, end - 1
        return max(first, 1), end
    return 1, end


def _is_closed(parts: Sequence[str], partners: Mapping[int, int], start: int) -> bool:
    """Whether the element of a start tag has nothing but further such elements in it, and no marks of emphasis."""
    end = partners[start]
    return not _is_emphasis(parts[start]) and all(
        is_tag(parts[tag]) and start < partners.get(tag, -1) < end and not _is_emphasis(parts[tag])
        for tag in range(start + 1, end)
    )


def _partners_before_overlap(parts: Sequence[str]) -> tuple[dict[int, int], int]:
    """Return the partners of tags up to the first end tag at which elements overlap, and its index, or the end."""
    open_tags: list[tuple[int, str]] = []  # with closed marks of emphasis, up to the end of the element around them
    open_by_name: dict[str, list[int]] = {}
    unclosed: set[str] = set()  # names of tags that the element around them closed
    partners = {}
    for index, part in enumerate(parts):
        if _is_emphasis(part):
            if openings := open_by_name.setdefault(str(part), []):
                partners[openings.pop()] = index
            else:
                openings.append(index)
                open_tags.append((index, str(part)))
            continue
        tag = re.match(TAG_NAME, part) if is_tag(part) else None
        if tag is None or part.endswith("/>"):
            continue
        name = tag[2].lower()
        openings = open_by_name.setdefault(name, [])
        if not tag[1]:
            openings.append(index)
            open_tags.append((index, name))
        elif openings:
            opening = openings.pop()
            partners[opening] = index
            while (inner := open_tags.pop())[0] != opening:
                if inner[0] in open_by_name[inner[1]][-1:]:
                    open_by_name[inner[1]].pop()
                    unclosed.add(inner[1])
        elif name in unclosed:
            return partners | {end: start for start, end in partners.items()}, index
    return partners | {end: start for start, end in partners.items()}, len(parts)


class Masked:
    """A text, or a part of it, as the model reads it: without tags, and with stand-ins for some items.

    Spans count characters of three texts: `text`, which the model reads, the normal form, and the user's text.

    Args:
        parts: with their spans of the normal form.
        prefix: what the model reads before the text.
        stand_ins: by the index of the part.
        normal: the normal form of the user's text.
        tried: stand-ins that earlier translations have lost, one set for each translation.
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
        self.part_texts = [part for part, _ in parts]  # each part as the model reads it
        self.tags: list[int] = []
        self.items: list[int] = []
        for index, part in enumerate(self.part_texts):
            if isinstance(part, Item):
                (self.tags if is_tag(part) else self.items).append(index)
        for index in self.tags:
            self.part_texts[index] = BLOCK_BREAK if re.match(BLOCK_TAG, parts[index][0]) else ""
        for index, stand_in in stand_ins.items():
            self.part_texts[index] = stand_in
        self.text = "".join(self.part_texts)  # what the model reads
        self.starts = [0, *accumulate(map(len, self.part_texts))]  # offsets of the parts in `text`, and its end
        self._used_tags: set[int] = set()  # tags that `part` has already returned

    @property
    def shadow(self) -> str:
        """`text` with a mark or 1 for each character of an item, so that stops inside an item end no sentence."""
        if not self.items:
            return self.text
        strings = list(self.part_texts)
        for index in self.items:
            item = cast(Item, self.parts[index][0])
            strings[index] = ("1" if item.kind == "numbers" else ITEM_CHARACTER) * len(item)
        return "".join(strings)

    @property
    def span(self) -> Span:
        """Its span of the user's text."""
        return self.source_span(Span(self.parts[0][1].start, self.parts[-1][1].end))

    def source_span(self, span: Span) -> Span:
        """Return the span of the user's text behind a span of the normal form."""
        return span if self.normal is None else self.normal.source_span(span)

    @property
    def has_lowercased_first(self) -> bool:
        """Whether the normal form lowercased the first letter of the user's text."""
        if self.normal is None or self.normal.text == self.normal.source:
            return False
        index = next((index for index, character in enumerate(self.text) if character.isalpha()), None)
        if index is None or not self.text[index].islower():
            return False
        start, end = self.user_span(Span(index, index + 1))
        return self.normal.source[start:end].isupper()

    def has_kept(self, span: Span) -> bool:
        """Whether a span of the user's text overlaps anything that is kept."""
        item_spans = (self.source_span(part_span) for part, part_span in self.parts if isinstance(part, Item))
        return overlaps(span, item_spans)

    @property
    def has_words(self) -> bool:
        """Whether there are letters to translate outside the items, or no items at all."""
        if not self.items:
            return True
        words = (part for part, _ in self.parts if not isinstance(part, Item))
        return any(character.isalpha() for part in words for character in part)

    @cached_property
    def shift(self) -> int | None:
        """The offset of `text` in the user's text; `None` if the user's text does not contain it unchanged."""
        (part, (start, end)), *further = self.parts or [("", Span(0, 0))]
        is_run = not further and not isinstance(part, Item) and end - start == len(part) > 0
        return start if is_run and (self.normal is None or self.normal.is_unchanged) else None

    def user_span(self, span: Span) -> Span:
        """Return the span of the user's text behind a span of `text`; an item is never cut."""
        if self.shift is not None:
            return Span(span.start + self.shift, span.end + self.shift)
        first, last = bisect_right(self.starts, span.start) - 1, bisect_right(self.starts, span.end - 1) - 1
        start, end = self.parts[first][1].start, self.parts[last][1].end
        start += 0 if isinstance(self.parts[first][0], Item) else span.start - self.starts[first]
        end -= 0 if isinstance(self.parts[last][0], Item) else self.starts[last + 1] - span.end
        return self.source_span(Span(start, end))

    def is_copied(self, span: Span) -> bool:
        """Whether a span of `text` begins in an item, which the translation copies."""
        return is_item(self.parts[bisect_right(self.starts, span.start) - 1][0])

    def part(self, span: Span, prefix: str = "") -> "Masked":
        """Return a span of `text` with the tags inside it.

        A tag at an edge is included if its partner is inside, too, and if no earlier call has returned the tag.
        """
        is_whole = span == (0, len(self.text)) and prefix == self.prefix
        if is_whole and not (self.tags or self.stand_ins or self.tried):
            return self
        selected: list[tuple[int, Part]] = []
        # the parts that touch the span; tags have no characters
        touching = range(bisect_left(self.starts, span.start, 1) - 1, bisect_right(self.starts, span.end))
        for index in touching[: len(self.parts) - touching.start]:
            (part, part_span), start, end = self.parts[index], self.starts[index], self.starts[index + 1]
            first, last = max(start, span.start), min(end, span.end)
            if is_tag(part):
                if first <= last and index not in self._used_tags:
                    selected.append((index, (part, part_span)))
            elif (first, last) == (start, end) and first < last:
                selected.append((index, (part, part_span)))
            elif first < last:  # a cut item is plain text
                cut_span = Span(part_span.start + first - start, part_span.start + last - start)
                selected.append((index, (str(part)[first - start : last - start], cut_span)))
        # drop the tags at the edges whose partners are outside
        while True:
            first_index, end_index = _without_edge_tags([part for _, (part, _) in selected])
            if end_index - first_index == len(selected):
                break
            selected = selected[first_index:end_index]
        self._used_tags.update(index for index, (part, _) in selected if is_tag(part))
        return Masked([part for _, part in selected], self.kinds, prefix, normal=self.normal)

    @property
    def without_items(self) -> str:
        """`text` with a space for each item."""
        if not self.items:
            return self.text
        return "".join(
            " " if is_item(part) else text for (part, _), text in zip(self.parts, self.part_texts, strict=True)
        )

    def with_ending(self, span: Span, ending: str) -> "Masked":
        """Return this text with another ending instead of a span of `text`, which belongs to the last part.

        The span is empty to add an ending; the last part may then be an item.
        """
        *parts, (last, last_span) = self.parts
        if span.start == span.end:
            parts += [(last, last_span), (ending, Span(last_span.end, last_span.end))]
        else:
            start, end = (offset - self.starts[-2] for offset in span)
            cut = Span(last_span.start + start, last_span.start + end)
            parts += [(last[:start], Span(last_span.start, cut.start)), (ending, cut)]
            parts.append((last[end:], Span(cut.end, last_span.end)))
        return Masked([part for part in parts if part[0]], self.kinds, self.prefix, normal=self.normal)

    def with_colon(self) -> "Masked":
        """Return this text with a colon after its last character, inside the tags around it."""
        parts = list(self.parts)
        last = max(index for index, (part, _) in enumerate(parts) if not is_tag(part))
        end = parts[last][1].end
        parts.insert(last + 1, (":", Span(end, end)))
        return Masked(parts, self.kinds, self.prefix, normal=self.normal)

    def lowercased(self) -> "Masked":
        """Return this text in lowercase; items, and parts whose length would change, stay as they are."""
        parts = [
            (part if isinstance(part, Item) or len(part.lower()) != len(part) else part.lower(), span)
            for part, span in self.parts
        ]
        return Masked(parts, self.kinds, self.prefix, normal=self.normal)

    def is_added(self, span: Span) -> bool:
        """Whether a span of `text` stands for nothing in the user's text."""
        part_span = self.parts[bisect_right(self.starts, span.start) - 1][1]
        return part_span.start == part_span.end

    def with_unknown(self, spans: Mapping[Span, str]) -> "Masked":
        """Return this text with spans of `text` as items of these kinds, which the vocabulary lacks."""
        parts: list[Part] = []
        span_starts = sorted(spans)
        for start, (part, part_span) in self._with_numbers_as_text(span_starts):
            cut = 0
            for span in overlapping(Span(start, start + len(part)), span_starts) if not isinstance(part, Item) else ():
                kind = spans[span]
                first, last = max(span.start - start, cut), min(span.end - start, len(part))
                if first < last:
                    item_span = Span(part_span.start + first, part_span.start + last)
                    content = part[first:last] if self.normal is None else self.normal.source_text(item_span)
                    parts.append((part[cut:first], Span(part_span.start + cut, item_span.start)))
                    parts.append((Item(content, kind), item_span))
                    cut = last
            suffix = part if isinstance(part, Item) else part[cut:]
            parts.append((suffix, Span(part_span.start + cut, part_span.end)))
        parts = [part for part in parts if part[0]]
        kinds = (*self.kinds, *dict.fromkeys(spans.values()))
        items = {index: part for index, (part, _) in enumerate(parts) if isinstance(part, Item)}
        unknown = {index: item for index, item in items.items() if item.kind in (UNKNOWN, AMOUNT, ARROW)}
        # by the new parts: the number inside an amount is no longer plain text, so it may stand in for the amount
        stand_ins = Masked(parts, kinds)._stand_ins(unknown, {})
        return Masked(parts, kinds, self.prefix, stand_ins, self.normal)

    def _with_numbers_as_text(self, spans: Sequence[Span]) -> list[tuple[int, Part]]:
        """Return the parts, each with its offset in `text`; numbers inside the spans join the text around them.

        spans: sorted; none overlaps another.
        """
        joined: list[tuple[int, Part]] = []
        for start, end, (part, span) in zip(self.starts, self.starts[1:], self.parts, strict=False):
            if isinstance(part, Item) and part.kind == "numbers" and overlapping(Span(start, end), spans):
                part = str(part)
            if joined and _is_unchanged_text((part, span)) and _is_unchanged_text(joined[-1][1]):
                previous_start, (previous, previous_span) = joined[-1]
                joined[-1] = previous_start, (previous + part, Span(previous_span.start, span.end))
            else:
                joined.append((start, (part, span)))
        return joined

    def _stand_ins(self, items: Mapping[int, Item], used: Mapping[int, str]) -> dict[int, str]:
        """Return the used stand-ins and an unused one for each item, while they last."""
        stand_ins = dict(used)
        tried = frozenset().union(*self.tried)
        unavailable = {*tried, *stand_ins.values()}
        words = "".join(part for part, _ in self.parts if not isinstance(part, Item) or part.kind != AMOUNT)
        is_in_words = lru_cache(lambda text: _count(text, words) > 0)
        for index, item in items.items():
            # arrows share one; a stand-in that the sentence itself has could not be told apart in the translation
            others = tried if item.kind == ARROW else unavailable
            available = (text for text in item.stand_ins if text not in others and not is_in_words(text))
            if stand_in := next(available, None):
                stand_ins[index] = stand_in
                unavailable.add(stand_in)
        return stand_ins

    def with_numbers_for_placeholders(self) -> "Masked":
        """Return this text with a number for each placeholder of a number.

        A model often reads "%d packets" as packets of a name ("pacotes %d"), but "100 packets" as a quantity.
        """
        placeholders = {
            index: item for index in self.items if (item := cast(Item, self.parts[index][0])).is_number_placeholder
        }
        if not placeholders:
            return self
        stand_ins = self._stand_ins(placeholders, self.stand_ins)
        return Masked(self.parts, self.kinds, self.prefix, stand_ins, self.normal)

    def lost(self, translation: str) -> list[int]:
        """Return the items that a translation lacks, and those whose stand-in it has more or less often than expected.

        A translation with a fragment of a placeholder, such as a spare "%", has lost all items: a program that fills
        in placeholders would stumble over it.
        """
        items, foreign_items = self.items_in(translation)
        spans = [*items.values(), *(span for _, span in foreign_items)]
        items_text = "".join(translation[span.start : span.end] for span in spans)
        words = "".join(part for part, _ in self.parts if not isinstance(part, Item))
        for sign in "%{}" if "placeholders" in self.kinds else "":
            if translation.count(sign) - items_text.count(sign) > words.count(sign):
                return list(self.items)
        expected = Counter(self.stand_ins.values())
        leaking = {text for text, count in expected.items() if _count(text, translation) != count}
        return [index for index in self.items if index not in items or self.stand_ins.get(index) in leaking]

    def with_stand_ins(self, lost: Sequence[int]) -> "Masked | None":
        """Return this text with new stand-ins for lost items; `None` if they have run out.

        If a placeholder for a number has lost its first stand-in, the model reads the placeholder itself.
        """
        tried = (*self.tried, frozenset(self.stand_ins[index] for index in lost if index in self.stand_ins))
        lost_indices = frozenset(lost)
        unchanged = {index: text for index, text in self.stand_ins.items() if index not in lost_indices}
        items = {index: cast(Item, self.parts[index][0]) for index in lost}
        if not self.tried:
            items = {
                index: item
                for index, item in items.items()
                if not (item.is_number_placeholder and index in self.stand_ins)
            }
        retry = Masked(self.parts, self.kinds, self.prefix, unchanged, self.normal, tried)
        stand_ins = retry._stand_ins(items, unchanged)
        if len(tried) > MAX_ROUNDS or not all(index in stand_ins for index in items):
            return None
        return Masked(self.parts, self.kinds, self.prefix, stand_ins, self.normal, tried)

    def around_items(self) -> "list[tuple[Span, Masked]]":
        """Return the parts between items that have words, each with its span of `text`."""
        spans, start = [], 0
        item_spans = [(self.starts[index], self.starts[index + 1]) for index in self.items]
        for end, next_start in (*item_spans, (len(self.text), len(self.text))):
            stripped = self.text[start:end].strip(AROUND_ITEMS)  # else a model closes a quote that only begins here
            if any(map(str.isalpha, stripped)):
                first = self.text.index(stripped, start)
                spans.append(Span(first, first + len(stripped)))
            start = next_start
        return [(span, self.part(span, self.prefix)) for span in spans]

    def items_in(self, translation: str) -> tuple[dict[int, Span], list[Part]]:
        """Return the spans of the items, or of their stand-ins, in a translation, and its foreign items.

        A foreign item is of the same kinds, but the source does not have it, or not as often.
        """
        items: list[Part] = [
            (part, span) for part, span in with_spans(parts_of(translation, self.kinds)) if isinstance(part, Item)
        ]
        spans = [span for _, span in items]
        patterns = "|".join(map(_pattern, dict.fromkeys(self.stand_ins.values())))
        for match in re.finditer(patterns, translation) if patterns else ():
            if not overlapping(Span(*match.span()), spans):
                items.append((Item(match[0], "urls"), Span(*match.span())))
        copies: dict[str, deque[int]] = {}  # indices of items, by their text
        for position, (item, _) in enumerate(items):
            copies.setdefault(str(item), deque()).append(position)
        item_spans: dict[int, Span] = {}
        used: set[int] = set()
        for index in self.items:
            if positions := copies.get(self.part_texts[index]):
                used.add(position := positions.popleft())
                item_spans[index] = items[position][1]
        return item_spans, [part for position, part in enumerate(items) if position not in used]


def masked(
    text: str,
    kinds: Sequence[str] = (),
    copies: bool = False,
    vocabulary: Vocabulary | None = None,
) -> Masked:
    """Return a text as the model reads it if items of these kinds are kept.

    copies: keep the `COPIED_KINDS`, too.
    vocabulary: bring what is not kept into its normal form.
    """
    strings = parts_of(text, kinds)
    if copies and _may_have_copied_items(text):
        all_kinds = tuple(kind for kind in PATTERNS if kind in kinds or kind in COPIED_KINDS)
        with_copied = parts_of(text, all_kinds)
        if any(isinstance(part, Item) for part in with_copied):
            strings, kinds = with_copied, all_kinds
    parts = with_spans(strings) or [("", Span(0, 0))]
    if vocabulary is None:
        return Masked(parts, kinds)
    items = [(part, span) for part, span in parts if isinstance(part, Item)] if kinds else []
    normal = vocabulary.normal_form(text, [span for _, span in items])
    if normal.text == text:
        return Masked(parts, kinds, normal=normal)
    spans, start = list[Part](), 0
    for item, span in items:
        item_start = normal.offset(span.start)
        spans.append((normal.text[start:item_start], Span(start, item_start)))
        start = item_start + span.end - span.start
        spans.append((item, Span(item_start, start)))
    spans.append((normal.text[start:], Span(start, len(normal.text))))
    return Masked([part for part in spans if part[0]] or [("", Span(0, 0))], kinds, normal=normal)


def _may_have_copied_items(text: str) -> bool:
    """Whether a text may have an item of `COPIED_KINDS`: a fast answer for most texts."""
    return not is_ordinary(text) and (
        may_have_non_words(text)
        or (not text.isascii() and re.search(EMOJI, text) is not None)
        or (has_signed_numbers(text) and re.search(PATTERNS["numerals"], text) is not None)
        or (re.search(IN_SIGNS, text) is not None and re.search(PATTERNS["signs"], text) is not None)
    )


_NUMBER = r"\d(?:[\d.,'\u2019\xa0\u202f]*\d)?"
BEFORE_SIGN = rf"(?<![\w.,]){_NUMBER}([ \xa0\u202f]?)\Z"
AFTER_SIGN = rf"([ \xa0\u202f]?)[+-]?{_NUMBER}(?:[kKmMbB]n?)?(?!\w)"
LEFT_SIDE = rf"(?<![\w.,])(?:{_NUMBER}|[^\W\d_])([ \xa0\u202f]?)\Z"
RIGHT_SIDE = rf"([ \xa0\u202f]?)(?:[+-]?{_NUMBER}|[^\W\d_])(?!\w)"
MAX_NUMBER = 32  # characters beside a sign that may be its number


def with_numbers(text: str, spans: Mapping[Span, str]) -> dict[Span, str]:
    """Widen the spans of signs to the numbers beside them, as in "\xa320" or "3 \xd7 4"; return each span's kind."""
    widened: dict[Span, str] = {}
    previous_end = 0
    for span, kind in sorted(spans.items()):
        start, end = span
        if start < previous_end:
            continue  # a part of the previous amount
        if kind == SIGN:
            first = max(start - MAX_NUMBER, previous_end)
            left_side, right_side = (
                re.compile(LEFT_SIDE).search(text, first, start),
                re.compile(RIGHT_SIDE).match(text, end, end + MAX_NUMBER),
            )
            is_formula = unicodedata.category(text[start]) == "Sm" and left_side and right_side  # "x \u2264 5"
            if not is_formula:
                left_side = re.compile(BEFORE_SIGN).search(text, first, start)
                right_side = re.compile(AFTER_SIGN).match(text, end, end + MAX_NUMBER)
            if unicodedata.category(text[start]) == "Sc" and left_side and right_side:  # a currency has one amount
                left_side, right_side = (left_side, None) if right_side[1] else (None, right_side)
            start, end = left_side.start() if left_side else start, right_side.end() if right_side else end
            if left_side or right_side:
                kind = AMOUNT
            elif _is_arrow_between_words(text, span):
                kind = ARROW
        widened[Span(start, end)] = kind
        previous_end = max(previous_end, end)
    return widened


def _is_arrow_between_words(text: str, span: Span) -> bool:
    """Return whether a span is an arrow with a word on both sides."""
    return (
        text[span.start : span.end] in ARROWS
        and any(map(str.isalpha, text[max(span.start - 3, 0) : span.start]))
        and any(map(str.isalpha, text[span.end : span.end + 3]))
    )


def _pattern(stand_in: str) -> str:
    """Return the pattern of a stand-in in a translation: a whole word, or a whole number."""
    return rf"\b{stand_in}\b" if stand_in.isalpha() else rf"(?<![\w.,]){stand_in}(?!\w|[.,]\d)"


def _count(stand_in: str, text: str) -> int:
    """Count a stand-in in a text, also inside words."""
    return text.count(stand_in) if stand_in.isalpha() else len(re.findall(rf"(?<!\d){stand_in}(?!\d)", text))
