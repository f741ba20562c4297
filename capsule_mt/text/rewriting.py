"""Interprets the table of `rules`: from a user's text to its `Form`, which a model reads, and the edits between them.

The stages of reading, each once: keep and form by one scan of the text; case, letter for letter; late rows, for what
the vocabulary lacks. `segments` cuts the form into sentences, `reading` has a sentence as the model reads it, and
`restoring` and `finishing` are the way back.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

from capsule_mt.text.casing import in_sentence_case
from capsule_mt.text.entities import character_of
from capsule_mt.text.rules import (
    BLOCK_TAG,
    BREAK,
    COPY,
    EMOJI,
    INVISIBLE,
    ITEM,
    LACKED_FORMULA,
    LACKED_LETTER,
    LACKED_SIGN,
    SIGNED_NUMBER,
    Row,
    rows_of,
)
from capsule_mt.text.sentences import MAX_QUOTE, Span, rules_of
from capsule_mt.text.vocabulary import MAX_CACHED_LENGTH, Vocabulary, combines

FIRST_ROWS, LATE_ROWS = rows_of("keep", "form"), rows_of("late")
# letters and marks of most sentences, and the only places in such texts that a row may need; each begins with one of
# few characters, so that a search skips all others quickly
ORDINARY = re.compile("[A-Za-z0-9\xc0-\u052f ,.;?!'\"-]*")
IN_ORDINARY = re.compile(
    r"'(?=')|-(?=-)| (?=[,.])|[,.](?=[^\W_])|!(?=[a-z])|[A-Z\xc0-\xde](?<=[a-z\xdf-\xff].)|[0-9](?=[^0-9][0-9])"
)
THREE_LETTERS = re.compile(r"([a-zA-Z])\1\1")
CHARACTERS = FIRST_ROWS[-1]  # each character beyond ASCII: the vocabulary tells whether the row is tried
KIND_OF = {row.id: row.kind for row in FIRST_ROWS + LATE_ROWS}
SENTENCE_START = r"(?:^|[.!?\u2026]\s)\W*\Z"  # in the text before the first word of a sentence
REACH = 16  # characters before a word that decide whether it begins a sentence
# not in code: "--sort=size,time", "max(width,height)", "a_b,c", "main.py,test.py"; in so many characters before it
BEFORE_CODE_COMMA, MAX_CODE = r"(?:[=_:/\\@<>{}]|\w\(|\.[a-z]{2})\S*\Z", 64
ROMAN_WORD = r"(?:[ivxlcdm]+|[IVXLCDM]+)\Z"  # also the size "XXXL"
COMBINING_MARK = "\u0301"  # in the copy of a form for late rows, each mark that combines
EM_DASH, GUILLEMETS = "\u2014", "\xab\xbb"
REPEATED = r"(?P<letter>[a-zA-Z])(?P=letter){2,}"
# How rare a word may be that loses a letter which stands three times inside it: German compounds such as "Missstand"
# are rarer. Chosen on 29 of them and 50 typed words; of others, 29 of 29 compounds stay, and 52 of 55 words change.
MAX_RANK_OF_REPEATED = 16.5


class Edit(NamedTuple):
    """Characters of the user's text, and what becomes of them.

    row: the name of the rule.
    model: what the model reads instead; `None` for an item, which it reads as it is, or as a stand-in.
    back: what the translation copies; `None` if it has whatever the model writes.
    """

    row: str
    start: int
    end: int
    model: str | None
    back: str | None = None

    @property
    def is_item(self) -> bool:
        """Whether the model reads it, and the translation copies it."""
        return self.model is None

    @property
    def is_tag(self) -> bool:
        """Whether the model does not read it, and the translation copies it."""
        return self.model is not None and self.back is not None

    @property
    def kind(self) -> str:
        return KIND_OF.get(self.row, "")

    @property
    def in_form(self) -> str:
        return ITEM if self.model is None else self.model


class Form:
    """A text with edits applied, and the way back of offsets.

    source: the user's text.
    edits: in order; none overlaps another.
    kinds: what is kept.
    text: what rules about case and sentences see: an item is one `ITEM`.
    lines: spans of the user's lines in another case than that of a sentence, and their case.
    """

    def __init__(self, source: str, edits: Sequence[Edit] = (), kinds: Collection[str] = ()) -> None:
        self.source, self.edits, self.kinds = source, edits, kinds
        self.lines: list[tuple[Span, str]] = []
        self.offsets: list[int] = []  # of the edits in `text`
        if not edits:
            self.text = source
            return
        parts: list[str] = []
        end = length = 0
        for edit in edits:
            length += edit.start - end
            self.offsets.append(length)
            parts += (source[end : edit.start], edit.in_form)
            length, end = length + len(parts[-1]), edit.end
        self.text = "".join([*parts, source[end:]])

    def with_further(self, edits: Sequence[Edit]) -> "Form":
        """Return the form with edits of `text`, which replace the edits of the user's text inside them.

        An item that cuts an edit, as a lacked letter before a number does, takes it in; other edits that cut one go.
        """
        merged: list[Edit] = []
        parts: list[str] = []
        index = end = 0
        for edit in edits:
            first, last = self._uncut(edit.start, edit.end)
            if first < end or ((first, last) != (edit.start, edit.end) and not edit.is_item):
                continue
            start, stop = self.user_span(first, last)
            while index < len(self.edits) and self.edits[index].end <= start:
                merged.append(self.edits[index])
                index += 1
            while index < len(self.edits) and self.edits[index].start < stop:
                index += 1
            merged.append(edit._replace(start=start, end=stop))
            parts += (self.text[end:first], edit.in_form)
            end = last
        form = Form(self.source, [*merged, *self.edits[index:]], self.kinds)
        form.text, form.lines = "".join([*parts, self.text[end:]]), self.lines  # other letters may have another case
        return form

    def _uncut(self, start: int, end: int) -> tuple[int, int]:
        """Return a span of `text` with the whole of the edits at its edges."""
        for index in {bisect_right(self.offsets, start) - 1, bisect_right(self.offsets, end - 1) - 1} - {-1}:
            first, last = self.offsets[index], self.offsets[index] + len(self.edits[index].in_form)
            if first < end and start < last:
                start, end = min(start, first), max(end, last)
        return start, end

    def user_span(self, start: int, end: int) -> Span:
        """Return the span of the user's text behind a span of `text`; edits are never cut."""
        first = self._user_start(start)
        return Span(first, self._user_end(end - 1) if start < end else first)

    def _user_start(self, offset: int) -> int:
        index = bisect_right(self.offsets, offset) - 1
        if index < 0:
            return offset
        edit, past = self.edits[index], offset - self.offsets[index] - len(self.edits[index].in_form)
        return edit.start if past < 0 else edit.end + past

    def _user_end(self, offset: int) -> int:
        """Return the end of the character of `text` at an offset."""
        index = bisect_right(self.offsets, offset) - 1
        if index < 0:
            return offset + 1
        edit, past = self.edits[index], offset - self.offsets[index] - len(self.edits[index].in_form)
        return edit.end if past < 0 else edit.end + past + 1

    def offset_of(self, user_offset: int) -> int:
        """Return the offset in `text` of a character of the user's text, or of the edit that it is in."""
        index = bisect_right(self.edits, user_offset, key=lambda edit: edit.start) - 1
        if index < 0:
            return user_offset
        edit, offset = self.edits[index], self.offsets[index]
        return offset if user_offset < edit.end else offset + len(edit.in_form) + user_offset - edit.end

    def copies_in(self, start: int, end: int) -> Iterator[tuple[int, Edit]]:
        """Yield the items in a span of `text`, and the tags in it and at its edges, each with its offset."""
        for index in range(bisect_left(self.offsets, start), bisect_right(self.offsets, end)):
            edit, offset = self.edits[index], self.offsets[index]
            if edit.back is not None and offset + len(edit.in_form) <= end:
                yield offset, edit

    def case_at(self, user_offset: int) -> str | None:
        """Return the case of the user's line at an offset of the user's text; `None` for sentence case."""
        index = bisect_right(self.lines, user_offset, key=lambda line: line[0].start) - 1
        return self.lines[index][1] if index >= 0 and user_offset < self.lines[index][0].end else None


