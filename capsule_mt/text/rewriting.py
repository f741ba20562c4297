"""Interprets the table of `rules`: from a user's text to its `Form`, which a model reads, and the edits between them.

The stages of reading, each once: keep and form by one scan of the text; case, letter for letter; late rows, for what
the vocabulary lacks. `segments` cuts the form into sentences, `reading` has a sentence as the model reads it, and
`restoring` and `finishing` are the way back.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple, cast

from capsule_mt.text.casing import in_sentence_case
from capsule_mt.text.entities import character_of
from capsule_mt.text.rules import (
    BLOCK_TAG,
    BREAK,
    COPY,
    ITEM,
    LACKED_FORMULA,
    LACKED_LETTER,
    LACKED_SIGN,
    SIGN_PAIRS,
    SIGNED_NUMBER,
    Row,
    of_table,
    rows_of,
)
from capsule_mt.text.sentences import Span, rules_of
from capsule_mt.text.vocabulary import MAX_CACHED_LENGTH, Vocabulary, combines, visible

SENTENCE_START = r"(?:^|[.!?\u2026]\s)\W*\Z"  # in the text before the first word of a sentence
REACH = 16  # characters before a word that decide whether it begins a sentence
# not in code: "--sort=size,time", "max(width,height)", "a_b,c", "main.py,test.py"; in so many characters before it
BEFORE_CODE_COMMA, MAX_CODE = r"(?:[=_:/\\@<>{}]|\w\(|\.[a-z]{2})\S*\Z", 64
ROMAN_WORD = r"(?:[ivxlcdm]+|[IVXLCDM]+)\Z"  # also the size "XXXL"
COMBINING_MARK = "\u0301"  # in the copy of a form for late rows, each mark that combines
OPERATORS = "&*@^"  # beside signs of mathematics: "A & B", "5 * 3"
IN_WORD = r"(?<=[^\W_])[&@](?=[^\W_])"  # "AT&T"; but the star of "Lehrer*innen" leaves a word
EM_DASH = "\u2014"
LINE, BLOCK = rf"[^\s{BREAK}][^\n{BREAK}]*", rf"[^\s{BREAK}][^{BREAK}]*"
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
    def span(self) -> Span:
        """Its characters of the user's text."""
        return Span(self.start, self.end)

    @property
    def kind(self) -> str:
        return _kinds_of_rows().get(self.row, "")

    @property
    def in_form(self) -> str:
        return ITEM if self.model is None else self.model


class Form:
    """A text with edits applied, and the way back of offsets.

    source: the user's text.
    edits: in order; none overlaps another.
    kinds: what is kept.
    text: what rules about case and sentences see: an item is one `ITEM`.
    lines: the user's lines in another case than that of a sentence, which is the `row` of each.
    """

    def __init__(self, source: str, edits: Sequence[Edit] = (), kinds: Collection[str] = ()) -> None:
        self.source, self.edits, self.kinds = source, edits, kinds
        self.lines: Sequence[Edit] = ()
        self.offsets: list[int] = []  # of the edits in `text`
        parts: list[str] = []
        end = length = 0
        for edit in edits:
            length += edit.start - end
            self.offsets.append(length)
            parts += (source[end : edit.start], edit.in_form)
            length, end = length + len(parts[-1]), edit.end
        self.text = "".join([*parts, source[end:]]) if edits else source

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
        first = self._user_character(start).start
        return Span(first, self._user_character(end - 1).end if start < end else first)

    def _user_character(self, offset: int) -> Span:
        index = bisect_right(self.offsets, offset) - 1
        if index < 0:
            return Span(offset, offset + 1)
        edit, past = self.edits[index], offset - self.offsets[index] - len(self.edits[index].in_form)
        return edit.span if past < 0 else Span(edit.end + past, edit.end + past + 1)

    def copies_in(self, start: int, end: int) -> Iterator[tuple[int, Edit]]:
        """Yield the items in a span of `text`, and the tags in it and at its edges, each with its offset."""
        for index in range(bisect_left(self.offsets, start), bisect_right(self.offsets, end)):
            edit, offset = self.edits[index], self.offsets[index]
            if edit.back is not None and offset + len(edit.in_form) <= end:
                yield offset, edit

    def case_at(self, user_offset: int) -> str | None:
        """Return the case of the user's line at an offset of the user's text; `None` for sentence case."""
        index = bisect_right(self.lines, user_offset, key=lambda line: line.start) - 1
        return self.lines[index].row if index >= 0 and user_offset < self.lines[index].end else None


