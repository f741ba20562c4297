"""What goes through a model at once: a part of a form, without tags, and with stand-ins for some items.

A model reads placeholders, URLs and numbers, and mostly copies them. If it loses one, the sentence is translated again
with a stand-in that models copy more often, such as a name. A placeholder for a number, and what the vocabulary
lacks, have stand-ins from the start.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from capsule_mt.text.casing import LOWERCASE
from capsule_mt.text.rewriting import Edit, Form, keep_edits
from capsule_mt.text.rules import AROUND_ITEMS, BREAK, NUMBER_PLACEHOLDER, STAND_INS
from capsule_mt.text.sentences import Span
from capsule_mt.text.tokenizer_protocol import Encoded
from capsule_mt.text.words import Offsets, SourceWord, is_mark

if TYPE_CHECKING:
    from capsule_mt.text.glossary import Term

MAX_ROUNDS = 2  # of new stand-ins, before a sentence is cut around its items
TAG_NAME = r"<(/?)([\w:-]+)"
AMOUNTS = ("amount", "formula")
NO_EDIT = Edit("", 0, 0, "")  # of a part that is text


class Part(NamedTuple):
    """A part of a piece: text, or an item or a tag.

    text: what the model reads; of an item, what the translation has.
    start, end: its span of the form's text; both are the same for text that we add, such as a full stop.
    edit: of an item or a tag.
    """

    text: str
    start: int
    end: int
    edit: Edit = NO_EDIT

    @property
    def is_text(self) -> bool:
        return self.edit is NO_EDIT

    @property
    def written(self) -> str:
        """The text that the translation has for an item or a tag."""
        return self.edit.back or ""

    @property
    def is_sign(self) -> bool:
        """Whether it is a sign or an emoji, which may belong to the word before it."""
        return self.edit.is_tag and self.edit.kind in ("emoji", "signs")


def is_number_placeholder(edit: Edit) -> bool:
    """Whether an item is one placeholder for a number, without text glued to it."""
    return edit.row == "placeholder" and re.fullmatch(NUMBER_PLACEHOLDER, edit.back or "") is not None


def stand_ins_of(edit: Edit) -> tuple[str, ...]:
    """Return what may stand in for an item."""
    if is_number_placeholder(edit):
        return STAND_INS["count"]
    is_number = edit.kind in ("numbers", "numerals") or edit.row in AMOUNTS
    return STAND_INS["amount" if is_number else "name"]


def parts_in(form: Form, start: int, end: int, mark: Part | None = None) -> list[Part]:
    """Return the parts of a span of a form's text, with a mark that the model reads instead of those at its end.

    A tag at an edge is included if its partner is inside, too.
    """
    stop = end if mark is None else mark.start
    parts: list[Part] = []
    position = start
    for offset, edit in form.copies_in(start, end):
        parts += _text(form, position, min(offset, stop))
        position = offset + len(edit.in_form)
        parts.append(Part((edit.back or "") if edit.is_item else edit.in_form, offset, position, edit))
    parts = _trimmed([*parts, *_text(form, position, stop)])
    if mark is not None:
        index = next((i for i, part in enumerate(parts) if part.start >= mark.end and part.edit.is_tag), len(parts))
        parts[index:index] = [mark, *_text(form, mark.end, end)]
    return parts


def _text(form: Form, start: int, end: int) -> list[Part]:
    return [Part(form.text[start:end], start, end)] if start < end else []


def _trimmed(parts: list[Part]) -> list[Part]:
    """Return parts without the tags at the edges whose partners are there, too, or outside."""
    content = [index for index, part in enumerate(parts) if not part.edit.is_tag]
    if len(content) in (0, len(parts)):  # most sentences
        return parts
    first, last = content[0], content[-1]
    partners = partners_of(parts)
    kept = [tag for tag in (*range(first), *range(last + 1, len(parts))) if first < partners.get(tag, -1) < last]
    return parts[min([first, *kept]) : max([last, *kept]) + 1]


def partners_of(parts: Sequence[Part]) -> dict[int, int]:
    """Return the index of each start tag's end tag among the parts, and of each end tag's start tag.

    Empty if elements overlap: then it is unclear which tag a translation must open or close first.
    """
    open_tags: list[tuple[int, str]] = []
    num_open: Counter[str] = Counter()
    unclosed: set[str] = set()  # names of tags that the element around them closed
    partners: dict[int, int] = {}
    for index, part in enumerate(parts):
        tag = re.match(TAG_NAME, part.written)
        if not part.edit.is_tag or not (tag or part.edit.row == "emphasis") or part.written.endswith("/>"):
            continue
        name = part.written if tag is None else tag[2].lower()
        if not (num_open[name] if tag is None else tag[1]):
            open_tags.append((index, name))
            num_open[name] += 1
        elif num_open[name]:
            while (opening := open_tags.pop())[1] != name:
                num_open[opening[1]] -= 1
                unclosed.add(opening[1])
            num_open[name] -= 1
            partners |= {opening[0]: index, index: opening[0]}
        elif name in unclosed:
            return {}
    return partners


class Piece:
    """What goes through the model at once: a sentence of a form, or a part of one that is too long.

    text: what the model reads; spans count its characters, unless they are said to be the user's or the form's.
    span: its characters of the user's text.
    stand_ins: by the index of the part.
    tried: stand-ins that earlier translations have lost, one set for each translation.
    source_prefix: what the model reads before the text.
    encoded: the tokens of both.
    words: its words, if coverage is requested.
    was_cut: whether the source was longer (`truncation`).
    prefix: the tokens that its translation begins with.
    terms: the glossary's terms in it.
    mark: what the model reads at the end of the sentence, if it reads another mark there.
    case: of the user's line, if the model reads it in sentence case instead.
    is_label: whether it is the only word of the user's line, as in a menu.
    """

    source_prefix = ""
    encoded = Encoded([], ())
    words: Sequence[SourceWord] = ()
    was_cut = is_label = False
    prefix: Sequence[int] = ()
    terms: "Sequence[Term]" = ()
    mark: Part | None = None
    case: str | None = None

    def __init__(
        self,
        form: Form,
        parts: Sequence[Part],
        stand_ins: Mapping[int, str] | None = None,
        tried: Sequence[frozenset[str]] = (),
    ) -> None:
        self.form, self.parts, self.tried = form, parts, tried
        self.items = [index for index, part in enumerate(parts) if part.edit.is_item]
        self.tags = [index for index, part in enumerate(parts) if part.edit.is_tag]
        self.stand_ins = self._first_stand_ins() if stand_ins is None else stand_ins
        self.part_texts = [self.stand_ins.get(index, part.text) for index, part in enumerate(parts)]
        self.text = "".join(self.part_texts)
        self.starts = [0, *accumulate(map(len, self.part_texts))]  # offsets of the parts in `text`, and its end
        self.span = Span(self._behind(parts[0]).start, self._behind(parts[-1]).end)

    def with_parts(
        self,
        parts: Sequence[Part],
        stand_ins: Mapping[int, str] | None = None,
        tried: Sequence[frozenset[str]] = (),
    ) -> "Piece":
        """Return this piece with other parts, to be encoded again."""
        piece = Piece(self.form, parts, stand_ins, tried)
        vars(piece).update(vars(self) | vars(piece))
        return piece

    def with_prefix(self, prefix: Sequence[int]) -> "Piece":
        """Return this piece with the tokens that its translation begins with."""
        piece = self.with_parts(self.parts, self.stand_ins, self.tried)
        piece.prefix = prefix
        return piece

    @property
    def ids(self) -> list[int]:
        """Its tokens, special ones included."""
        return self.encoded.ids

    @property
    def offsets(self) -> Offsets:
        """The characters of `text` that each token stands for."""
        return self.encoded.offsets

    @property
    def source_offsets(self) -> Offsets:
        """The characters of the user's text that each token stands for."""
        return [offset and self.user_span(Span(*offset)) for offset in self.offsets]

    def tokens_of(self, user_span: Span) -> list[int]:
        """Return the indices of the tokens in a span of the user's text."""
        offsets = enumerate(self.source_offsets)
        return [token for token, token_span in offsets if token_span and overlaps(Span(*token_span), [user_span])]

    @property
    def copied_tokens(self) -> set[int]:
        """The indices of tokens that begin in items, such as placeholders; one that begins with a space does not."""
        offsets = enumerate(self.offsets) if self.items else ()
        return {index for index, span in offsets if span is not None and self.is_copied(Span(*span))}

    @property
    def keeps(self) -> bool:
        """Whether its translation copies something, or must not have what it would copy."""
        return bool(self.form.kinds or self.items)

    @property
    def ending(self) -> str | None:
        """What the user's sentence has instead of the final mark that the model reads; `None` if it reads the same."""
        if self.mark is None:
            return None
        mark, start, end, _ = self.mark
        ending = self.form.source[slice(*self.form.user_span(start, end))] if start < end else ""
        # the user's marks may be full width, or ligatures
        return ending if not ending or mark in ending or mark == "." else self.form.text[start:end]

    def _behind(self, part: Part, first: int = 0, last: int | None = None) -> Span:
        """Return the span of the user's text behind characters of a part; an item is never cut."""
        if not part.is_text:
            return part.edit.span
        if part.start == part.end:  # what we add: between what is before and after it
            end = self.form.user_span(part.start - 1, part.start).end if part.start else 0
            return Span(self.form.user_span(part.start, part.start).start, end)
        if len(part.text) != part.end - part.start or last is None:
            first, last = 0, part.end - part.start
        return self.form.user_span(part.start + first, part.start + last)

    def _index_at(self, offset: int) -> int:
        return bisect_right(self.starts, offset) - 1

    def _is_in_one_part(self, span: Span) -> bool:
        return self._index_at(span.start) == self._index_at(span.end - 1)

    def user_span(self, span: Span) -> Span:
        """Return the span of the user's text behind a span of `text`."""
        first, last = self._index_at(span.start), self._index_at(span.end - 1)
        start = self._behind(self.parts[first], span.start - self.starts[first], len(self.parts[first].text)).start
        return Span(start, max(start, self._behind(self.parts[last], 0, span.end - self.starts[last]).end))

    @property
    def user_text(self) -> str:
        return self.form.source[slice(*self.span)]

    def has_kept(self, user_span: Span) -> bool:
        """Whether a span of the user's text overlaps anything that is kept."""
        return overlaps(user_span, [part.edit.span for part in self.parts if not part.is_text])

    @property
    def has_words(self) -> bool:
        """Whether there are letters to translate outside the items, or no items at all."""
        return not self.items or any(map(str.isalpha, "".join(part.text for part in self.parts if part.is_text)))

    @property
    def has_lowercased_first(self) -> bool:
        """Whether the form lowercased the first letter of the user's text."""
        if not any(edit.row == "lacked capital" for edit in self.form.edits):
            return False
        written, read = (next(filter(str.isalpha, text), "") for text in (self.user_text, self.text))
        return written.isupper() and read.islower()

    def is_copied(self, span: Span) -> bool:
        """Whether a span of `text` begins in an item, which the translation copies."""
        return self.parts[self._index_at(span.start)].edit.is_item

    def is_added(self, span: Span) -> bool:
        """Whether a span of `text` stands for nothing in the user's text."""
        part = self.parts[self._index_at(span.start)]
        return part.is_text and part.start == part.end

    def with_unknown_words(self, spans: Sequence[Span]) -> "Piece":
        """Return this piece with words, whose spans are in order, as items; those across a tag or an item stay."""
        parts: list[Part] = []
        pending: list[Span] = []
        for span in spans:
            joined = Span(pending[-1].start, span.end) if pending else span
            if pending and is_mark(self.text[pending[-1].end : span.start]) and self._is_in_one_part(joined):
                pending[-1] = joined  # words with only marks between them are one item
            elif self._is_in_one_part(span):
                pending.append(span)
        for part, start in zip(self.parts, self.starts, strict=False):
            is_plain = part.is_text and len(part.text) == part.end - part.start
            cut = part.start
            while is_plain and pending and pending[0].end <= start + len(part.text):
                first, last = (part.start + offset - start for offset in pending.pop(0))
                user_span = self.form.user_span(first, last)
                word = self.form.source[slice(*user_span)]
                edit = Edit("unknown word", *user_span, None, word)
                parts += (*_text(self.form, cut, first), Part(word, first, last, edit))
                cut = last
            parts += _text(self.form, cut, part.end) if cut > part.start else [part]
        return self.with_parts(parts)

    # ---- other forms of a label
    def with_colon(self) -> "Piece":
        """Return this piece with a colon after its last character, inside the tags around it."""
        parts = list(self.parts)
        last = max(index for index, part in enumerate(parts) if not part.edit.is_tag)
        parts.insert(last + 1, Part(":", parts[last].end, parts[last].end))
        return self.with_parts(parts)

    def lowercased(self) -> "Piece":
        """Return this piece in lowercase; items, and parts whose length would change, stay as they are."""
        parts = [
            part
            if not part.is_text or len(part.text.lower()) != len(part.text)
            else part._replace(text=part.text.lower())
            for part in self.parts
        ]
        return self.with_parts(parts)

    # ---- stand-ins
    def _first_stand_ins(self) -> dict[int, str]:
        """Return stand-ins for what the vocabulary lacks, and numbers for placeholders of numbers.

        A model often reads "%d packets" as packets of a name ("pacotes %d"), but "100 packets" as a quantity.
        """
        lacked = [index for index in self.items if self.parts[index].edit.kind == "unknown"]
        counts = [index for index in self.items if is_number_placeholder(self.parts[index].edit)]
        return self._with_unused([*lacked, *counts], {}, ()) if lacked or counts else {}

    def _with_unused(
        self, items: Sequence[int], used: Mapping[int, str], tried: Sequence[frozenset[str]]
    ) -> dict[int, str]:
        """Return the used stand-ins and an unused one for each item, while they last."""
        stand_ins = dict(used)
        unavailable = {*frozenset().union(*tried), *stand_ins.values()}
        words = "".join(part.text for part in self.parts if part.edit.row not in AMOUNTS)
        is_in_words = lru_cache(lambda text: count_of(text, words) > 0)
        for index in items:
            # a stand-in that the sentence itself has could not be told apart in the translation
            choices = stand_ins_of(self.parts[index].edit)
            stand_in = next((text for text in choices if text not in unavailable and not is_in_words(text)), None)
            if stand_in is not None:
                stand_ins[index] = stand_in
                unavailable.add(stand_in)
        return stand_ins

    def with_stand_ins(self, lost: Sequence[int]) -> "Piece | None":
        """Return this piece with new stand-ins for lost items; `None` if they have run out, or after `MAX_ROUNDS`."""
        tried = (*self.tried, frozenset(self.stand_ins[index] for index in lost if index in self.stand_ins))
        unchanged = {index: self.stand_ins[index] for index in self.stand_ins.keys() - {*lost}}
        stand_ins = self._with_unused(lost, unchanged, tried)
        if len(tried) > MAX_ROUNDS or not all(index in stand_ins for index in lost):
            return None
        return self.with_parts(self.parts, stand_ins, tried)

    def around_items(self) -> "list[Piece]":
        """Return the parts between items that have words, as pieces."""
        edges = [self.parts[0].start]
        edges += (offset for index in self.items for offset in self.parts[index][1:3])
        edges.append(max(part.end for part in self.parts))
        pieces: list[Piece] = []
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            # else a model closes a quote that only begins here
            content = self.form.text[start:end].replace(BREAK, " ")
            stripped = content.strip(AROUND_ITEMS)
            if not any(map(str.isalpha, stripped)):
                continue
            first = start + content.index(stripped)
            last = first + len(stripped)
            has_mark = self.mark is not None and first < self.mark.start and self.mark.end <= last
            mark = self.mark if has_mark else None
            piece = self.with_parts(parts_in(self.form, first, last, mark))
            piece.mark = mark
            # a model begins each part with a capital
            piece.case = self.case or (LOWERCASE if piece.text[:1].islower() else None)
            piece.terms = [term for term in self.terms if overlaps(term.span, [piece.span])]
            pieces.append(piece)
        return pieces

    # ---- items in a translation
    def lost(self, translation: str) -> list[int]:
        """Return the items that a translation lacks, and those whose stand-in it has more or less often than expected.

        A translation with a fragment of a placeholder, such as a spare "%", has lost all items: a program that fills
        in placeholders would stumble over it.
        """
        if not self.items:
            return []
        items, foreign_items = self.items_in(translation)
        spans = [item.span for item in (*items.values(), *foreign_items)]
        items_text = "".join(translation[slice(*span)] for span in spans)
        words = "".join(part.text for part in self.parts if part.is_text)
        if any(self.parts[index].edit.row == "placeholder" for index in self.items):
            for sign in "%{}":
                if translation.count(sign) - items_text.count(sign) > words.count(sign):
                    return list(self.items)
        expected = Counter(self.stand_ins.values())
        leaking = {text for text, count in expected.items() if count_of(text, translation) != count}
        return [index for index in self.items if index not in items or self.stand_ins.get(index) in leaking]

    def items_in(self, translation: str) -> tuple[dict[int, Edit], list[Edit]]:
        """Return the items, or their stand-ins, in a translation, and its foreign items.

        A foreign item is of the same kinds, but the source does not have it, or not as often.
        """
        items = [*keep_edits(translation, self.form.kinds)]
        spans = [item.span for item in items]
        # those that the vocabulary lacks, and stand-ins: no row finds them
        own_items = {translation[slice(*span)] for span in spans}
        texts = dict.fromkeys(self.part_texts[index] for index in self.items)
        hidden = [text for text in texts if text in self.stand_ins.values() or text not in own_items]
        patterns = "|".join(map(_pattern, hidden))
        for match in re.finditer(patterns, translation) if patterns else ():
            if not overlapping(Span(*match.span()), spans):
                items.append(Edit("address", *match.span(), None, match[0]))
        copies: dict[str, deque[Edit]] = {}  # of items, by their text
        for item in items:
            copies.setdefault(translation[slice(*item.span)], deque()).append(item)
        own = {index: copies[text].popleft() for index in self.items if copies.get(text := self.part_texts[index])}
        used = {item.span for item in own.values()}
        return own, [item for item in items if item.span not in used]


def overlapping(span: Span, spans: Sequence[Span]) -> Sequence[Span]:
    """Return those of the spans that share a character with a span; they are sorted, and none overlaps another."""
    first = bisect_left(spans, (span.start,))
    first -= first > 0 and spans[first - 1].end > span.start
    return spans[first : bisect_left(spans, (span.end,))]


def overlaps(span: Span, spans: Iterable[Span]) -> bool:
    """Return whether a span shares a character with any of the spans."""
    return any(span.start < end and start < span.end for start, end in spans)


def _pattern(stand_in: str) -> str:
    """Return the pattern of a stand-in in a translation: a whole word, or a whole number."""
    if stand_in.isalpha():
        return rf"\b{re.escape(stand_in)}\b"
    return rf"(?<![\w.,]){re.escape(stand_in)}(?!\w|[.,]\d)" if stand_in.isdigit() else re.escape(stand_in)


def count_of(stand_in: str, text: str) -> int:
    """Count a stand-in in a text, also inside words."""
    return text.count(stand_in) if stand_in.isalpha() else len(re.findall(rf"(?<!\d){stand_in}(?!\d)", text))