class Rewriter(NamedTuple):
    """What a call decides about the table.

    vocabulary: of the source; without one, no row asks about it.
    kinds: what is kept.
    copies: whether rules about numbers, case and sentences apply.
    normalises: whether the model reads the plain forms of characters.
    """

    vocabulary: Vocabulary
    kinds: tuple[str, ...] = ()
    copies: bool = True
    normalises: bool = True
    src_lang: str | None = None
    tgt_lang: str | None = None

    @property
    def groupings(self) -> tuple[str, str]:
        """The signs between groups of three digits in both languages; "" where it is not known, or not to be used."""
        if not self.copies or "numbers" in self.kinds:
            return "", ""
        return rules_of(self.src_lang).grouping, rules_of(self.tgt_lang).grouping

    def read(self, text: str) -> Form:
        """Return the form of a text, after all stages."""
        edits = self._first_edits(text)
        is_kept = not self.copies or "numbers" in self.kinds or any(edit.back is not None for edit in edits)
        form = Form(text, edits, [kind for kind in self.kinds if kind != "languages"] if is_kept else ())
        if self.copies:
            cased, lines = in_sentence_case(form.text, self.vocabulary, self.src_lang)
            form.text, form.lines = cased, [(form.user_span(*span), case) for span, case in lines]
        if self.normalises and (lacked := self.vocabulary.lacked(form.text)) and (late := self._late(form, lacked)):
            form = form.with_further(late)
            if any(edit.back is not None for edit in late) and not form.kinds:
                form.kinds = [kind for kind in self.kinds if kind != "languages"]
        return form

    def _first_edits(self, text: str) -> Sequence[Edit]:
        any_need, needs = _needs(self.kinds, self.normalises)
        has_need = not self._is_ordinary(text) and any_need.search(text) is not None
        is_plain = text.isascii() or not self.normalises or self.vocabulary.changes_none_of(text)
        if is_plain and not has_need:  # most texts
            return ()
        rows = (
            [row for row, need in needs if need.search(text) is not None and self._is_tried(row)] if has_need else []
        )
        return list(self._edits(text, rows if is_plain else [*rows, CHARACTERS]))

    def _is_ordinary(self, text: str) -> bool:
        """Whether a text surely has nothing that a row needs: a fast answer for most texts."""
        if ORDINARY.fullmatch(text) is None or "numbers" in self.kinds:
            return False
        return IN_ORDINARY.search(text) is None and THREE_LETTERS.search(text) is None

    def _is_tried(self, row: Row) -> bool:
        """Return whether the condition of a row that a text may match is met."""
        if row.when is None:
            return True
        if row.when.startswith("lacks"):
            return not self.vocabulary.covers(row.when[-1])
        return bool(self.groupings[0]) if row.when == "grouping" else all(self.groupings)

    def _edits(self, text: str, rows: Sequence[Row], start: int = 0, end: int | None = None) -> Iterator[Edit]:
        """Yield the edits of rows in a span of a text."""
        end = len(text) if end is None else end
        for row, span in scanned(text, [(row, self._pattern(row)) for row in rows], start, end, self._accepts(text)):
            if row.model == ":emphasis":
                yield from self._emphasised(text, span, rows)
            else:
                yield self._edit(text, row, span)

    def _accepts(self, text: str) -> Callable[[Row, Span], bool]:
        def changes(row: Row, span: Span) -> bool:
            if row.model[:1] != ":" or row.model == ":emphasis":
                return True
            model = FUNCTIONS[row.model[1:]](self, text, span)
            is_copied = row.stage == "keep" or row.back == COPY
            return model is not None and (is_copied or model != text[span.start : span.end])

        return changes

    def _edit(self, text: str, row: Row, span: Span) -> Edit:
        content = text[span.start : span.end]
        model = FUNCTIONS[row.model[1:]](self, text, span) if row.model[:1] == ":" else row.model
        if row.back == COPY and (row.stage == "keep" or model in (COPY, "")):
            back: str | None = content
        else:
            back = with_target_signs(content, self.groupings) if row.back == ":target_signs" else None
        return Edit(row.id, *span, None if model == COPY else model, back)

    def _emphasised(self, text: str, span: Span, rows: Sequence[Row]) -> Iterator[Edit]:
        """Yield the marks of emphasis around a text, such as "**", and the edits between them."""
        start, end = span
        content = text[start:end]
        length = min(len(content) - len(content.lstrip(content[0])), len(content) - len(content.rstrip(content[0])))
        if length == len(
            content
        ):  # a blank to fill in, as in "My name is ____"; a mark around nothing would be dropped
            yield Edit("lacked sign", start, end, "", content)
            return
        yield Edit("emphasis", start, start + length, "", content[:length])
        yield from self._edits(text, rows, start + length, end - length)
        yield Edit("emphasis", end - length, end, "", content[:length])

    def _pattern(self, row: Row) -> re.Pattern[str]:
        if "<group>" not in row.match:
            return re.compile(row.match)
        return re.compile(_number_pattern(self.groupings[0] or "\0"))

    def _late(self, form: Form, lacked: Collection[str]) -> list[Edit]:
        """Return the edits of a form for characters that the vocabulary lacks."""
        marks = {ord(character): COMBINING_MARK for character in set(form.text) if combines(character)}
        marks |= {ord(character): _lacked_mark(character) for character in lacked}
        shadow = form.text.translate(marks)
        if ITEM in shadow and "numbers" in self.kinds:  # a kept number may be that of an amount
            numbers = {offset for offset, edit in form.copies_in(0, len(shadow)) if edit.row == "number"}
            shadow = "".join("0" if offset in numbers else letter for offset, letter in enumerate(shadow))
        rows = [row for row in LATE_ROWS if not row.kind or row.kind in self.kinds]
        text = form.text
        edits = []
        for row, span in scanned(
            shadow, [(row, _late_pattern(row)) for row in rows], 0, len(text), self._accepts(text)
        ):
            edit = self._edit(text, row, span)
            if edit.back is not None and row.back == COPY:  # as the user wrote it, without invisible characters
                start, end = form.user_span(*span)
                back = "".join(character for character in form.source[start:end] if character not in INVISIBLE)
                edit = edit._replace(back=back)
            elif edit.back is not None:
                start, end = form.user_span(*span)
                edit = edit._replace(back=with_target_signs(form.source[start:end], self.groupings))
            edits.append(edit)
        return edits