class Rewriter(NamedTuple):
    """What a call decides about the table.

    vocabulary: of the source; `keep` rows do not ask about it.
    kinds: what is kept.
    copies: whether rules about numbers, case and sentences apply.
    normalises: whether the model reads the plain forms of characters.
    splits: whether each line is a sentence, or several.
    """

    vocabulary: Vocabulary
    kinds: tuple[str, ...] = ()
    copies: bool = True
    normalises: bool = True
    src_lang: str | None = None
    tgt_lang: str | None = None
    splits: bool = True

    @property
    def groupings(self) -> tuple[str, str]:
        """The signs between groups of three digits in both languages; "" where it is not known, or not to be used."""
        if not self.copies or "numbers" in self.kinds:
            return "", ""
        return rules_of(self.src_lang).grouping, rules_of(self.tgt_lang).grouping

    def read(self, text: str) -> Form:
        """Return the form of a text, after all stages."""
        rows = [
            row for row, need in _needs(self.kinds, self.normalises) if need.search(text) and self._is_tried(row, text)
        ]
        edits = list(self._scanned(text, rows)) if rows else []
        is_kept = not self.copies or "numbers" in self.kinds or any(edit.back is not None for edit in edits)
        kinds = [kind for kind in self.kinds if kind != "languages"]
        form = Form(text, edits, kinds if is_kept else ())
        if self.copies:
            cased, lines = in_sentence_case(form.text, self.vocabulary, self.src_lang)
            form.text = cased
            form.lines = [Edit(case, *form.user_span(*span), cased[slice(*span)]) for span, case in lines]
        lacked = self.vocabulary.lacked(form.text) if self.normalises else ()
        late = list(self._late(form, lacked)) if lacked else []
        if late:
            form = form.with_further(late)
            form.kinds = kinds if is_kept or any(edit.back is not None for edit in late) else ()
        return form

    def _is_tried(self, row: Row, text: str) -> bool:
        """Return whether the condition of a row that a text may match is met."""
        if row.model == ":plain":
            return not self.vocabulary.changes_none_of(text)
        return row.when is None or not self.vocabulary.covers(row.when.removeprefix("lacks "))

    def _scanned(
        self, text: str, rows: Sequence[Row], start: int = 0, end: int | None = None, form: Form | None = None
    ) -> Iterator[Edit]:
        """Yield the edits of rows in a span of a text: at the leftmost match, those of the first row that has any.

        form: of late rows, which are matched against a copy of its text.
        """
        end = len(text) if end is None else end
        patterns = [_pattern(row) for row in rows]
        matches = [pattern.search(text, start, end) for pattern in patterns]
        while spans := [(*match.span(), index) for index, match in enumerate(matches) if match is not None]:
            start, stop, first = min(spans, key=lambda span: (span[0], span[2]))
            edits = list(self._edits(rows[first], text, Span(start, stop), rows, form))
            yield from edits
            position = stop if edits else max(stop, start + 1)
            for index, match in enumerate(matches):
                if match is not None and (match.start() < stop if edits else index == first):
                    matches[index] = patterns[index].search(text, position, end)

    def _edits(self, row: Row, text: str, span: Span, rows: Sequence[Row], form: Form | None) -> Iterator[Edit]:
        """Yield the edits of a row at a match; none if the model reads what stands there."""
        if row.model == ":emphasis":
            yield from self._emphasised(text, span, rows)
            return
        read = text if form is None else form.text
        content = written = read[slice(*span)]
        model = FUNCTIONS[row.model[1:]](self, read, span) if row.model[:1] == ":" else row.model
        if model is None or (model == content and row.stage != "keep" and row.back != COPY):
            return
        if form is not None:  # as the user wrote it
            written = form.source[slice(*form.user_span(*span))]
        back: str | None = None
        if row.back == ":target_signs":
            back = with_target_signs(written, self.groupings)
        elif row.back == COPY and (row.stage == "keep" or model in (COPY, "")):
            back = written if form is None else visible(written)
        yield Edit(row.id, *span, None if model == COPY else model, back)

    def _emphasised(self, text: str, span: Span, rows: Sequence[Row]) -> Iterator[Edit]:
        """Yield the marks of emphasis around a text, such as "**", and the edits between them."""
        start, end = span
        length = end - start - len(text[start:end].lstrip(text[start]))
        mark = text[start : start + length]
        yield Edit("emphasis", start, start + length, "", mark)
        yield from self._scanned(text, rows, start + length, end - length)
        yield Edit("emphasis", end - length, end, "", mark)

    def _late(self, form: Form, lacked: Collection[str]) -> Iterator[Edit]:
        """Yield the edits of a form for characters that the vocabulary lacks."""
        marks = {ord(character): COMBINING_MARK for character in set(form.text) if combines(character)}
        marks |= {ord(character): _lacked_mark(character) for character in lacked}
        in_words = re.sub(IN_WORD, lambda sign: LACKED_LETTER if sign[0] in lacked else sign[0], form.text)
        shadow = in_words.translate(marks)
        if ITEM in shadow and "numbers" in self.kinds:  # a kept number may be that of an amount
            numbers = {offset for offset, edit in form.copies_in(0, len(shadow)) if edit.row == "number"}
            shadow = "".join("0" if offset in numbers else letter for offset, letter in enumerate(shadow))
        shadow = self._with_list_marks(shadow, form.text) if self.copies else shadow
        rows = [row for row in rows_of("late") if not row.kind or row.kind in self.kinds]
        return self._scanned(shadow, rows, form=form)

    def _with_list_marks(self, shadow: str, text: str) -> str:
        """Return the copy of a form for late rows with the list marks as they are that the edges copy."""
        parts: list[str] = []
        end = 0
        for line in re.finditer(LINE if self.splits else BLOCK, text):
            start, stop = line.start(), end_of_marks(text, Span(*line.span()), rules_of(self.src_lang).has_ordinals)
            parts += (shadow[end:start], text[start:stop])
            end = stop
        return "".join([*parts, shadow[end:]])


