"""The words of a source text, and the tokens that each is made of."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from capsule_mt.text.sentences import Span

# words, and each mark by itself
WORDS = re.compile(r"\w+(?:['\u2019\-]\w+)*|[^\w\s]")
# scripts that put no space between words, where a token of the vocabulary stands for a word
UNSPACED_SCRIPTS = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"  # slow to compile
# letters and marks of Chinese and Japanese, and what is beside them in quotation
_CJK = r"[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef\U00020000-\U0003ffff]"  # slow to compile, too
_QUOTES = "\"'\u201c\u201d\u2018\u2019\u2026\u2014"
LONGEST_UNKNOWN = 64  # characters in a row that a vocabulary lacks
Offsets = Sequence[tuple[int, int] | None]


class WordLists(NamedTuple):
    """Words of the source language, case-folded, that coverage does not treat like any other.

    Complete translations often leave an `optional` word without a counterpart: it is neither marked nor counted.
    `function` words are the most frequent ones: only those that are marked are counted.
    """

    optional: frozenset[str] = frozenset()
    function: frozenset[str] = frozenset()


NO_LISTS = WordLists()


class SourceWord(NamedTuple):
    """The characters `span` of a text, which are at `place` in what the model reads, and which of its tokens they are.

    A mark has neither letters nor digits, so a translation may drop it. An unknown word has a token that stands for
    whatever the vocabulary lacks, so no model can translate it. A copied one is put into the translation as it is.
    Optional words and function words are those of `WordLists`.
    """

    span: Span
    tokens: list[int]
    is_mark: bool
    is_unknown: bool
    is_optional: bool = False
    is_function: bool = False
    place: Span = Span(0, 0)
    is_copied: bool = False

    @property
    def is_exempt(self) -> bool:
        """Whether a translation cannot leave it out, or may."""
        return self.is_mark or self.is_copied

    @property
    def counts(self) -> bool:
        """Whether a complete translation has a counterpart of it."""
        return not self.is_mark and not self.is_optional


def source_words(
    text: str, offsets: Offsets, token_ids: Sequence[int], unknown_id: int | None, lists: WordLists = NO_LISTS
) -> list[SourceWord]:
    """Return the words of a text, whose tokens have these ids and stand for these characters."""
    return [
        SourceWord(
            place,
            tokens,
            is_mark=is_mark(text[place.start : place.end]),
            is_unknown=unknown_id is not None and any(token_ids[n] == unknown_id for n in tokens),
            is_optional=text[place.start : place.end].casefold() in lists.optional,
            is_function=text[place.start : place.end].casefold() in lists.function,
            place=place,
        )
        for place, tokens in words_of(text, offsets)
    ]


def is_mark(word: str) -> bool:
    """Whether a word has neither letters nor digits."""
    return not any(map(str.isalnum, word))


def with_space(text: str, more: str) -> str:
    """Join two parts of a translation, of which neither may become a part of a word of the other."""
    return f"{text} {more}" if text[-1:].isalnum() and more[:1].isalnum() and not runs_on(text, more) else text + more


def runs_on(text: str, more: str) -> bool:
    """Return whether no space is written between two parts of a text: Chinese and Japanese have none."""
    last, first = text.rstrip(_QUOTES)[-1:], more.lstrip(_QUOTES)[:1]
    if last.isascii():
        return False
    return bool(re.match(_CJK, last)) and (not last.isalnum() or bool(re.match(_CJK, first)))


def words_of(text: str, offsets: Offsets) -> list[tuple[Span, list[int]]]:
    """Return the words of a text, and which tokens each is made of.

    offsets: for each token, the characters that it stands for, or `None`.
    """
    words: list[tuple[Span, list[int]]] = []
    placed = sorted((place, n) for n, place in enumerate(offsets) if place)
    starts = [place[0] for place, _ in placed]
    ends = list(accumulate((place[1] for place, _ in placed), max))

    def tokens_of(span: tuple[int, int]) -> dict[int, tuple[int, int]]:
        """Return the tokens that have a character of a span, and their places."""
        near = placed[bisect_right(ends, span[0]) : bisect_left(starts, span[1])]
        return dict(sorted((n, place) for place, n in near if place[1] > span[0]))

    for match in WORDS.finditer(text):
        places = tokens_of(match.span())
        if not match[0].isascii() and re.search(UNSPACED_SCRIPTS, match[0]):
            cut = {(max(start, match.start()), min(end, match.end())) for start, end in places.values()}
            groups = [(part_of, list(tokens_of(part_of))) for part_of in sorted(cut)]
        else:
            groups = [(match.span(), list(places))]
        words += [(Span(start, end), tokens) for (start, end), tokens in groups if tokens]
    return words


def target_ends(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> list[int]:
    """Return where each token of a translation ends in its text."""
    ends = [0]
    for length in range(1, len(ids) + 1):
        ends.append(max(ends[-1], len(decode(ids[:length]))))
    return ends[1:]


def target_words(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> list[tuple[Span, list[int]]]:
    """Return the words of a translation, and which of its tokens each is made of."""
    starts, found = [0, *target_ends(decode, ids)], []
    for match in WORDS.finditer(decode(ids)):
        tokens = [t for t, (start, end) in enumerate(pairwise(starts)) if start < match.end() and match.start() < end]
        found.append((Span(*match.span()), tokens))
    return found


def moved_offsets(offsets: Offsets, length: int) -> Offsets:
    """Count characters from the end of a prefix of some length; `None` for the tokens of the prefix."""
    moved = [None if place is None else (place[0] - length, place[1] - length) for place in offsets]
    return [place if place is not None and 0 <= place[0] < place[1] else None for place in moved]


def found_offsets(text: str, pieces: Sequence[str | None]) -> Offsets:
    """Look for each token after the one before, for tokenizers that do not know its place.

    pieces: the characters of each token, "" of a special one, `None` of an unknown one, which stands for what is
    between its neighbours.
    """
    place, offsets = 0, list[tuple[int, int] | None]()
    waiting: list[int] = []  # unknown tokens whose end has not been found
    missed = 0  # characters of the tokens since then that are not in the text as they are
    text, places = _normalized(text)

    def add(first: int, last: int, numbers: list[int]) -> None:
        for number in numbers if first < last else ():  # else nothing is left for them
            offsets[number] = (places[first][0], places[last - 1][1])

    for piece in pieces:
        offsets.append(None)
        if piece is None:
            waiting.append(len(offsets) - 1)
            continue
        surface = _normalized(piece.replace("▁", " ").strip())[0]
        reach = place + len(surface) + missed + (LONGEST_UNKNOWN if waiting else 8)
        found = text.find(surface, place, reach) if surface else -1
        if found < 0:
            missed += len(surface)
            continue
        add(place, found, waiting)
        waiting, place, missed = [], found + len(surface), 0
        add(found, place, [len(offsets) - 1])
    add(place, len(text), waiting)
    return offsets


def _normalized(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text as sentencepiece reads it (NFKC, one space at a time), and what each character was made of."""
    found: list[str] = []
    places: list[tuple[int, int]] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end < len(text) and _goes_on(text[start:end], text[end]):
            continue
        for character in unicodedata.normalize("NFKC", text[start:end]):
            if character.isspace():
                character = " "
            if unicodedata.category(character) in ("Cc", "Cf") or (character == " " and found[-1:] == [" "]):
                continue
            found.append(character)
            places.append((start, end))
        start = end
    return "".join(found), places


def _goes_on(text: str, character: str) -> bool:
    """Return whether a character composes with those before, as vowels of Hangul do."""
    composed = character > "\u02ff" and unicodedata.normalize("NFC", text + character)
    return bool(composed) and (
        unicodedata.combining(character) > 0 or len(str(composed)) <= len(unicodedata.normalize("NFC", text))
    )