@lru_cache(maxsize=64)
def _needs(kinds: Collection[str], normalises: bool) -> tuple[re.Pattern[str], Sequence[tuple[Row, re.Pattern[str]]]]:
    """Return what a text must have for any row of a call to be tried, and for each; `CHARACTERS` apart."""
    rows = [row for row in FIRST_ROWS if (row.kind in kinds if row.stage == "keep" else normalises)]
    needs = [(row, re.compile(row.needs)) for row in rows if row is not CHARACTERS]
    return re.compile("|".join(dict.fromkeys(row.needs for row, _ in needs)) or "(?!)"), needs


def _lacked_mark(character: str) -> str:
    if character.isalnum() or character == "_":
        return LACKED_LETTER
    return LACKED_FORMULA if unicodedata.category(character) == "Sm" else LACKED_SIGN


@lru_cache(maxsize=8)
def _late_pattern(row: Row) -> re.Pattern[str]:
    lacked = f"[{LACKED_LETTER}{LACKED_SIGN}{LACKED_FORMULA}]"
    return re.compile(row.match.replace("<lacked>", lacked).replace("<formula>", LACKED_FORMULA))


@lru_cache(maxsize=8)
def _number_pattern(grouping: str) -> str:
    point = "." if grouping == "," else ","
    return SIGNED_NUMBER.replace("<group>", grouping).replace("<point>", point)


