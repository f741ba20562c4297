"""Put back into a translation what it keeps of its source: tags, and items instead of their stand-ins.

A tag pair encloses the words that are aligned with its words in the source. A translation that has lost an item is
translated again instead: see `Segmenter.retries`.

The alignment is read from an attention head. Legend: S source tokens, T tokens of the translation.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from capsule_mt.text.reading import Piece, overlapping, partners_of
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import WORDS, Offsets, is_mark, target_ends, with_space

# a translation may have others than its source: numbers, for one, in another notation
FREE_KINDS = ("numbers", "numerals", "names", "signs")

Ids = Sequence[int]
# How much each token of a translation attends to each token of its source [T][S]. A retrospective head looks at the
# source of the previous token, so its rows are shifted by one.
Rows = Sequence[Sequence[float]]


@dataclass
class Alignment:
    """Attention between spans of a translation and spans of its source."""

    source: Offsets  # of the source tokens
    ends: Sequence[int]  # offsets at which the tokens of the translation end
    rows: Rows

    def share(self, target: Span, source: Span) -> float:
        """Return the mean attention of the tokens in a span of the translation to a span of the source."""
        first = bisect_right(self.ends, target.start)
        end = min(bisect_left(self.ends, target.end) + 1, len(self.ends))
        low, high = (bisect_left(self._centres, character) for character in source)
        return sum(self._sums[t][high] - self._sums[t][low] for t in range(first, end)) / max(1, end - first)

    @cached_property
    def _order(self) -> list[tuple[float, int]]:
        """The centre of each source token, and its index, from left to right."""
        return sorted((sum(span) / 2, s) for s, span in enumerate(self.source) if span)

    @cached_property
    def _centres(self) -> list[float]:
        return [centre for centre, _ in self._order]

    @cached_property
    def _sums(self) -> list[list[float]]:
        """For each token of the translation, the prefix sums of its attention over the tokens in `_order`."""
        return [[0.0, *accumulate(row[s] for _, s in self._order)] for row in self.rows]


class Inside(NamedTuple):
    """Tags that are put into the words `first` to `last` - 1 of a translation."""

    tags: Sequence[int]
    first: int
    last: int


class Layout:
    """The order of words and tags in a translation.

    words: the spans of the translation's words; an item is one word.
    """

    def __init__(self, source: Piece, translation: str, words: list[Span], alignment: Alignment) -> None:
        self.source, self.text, self.words, self.alignment = source, translation, words, alignment
        self.written = [translation[start:end] for start, end in words]
        self.is_mark = list(map(is_mark, self.written))
        self.partners = partners_of(source.parts)
        self.paired_marks = {tag for tag in self.partners if source.parts[tag].edit.row == "emphasis"}

    def tags(self) -> list[tuple[int, str]]:
        """Return the offsets in the translation and the texts of tags, in order; emphasis of no word is dropped."""
        positions: list[tuple[int, int]] = []
        # no recursion: elements may be nested deeply
        pending: list[Inside | tuple[int, int]] = [Inside(self.source.tags, 0, len(self.words))]
        while pending:
            entry = pending.pop()
            if isinstance(entry, Inside):
                pending += reversed(self._positions(entry))
            else:
                positions.append(entry)
        positions.sort(key=itemgetter(0))
        runs: list[tuple[int, list[int]]] = []
        for offset, tag in positions:
            if runs and runs[-1][0] == offset and self._touch(runs[-1][1][-1], tag):
                runs[-1][1].append(tag)
            else:
                runs.append((offset, [tag]))
        return [(offset, self._spaced(tags, offset)) for offset, tags in runs]

    def _touch(self, tag: int, next_tag: int) -> bool:
        """Whether two signs have nothing between them in the source, as those of "[]"."""
        return next_tag == tag + 1 and self.source.parts[tag].is_sign and self.source.parts[next_tag].is_sign

    def _point(self, source_offset: int) -> int:
        """Return the index of the word before which a tag at this offset of the source goes."""
        left_part, right_part = Span(0, source_offset), Span(source_offset, len(self.source.text))
        word_indices = [index for index, mark in enumerate(self.is_mark) if not mark] or [0]
        if not self._has_words(left_part):
            return word_indices[0]
        if not self._has_words(right_part):
            return word_indices[-1] + 1
        # cut where words before attend to the left part and words after attend to the right part
        margins = [0.0, *accumulate(self._margins([left_part], [right_part]))]
        return max(range(len(margins)), key=lambda index: 2 * margins[index] - margins[-1])

    def _interval(self, source: Span) -> tuple[int, int]:
        """Return the first word, and the one after the last, of the run that attends most to a span of the source.

        Both are the same if the span has no words, or if no word attends to it.
        """
        shares = self._margins([source], []) if self._has_words(source) else []
        if not any(shares):
            return self._point(source.start), self._point(source.start)
        outside = [Span(0, source.start), Span(source.end, len(self.source.text))]
        margins = self._margins([source], outside)
        strongest = max(range(len(shares)), key=lambda index: shares[index])
        # the run with the largest sum of margins (Kadane's algorithm); the strongest word where no sum is positive
        best, interval, total, first = 0.0, (strongest, strongest + 1), 0.0, 0
        for index, margin in enumerate(margins):
            if total <= 0.0:
                total, first = 0.0, index
            total += margin
            if total > best:
                best, interval = total, (first, index + 1)
        return interval

    def _margins(self, inside: list[Span], outside: list[Span]) -> list[float]:
        """Return by how much more each word attends to some spans of the source than to others; 0 for marks."""
        share = self.alignment.share
        return [
            0.0 if mark else sum(share(word, span) for span in inside) - sum(share(word, span) for span in outside)
            for word, mark in zip(self.words, self.is_mark, strict=True)
        ]

    def _has_words(self, span: Span) -> bool:
        return any(map(str.isalnum, self.source.text[span.start : span.end]))

    def _positions(self, inside: Inside) -> list[Inside | tuple[int, int]]:
        """Return the offset and the index of each tag, in order, and those inside of an element as `Inside`."""
        tags, first, last = inside
        elements: list[tuple[int, int, int]] = []  # first word, start tag, the word after the last
        end_tag = -1
        min_point = first  # empty elements and single tags keep their order
        for tag in tags:
            if tag <= end_tag:
                continue
            end_tag = self.partners.get(tag, tag)
            begin, stop = self._interval(Span(self.source.starts[tag], self.source.starts[end_tag]))
            if begin == stop:
                begin = stop = min_point = max(begin, min_point)
            else:
                begin, stop = self._with_marks(tag, end_tag, begin, stop)
            elements.append((min(max(begin, first), last), tag, min(stop, last)))
        positions: list[Inside | tuple[int, int]] = []
        next_word = first
        for begin, tag, stop in sorted(elements):
            begin = max(begin, next_word)  # the words before belong to the previous element
            next_word = max(begin, stop)
            end_tag = self.partners.get(tag, tag)
            inner_tags = tags[bisect_right(tags, tag) : bisect_left(tags, end_tag)]
            if begin < stop:
                start, end = self.words[begin].start, self.words[stop - 1].end
                positions += [(start, tag), Inside(inner_tags, begin, stop), (end, end_tag)]
                continue
            is_end = self._is_sign(tag) or self.source.parts[tag].written.startswith("</")
            is_after = begin == last or (begin > 0 and is_end)
            offset = self.words[begin - 1].end if is_after else self.words[begin].start
            points = sorted({tag, *inner_tags, end_tag})
            # marks of emphasis that are left without a word are dropped
            positions += [(offset, point) for point in points if point not in self.paired_marks]
        return positions

    def _is_sign(self, tag: int) -> bool:
        """Whether a tag belongs to the word at whose end it is, as a footnote's sign does."""
        part, start, text = self.source.parts[tag], self.source.starts[tag], self.source.text
        ends_word = text[start - 1 : start].isalnum() and not text[start : start + 1].isalnum()
        return ends_word and (part.is_sign or part.written.endswith("/>"))

    def _with_marks(self, tag: int, end_tag: int, begin: int, stop: int) -> tuple[int, int]:
        """Widen an element to the marks at its edges, such as a colon, that it encloses in the source."""
        content = self.source.text[self.source.starts[tag] : self.source.starts[end_tag]].strip()
        while begin and self.is_mark[begin - 1] and content.startswith(self.written[begin - 1]):
            begin, content = begin - 1, content.removeprefix(self.written[begin - 1])
        while stop < len(self.words) and self.is_mark[stop] and content.endswith(self.written[stop]):
            stop, content = stop + 1, content.removesuffix(self.written[stop])
        return begin, stop

    def _spaced(self, tags: list[int], offset: int) -> str:
        """Return the text of a tag, or of signs that touch, with a space if the source has one on both sides."""
        tag, end = tags[0], tags[-1] + 1
        item = "".join(part.written for part in self.source.parts[tag:end])
        texts = [part.written or part.text for part in self.source.parts[max(0, tag - 1) : end + 1]]
        if self.source.parts[tag].is_sign:
            if texts[0][-1:].isalnum() and offset and self.text[offset - 1].isalnum():  # as in "Windows\xae"
                return item
            starts = (word.start for word, mark in zip(self.words, self.is_mark, strict=True) if not mark)
            is_before_word = offset in starts or re.compile(r" [\W_][^\W_]").match(self.text, offset - 1) is not None
            following = next((part.text for part in self.source.parts[end : end + 1]), "")
            begins_word = following[:1].isalnum() and not texts[0][-1:].isalnum()  # as in "\xa1Hello"
            space = "" if begins_word and self.source.parts[tag].edit.kind != "emoji" else " "
            return f"{item}{space}" if is_before_word else f" {item}"
        if tag in self.partners or len(texts) < 3 or not (texts[0][-1:].isspace() and texts[2][:1].isspace()):
            return item
        return f"{item} " if any(offset == word.start for word in self.words) else f" {item}"


