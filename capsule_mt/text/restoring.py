"""Put back into a translation what it keeps of its source: tags, and items in the place of their stand-ins.

Tags come back around the words that are aligned with those they enclosed. A translation that has not kept each item is
not restored, but made again: see `Segmenter.again`.

The alignment is read from an attention head. Legend: S source tokens, T tokens of the translation.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import cast

from capsule_mt.text.keeping import AMOUNT, SIGN, UNKNOWN, Item, Masked, Part, overlaps, partners_of, parts_of
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import WORDS, Offsets, is_mark, target_ends, with_space

MARGIN_OF_MARK = -0.01  # a mark goes with the words on both sides of it

Ids = Sequence[int]
# How much each token of a translation is of each of its source [T][S]. A retrospective head looks at the source of the
# token before, so its rows are shifted by one.
Rows = Sequence[Sequence[float]]


@dataclass
class Alignment:
    """Which characters of a source the characters of its translation are of."""

    source: Offsets  # of its tokens
    ends: Sequence[int]  # of the tokens of the translation
    rows: Rows

    def share(self, target: Span, source: Span) -> float:
        """Return how much of some characters of the translation is of some of the source."""
        first = bisect_right(self.ends, target.start)
        end = min(bisect_left(self.ends, target.end) + 1, len(self.ends))
        low, high = (bisect_left(self._centres, character) for character in source)
        return sum(self._sums[t][high] - self._sums[t][low] for t in range(first, end)) / max(1, end - first)

    @cached_property
    def _order(self) -> list[tuple[float, int]]:
        """The middle of each token of the source, and its number, from left to right."""
        return sorted((sum(place) / 2, s) for s, place in enumerate(self.source) if place)

    @cached_property
    def _centres(self) -> list[float]:
        return [centre for centre, _ in self._order]

    @cached_property
    def _sums(self) -> list[list[float]]:
        """For each token of the translation, how much of it is of the first so many tokens of `_order`."""
        return [[0.0, *accumulate(row[s] for _, s in self._order)] for row in self.rows]


class Layout:
    """Where the tags of a source go in its translation, and the items that it has not kept.

    words: the translation's, where an item is one.
    """

    def __init__(self, source: Masked, translation: str, words: list[Span], alignment: Alignment) -> None:
        self.source, self.text, self.words, self.alignment = source, translation, words, alignment
        self.written = [translation[start:end] for start, end in words]
        self.is_mark = list(map(is_mark, self.written))
        self.partners = partners_of([part for part, _ in source.parts])

    def tags(self) -> list[tuple[int, str]]:
        """Return each tag and before which character it goes, in their order."""
        inside = self._in_words()
        placed = self._placed([number for number in self.source.tags if number not in inside], 0, len(self.words))
        merged = sorted([*((at, 1, number) for at, number in placed), *inside.values()], key=lambda tag: tag[:2])
        return [(at, self._spaced(number, at)) for at, _, number in merged]

    def _in_words(self) -> dict[int, tuple[int, int, int]]:
        """Return where tags go that begin or end inside of a word, such as H<sub>2</sub>O, that a translation copies.

        With the character: whether the tag goes before (0) or after (2) others there; and its number.
        """
        found: dict[int, tuple[int, int, int]] = {}
        begins, copies = self.source.begins, list(self.words)
        for word in re.finditer(r"\w+", self.source.text):
            tags = [number for number in self.source.tags if word.start() <= begins[number] <= word.end()]
            own = [number for number in tags if self.partners.get(number) in tags]
            if not any(word.start() < begins[number] < word.end() for number in own):
                continue
            same = [place for place in copies if self.text[slice(*place)].casefold() == word[0].casefold()]
            if same:
                place = max(same, key=lambda one: self.alignment.share(one, Span(*word.span())))
                copies.remove(place)
                for number in own:
                    at = place.start + begins[number] - word.start()
                    found[number] = (at, 0 if at == place.end else 2, number)
        return found

    def _point(self, position: int) -> int:
        """Return before which word what is at some character of the source goes."""
        before, after = Span(0, position), Span(position, len(self.source.text))
        spoken = [place for place, mark in enumerate(self.is_mark) if not mark] or [0]
        if not self._has_words(before):
            return spoken[0]
        if not self._has_words(after):
            return spoken[-1] + 1
        margins = [0.0, *accumulate(self._margins([before], [after]))]
        return max(range(len(margins)), key=lambda place: 2 * margins[place] - margins[-1])

    def _interval(self, source: Span) -> tuple[int, int]:
        """Return the first, and the one after the last, of the words in a row that are most of a part of the source.

        Both are the same if it has no words, or if no word is of it.
        """
        inside = self._margins([source], []) if self._has_words(source) else []
        if not any(inside):
            return self._point(source.start), self._point(source.start)
        others = [Span(0, source.start), Span(source.end, len(self.source.text))]
        margins = self._margins([source], others, MARGIN_OF_MARK)
        strongest = max(range(len(inside)), key=lambda place: inside[place])
        best, found, total, begin = 0.0, (strongest, strongest + 1), 0.0, 0
        for place, value in enumerate(margins):
            if total <= 0.0:
                total, begin = 0.0, place
            total += value
            if total > best:
                best, found = total, (begin, place + 1)
        return found

    def _margins(self, one: list[Span], other: list[Span], of_mark: float = 0.0) -> list[float]:
        """Return by how much more each word is of some parts of the source than of others."""
        share = self.alignment.share
        return [
            of_mark if mark else sum(share(word, span) for span in one) - sum(share(word, span) for span in other)
            for word, mark in zip(self.words, self.is_mark, strict=True)
        ]

    def _has_words(self, span: Span) -> bool:
        return any(map(str.isalnum, self.source.text[span.start : span.end]))

    def _placed(self, numbers: Sequence[int], first: int, last: int) -> list[tuple[int, int]]:
        """Return the character and the index of each of some tags, all of them in words first ... last - 1."""
        elements: list[tuple[int, int, int]] = []  # first word, start tag, the word after the last
        end = -1
        least = first  # points keep their order
        for number in numbers:
            if number <= end:
                continue
            end = self.partners.get(number, number)
            begin, stop = self._interval(Span(self.source.begins[number], self.source.begins[end]))
            if begin == stop:
                begin = stop = least = max(begin, least)
            else:
                begin, stop = self._with_marks(number, end, begin, stop)
            elements.append((min(max(begin, first), last), number, min(stop, last)))
        found: list[tuple[int, int]] = []
        place = first
        for begin, number, stop in sorted(elements):
            begin = max(begin, place)  # what comes before is another tag's
            place, end = max(begin, stop), self.partners.get(number, number)
            inside = [tag for tag in numbers if number < tag < end]
            if begin < stop:
                inner = self._placed(inside, begin, stop)
                found += [(self.words[begin].start, number), *inner, (self.words[stop - 1].end, end)]
            else:
                is_end = self._is_sign(number) or self.source.parts[number][0].startswith("</")
                is_after = begin == last or (begin > 0 and is_end)
                at = self.words[begin - 1].end if is_after else self.words[begin].start
                found += [(at, tag) for tag in sorted({number, *inside, end})]
        return found

    def _is_sign(self, number: int) -> bool:
        """Whether a tag belongs to the word before it, as the sign of a note does."""
        at, text = self.source.begins[number], self.source.text
        touches = text[at - 1 : at].isalnum() and not text[at : at + 1].isalnum()
        tag = cast(Item, self.source.parts[number][0])
        return touches and (tag.kind == SIGN or tag.endswith("/>"))

    def _with_marks(self, number: int, end: int, begin: int, stop: int) -> tuple[int, int]:
        """Return the words of an element with the marks at its edges, such as a colon, that it has in the source."""
        inside = self.source.text[self.source.begins[number] : self.source.begins[end]].strip()
        while begin and self.is_mark[begin - 1] and inside.startswith(self.written[begin - 1]):
            begin, inside = begin - 1, inside.removeprefix(self.written[begin - 1])
        while stop < len(self.words) and self.is_mark[stop] and inside.endswith(self.written[stop]):
            stop, inside = stop + 1, inside.removesuffix(self.written[stop])
        return begin, stop

    def _spaced(self, number: int, at: int) -> str:
        """Return a tag, with a space if it stands between two, and no end of anything."""
        tag, parts = self.source.parts[number][0], self.source.parts[max(0, number - 1) : number + 2]
        around = [part for part, _ in parts]
        if cast(Item, tag).kind in ("emoji", SIGN):
            begins = (word.start for word, mark in zip(self.words, self.is_mark, strict=True) if not mark)
            if around[0][-1:].isalnum() and at and self.text[at - 1].isalnum():  # as in "Windows\xae"
                return tag
            return f"{tag} " if at in begins else f" {tag}"
        if number in self.partners or len(around) < 3 or not (around[0][-1:].isspace() and around[2][:1].isspace()):
            return tag
        return f"{tag} " if any(at == word.start for word in self.words) else f" {tag}"


def restored(source: Masked, ids: Ids, decode: Callable[[Ids], str], align: Callable[[], Rows]) -> str:
    """Return the text of a translation with what its source keeps, and without what the model has invented of it.

    Args:
        source: what the model has read.
        ids: the tokens of the translation, after the decoder's start token.
        decode: return the text of tokens.
        align: called at most once, and only where there are tags.
    """
    text = decode(ids)
    found, others = source.items_in(text)
    tags: list[tuple[int, str]] = []
    if source.tags:
        alignment = Alignment(source.offsets, target_ends(decode, ids), align())
        words = _words_of_translation(text, [*found.values(), *(place for _, place in others)])
        gone = _invented(others, found)
        words = [word for word in words if word not in gone] or [Span(len(text), len(text))]
        tags = Layout(source, text, words, alignment).tags()
    edits = [(place, "") for place in _invented(others, found)]
    edits += [(place, source.parts[number][0]) for number, place in found.items()]
    written = _edited(text, tags, edits)
    by_vocabulary = (UNKNOWN, AMOUNT, SIGN)  # no pattern finds them
    wanted = _items_of(part for part, _ in source.parts if getattr(part, "kind", UNKNOWN) not in by_vocabulary)
    had = _items_of(parts_of(written, source.kinds))
    if not wanted - had and all(item.kind == "numbers" for item in had - wanted):
        return written
    # an item has become another one with what is beside it
    return _edited(text, tags, [(place, f" {new} " if new else "") for place, new in edits])


def _edited(text: str, tags: list[tuple[int, str]], edits: list[tuple[Span, str]]) -> str:
    """Return a text with tags before some of its characters, and others in the place of some."""
    changes = [(at, order, at, tag) for order, (at, tag) in enumerate(tags)]
    last = len(tags)
    changes += [(start, last, end, new) for (start, end), new in edits if text[start:end] != new]
    written, end = "", 0
    for start, _, stop, new in sorted(changes):
        written = with_space(with_space(written, text[end:start]), new)
        end = max(end, stop)
    return with_space(written, text[end:])


def _words_of_translation(translation: str, items: list[Span]) -> list[Span]:
    """Return the words and the marks of a translation, in which each item is one word."""
    words = (Span(*match.span()) for match in re.finditer(rf"\d+(?:[.,:]\d+)+|{WORDS.pattern}", translation))
    return sorted([*(word for word in words if not overlaps(word, items)), *items])


def _items_of(parts: Iterable[str]) -> Counter[Item]:
    return Counter(part for part in parts if isinstance(part, Item))


def _invented(others: list[Part], found: dict[int, Span]) -> list[Span]:
    """Return where items are that the source does not have; numbers may be written in another way there."""
    places = [place for part, place in others if cast(Item, part).kind != "numbers"]
    return [place for place in places if not overlaps(place, found.values())]