def scanned(
    text: str,
    rows: Sequence[tuple[Row, re.Pattern[str]]],
    start: int,
    end: int,
    accepts: Callable[[Row, Span], bool] | None = None,
) -> Iterator[tuple[Row, Span]]:
    """Yield the matches of rows, from left to right; of those that begin at one offset, the first row's.

    accepts: tells whether a match counts; if not, other rows may match there.
    """
    matches = [pattern.search(text, start, end) for _, pattern in rows]
    while spans := [(match.start(), index) for index, match in enumerate(matches) if match is not None]:
        _, first = min(spans)
        row, first_match = rows[first][0], matches[first]
        assert first_match is not None
        span = Span(*first_match.span())
        if accepts is not None and not accepts(row, span):
            matches[first] = rows[first][1].search(text, max(span.end, span.start + 1), end)
            continue
        yield row, span
        for index, match in enumerate(matches):
            if match is not None and match.start() < span.end:
                matches[index] = rows[index][1].search(text, span.end, end)


# ---- functions that rows name: what the model reads, `COPY`, or `None`
def _tag(reader: Rewriter, text: str, span: Span) -> str:
    return BREAK if re.match(BLOCK_TAG, text[span.start : span.end]) else ""


def _itself(reader: Rewriter, text: str, span: Span) -> str:
    return text[span.start : span.end]