def restored(source: Piece, ids: Ids, decode: Callable[[Ids], str], align: Callable[[], Rows]) -> str:
    """Return the text of a translation with the items and tags of its source, without others but `FREE_KINDS`.

    Args:
        source: what the model has read.
        ids: the tokens of the translation, after the decoder's start token.
        decode: returns the text of tokens.
        align: called at most once, and only if there are tags.
    """
    text = decode(ids)
    items, foreign_items = source.items_in(text)
    spans = sorted(item.span for item in items.values())
    invented = {
        item.span for item in foreign_items if item.kind not in FREE_KINDS and not overlapping(item.span, spans)
    }
    tags: list[tuple[int, str]] = []
    if source.tags:
        alignment = Alignment(source.offsets, target_ends(decode, ids), align())
        words = _words_of_translation(text, [*spans, *(item.span for item in foreign_items)])
        words = [word for word in words if word not in invented] or [Span(len(text), len(text))]
        tags = Layout(source, text, words, alignment).tags()
    edits = [(span, "") for span in invented]
    edits += [(item.span, source.parts[index].written) for index, item in items.items()]
    return _edited(text, tags, edits)


def _edited(text: str, tags: list[tuple[int, str]], edits: list[tuple[Span, str]]) -> str:
    """Insert tags at their offsets of a text, and replace spans by strings; tags go first at the same offset."""
    changes = [(offset, order, offset, tag) for order, (offset, tag) in enumerate(tags)]
    last = len(tags)
    changes += [(start, last, end, string) for (start, end), string in edits if text[start:end] != string]
    written, end = "", 0
    for start, _, stop, string in sorted(changes):
        written = with_space(written, text[end:start])
        written = with_space(written.rstrip() if string.startswith(" ") else written, string)
        end = max(end, stop)
    return with_space(written, text[end:])


def _words_of_translation(translation: str, items: list[Span]) -> list[Span]:
    """Return the spans of the words and marks of a translation; each item is one word."""
    words = (Span(*match.span()) for match in re.finditer(rf"\d+(?:[.,:]\d+)+|{WORDS.pattern}", translation))
    sorted_items = sorted(items)
    return sorted([*(word for word in words if not overlapping(word, sorted_items)), *items])