@of_table
def _kinds_of_rows() -> dict[str, str]:
    return {row.id: row.kind for row in rows_of("keep", "form", "late")}


@of_table
def _needs(kinds: Collection[str], normalises: bool) -> Sequence[tuple[Row, re.Pattern[str]]]:
    """Return the rows that a call tries, each with what a text must have for it."""
    rows = [row for row in rows_of("keep", "form") if (row.kind in kinds if row.stage == "keep" else normalises)]
    return [(row, re.compile(row.needs)) for row in rows]


def _lacked_mark(character: str) -> str:
    if character.isalnum() or character == "_":
        return LACKED_LETTER
    return LACKED_FORMULA if unicodedata.category(character) == "Sm" or character in OPERATORS else LACKED_SIGN


@of_table
def _pattern(row: Row) -> re.Pattern[str]:
    lacked = f"[{LACKED_LETTER}{LACKED_SIGN}{LACKED_FORMULA}]"
    return re.compile(row.match.replace("<lacked>", lacked).replace("<formula>", LACKED_FORMULA))


# ---- functions that rows name: what the model reads, `COPY`, or `None`
def _tag(reader: Rewriter, text: str, span: Span) -> str:
    return BREAK if re.match(BLOCK_TAG, text[span.start : span.end]) else ""


def _itself(reader: Rewriter, text: str, span: Span) -> str:
    return text[span.start : span.end]


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


_functions: tuple[Callable[[Rewriter, str, Span], str | None], ...]
_functions = (_tag, _itself, _lowered, _entity, _comma, _plain, _fewer)
FUNCTIONS = {function.__name__[1:]: function for function in _functions}


# ---- numbers, on both ways
def with_target_signs(
    text: str, groupings: tuple[str, str], is_converted: Callable[[str], bool] = lambda number: True
) -> str:
    """Return a text with the signs of the target language in some of its numbers.

    They look like the source language's, or have groups between apostrophes or no-break spaces. "912 345 678" stays as
    it is: it may be a telephone number.
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

    pattern = SIGNED_NUMBER.replace("<group>", group).replace("<point>", point)
    return re.sub(pattern, written, text)


def keep_edits(text: str, kinds: Collection[str]) -> Sequence[Edit]:
    """Return the edits of the keep rows of these kinds."""
    return _keep_edits(text, tuple(kinds))


@partial(of_table, maxsize=8)  # several steps ask for those of the same text
def _keep_edits(text: str, kinds: tuple[str, ...]) -> Sequence[Edit]:
    return Rewriter(cast(Vocabulary, None), kinds, copies=False, normalises=False).read(text).edits  # no row asks it


def end_of_marks(text: str, sentence: Span, has_ordinals: bool = True) -> int:
    """Return where the list marks before a sentence, or a line, end.

    has_ordinals: the language writes ordinal numbers with a full stop, so "3." may belong to the sentence.
    """
    start, end = sentence
    if text[start : start + 2].isalpha():
        return start
    for row in rows_of("before"):
        match = None if row.when == "no ordinals" and has_ordinals else re.compile(row.match).match(text, start, end)
        if match is not None and not (row.when == "unpaired" and has_pair(match[0], text[start:end])):
            start = match.end()
    return start


def has_pair(signs: str, sentence: str) -> bool:
    """Whether some of the signs may be one of a pair of brackets or quotes in the sentence."""
    return any(not {*pair}.isdisjoint(signs) and {*pair}.issubset(sentence) for pair in SIGN_PAIRS)


def known_form(text: str, vocabulary: Vocabulary) -> str:
    """Return a text, in its form if the vocabulary lacks any of its characters."""
    if not vocabulary.lacked(text):
        return text
    return Rewriter(vocabulary, copies=False).read(text).text