def _sign(reader: Rewriter, text: str, span: Span) -> str:
    return ""


def _lowered(reader: Rewriter, text: str, span: Span) -> str | None:
    """Return a capitalised word that the vocabulary lacks in lowercase or without accents, if it knows it so."""
    vocabulary, word = reader.vocabulary, text[span.start : span.end]
    if not word[0].isupper():
        return None
    context = text[max(span.start - REACH, 0) : span.start]
    begins_sentence = re.search(SENTENCE_START, context) is not None
    lowered = word[0].lower() + word[1:]
    unaccented = "".join(
        letter if vocabulary.covers(letter) else unicodedata.normalize("NFD", letter)[0] for letter in word
    )
    for form in (lowered, word.lower(), unaccented if len(word) > 1 else word):  # A would not stand for \xc5
        # inside a sentence a capitalised word is a name, which is copied rather than changed
        is_known = vocabulary.has_piece(form) or (begins_sentence and form == lowered and vocabulary.covers(form))
        if len(form) == len(word) and is_known:
            return form
    return None


def _entity(reader: Rewriter, text: str, span: Span) -> str | None:
    character = character_of(text[span.start : span.end])
    if character is None:
        return None
    form = reader.vocabulary.form(character)
    is_in_word = text[max(span.start - 1, 0) : span.start].isalpha() and text[span.end : span.end + 1].isalpha()
    return " - " if character == EM_DASH and form != character and is_in_word else form


def _comma(reader: Rewriter, text: str, span: Span) -> str | None:
    context = text[max(span.start - MAX_CODE, 0) : span.start]
    return ", " if re.search(BEFORE_CODE_COMMA, context) is None else None


def _plain(reader: Rewriter, text: str, span: Span) -> str:
    return reader.vocabulary.form(text[span.start : span.end])


def _last_character(reader: Rewriter, text: str, span: Span) -> str:
    return text[span.end - 1]


def _inner_space(reader: Rewriter, text: str, span: Span) -> str | None:
    """Return nothing for a space inside of guillemets that point outwards and have one on both sides."""
    if text[span.start - 1] == GUILLEMETS[0]:
        other = re.compile(f"[^{GUILLEMETS}\n]*[ \xa0\u202f]{GUILLEMETS[1]}").match(
            text, span.end, span.end + MAX_QUOTE
        )
    else:
        before = text[max(span.start - MAX_QUOTE, 0) : span.start]
        other = re.search(f"{GUILLEMETS[0]}[ \xa0\u202f][^{GUILLEMETS}\n]*\\Z", before)
    return None if other is None else ""


def _signed(reader: Rewriter, text: str, span: Span) -> str | None:
    """Return a number with two signs as the target language writes it; with one, models write it themselves."""
    number = text[span.start : span.end]
    return with_target_signs(number, reader.groupings) if len(re.findall(r"\D", number)) > 1 else None


def _grouped(reader: Rewriter, text: str, span: Span) -> str | None:
    """Return a number of one group with the source language's sign, unless it is copied with an unknown neighbour."""
    neighbours = text[max(span.start - 2, 0) : span.start] + text[span.end : span.end + 2]
    if not all(reader.vocabulary.reads(neighbour) or re.match(EMOJI, neighbour) for neighbour in neighbours):
        return None
    return f"{text[span.start : span.end - 4]}{reader.groupings[0]}{text[span.end - 3 : span.end]}"


def _fewer(reader: Rewriter, text: str, span: Span) -> str | None:
    """Return a letter once or twice instead of more often, whichever makes the more frequent word."""
    before = text[max(span.start - MAX_CACHED_LENGTH, 0) : span.start]
    left = _first_word(before[::-1])[::-1]
    right = _first_word(text[span.end : span.end + MAX_CACHED_LENGTH])
    letters = text[span.start : span.end]
    is_code = before[: len(before) - len(left)].endswith("#")  # as in "&#xfffe;"
    is_alone = not (left + right).isalpha()
    is_acronym = len(letters) == 3 and letters.isupper()  # as in "IEEE"
    if is_code or is_alone or is_acronym or re.match(ROMAN_WORD, left + letters + right) is not None:
        return None
    left, right = (re.sub(REPEATED, r"\g<letter>", part) for part in (left, right))
    rank = reader.vocabulary.log_rank
    ranks = {form: rank(f"{left}{form}{right}".lower()) for form in (letters[0], letters[:2])}
    form = min(ranks, key=ranks.__getitem__)
    may_be_compound = len(letters) == 3 and left and right  # of German: "Missstand"
    return None if may_be_compound and ranks[form] > MAX_RANK_OF_REPEATED else form


def _first_word(text: str) -> str:
    """Return the letters, digits and underscores at the start of a text."""
    return re.sub(r"(?s)\W.*", "", text)


FUNCTIONS: dict[str, Callable[[Rewriter, str, Span], str | None]] = {
    "tag": _tag,
    "itself": _itself,
    "sign": _sign,
    "lowered": _lowered,
    "entity": _entity,
    "comma": _comma,
    "plain": _plain,
    "last_character": _last_character,
    "inner_space": _inner_space,
    "signed": _signed,
    "grouped": _grouped,
    "fewer": _fewer,
}


# ---- numbers, on both ways
def with_target_signs(
    text: str, groupings: tuple[str, str], is_converted: Callable[[str], bool] = lambda number: True
) -> str:
    """Return a text with the signs of the target language in some of its numbers.

    Numbers that the source language writes otherwise stay as they are. So does "912 345 678", which may be a telephone
    number.
    """
    if not all(groupings):
        return text
    (group, point), (target_group, target_point) = (
        (grouping, "." if grouping == "," else ",") for grouping in groupings
    )

    def written(match: re.Match[str]) -> str:
        if not is_converted(match[0]):
            return match[0]
        *groups, last = re.split(r"\D", match[0])
        signs = re.sub(r"\d", "", match[0])
        has_decimals = signs[-1] in ".," and (signs[-1] == point or signs[-1] != signs[0])
        return target_group.join(groups) + (target_point if has_decimals else target_group) + last

    return re.sub(_number_pattern(group), written, text)


def keep_edits(text: str, kinds: Collection[str]) -> list[Edit]:
    """Return the edits of the keep rows of these kinds."""
    reader = Rewriter(cast(Vocabulary, None), tuple(kinds), copies=False, normalises=False)  # no row asks it
    return list(reader._first_edits(text))


def known_form(text: str, vocabulary: Vocabulary) -> str:
    """Return a text, in its form if the vocabulary lacks any of its characters."""
    if not vocabulary.lacked(text):
        return text
    return Rewriter(vocabulary, copies=False).read(text).text
