"""The words of a text, and the tokens that make up each of them."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from capsule_mt.text.sentences import Span

# words, and each mark by itself
WORDS = re.compile(r"\w+(?:['\u2019\-]\w+)*|[^\w\s]")
BRACKET_MARKS = frozenset("(){}[]\uff08\uff09\uff3b\uff3d\uff5b\uff5d\u3010\u3011")
# scripts without spaces between words, where a token of the vocabulary stands for a word
UNSPACED_SCRIPTS = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"  # a string: slow to compile
# letters and marks of Chinese and Japanese
CJK = r"[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef\U00020000-\U0003ffff]"  # a string: slow to compile
CJK_NEIGHBOURS = "\"'\u201c\u201d\u2018\u2019\u2026\u2014"  # marks that both scripts use, with or without spaces
MAX_UNKNOWN = 64  # characters in a row that a vocabulary lacks
MAX_DRIFT = 8  # characters that may stand between a token and the one before
Offsets = Sequence[tuple[int, int] | None]


class WordLists(NamedTuple):
    """Case-folded words of the source language that coverage treats specially.

    Complete translations often leave an `optional` word without a counterpart: it is not counted, and
    marked only if it is unknown. `function` words are the most frequent ones: they count only where they are marked.
    """

    optional: frozenset[str] = frozenset()
    function: frozenset[str] = frozenset()


NO_LISTS = WordLists()


class SourceWord(NamedTuple):
    """A word of a source.

    span: its characters in the user's text.
    tokens: the indices of its tokens.
    is_mark: it has neither letters nor digits, so a translation may drop it.
    is_unknown: it has an unknown token, so the model cannot read it.
    is_optional, is_function: as in `WordLists`.
    model_span: its characters in what the model reads.
    is_copied: the translation has it as it is.
    """

    span: Span
    tokens: list[int]
    is_mark: bool
    is_unknown: bool
    is_optional: bool = False
    is_function: bool = False
    model_span: Span = Span(0, 0)
    is_copied: bool = False

    @property
    def is_exempt(self) -> bool:
        """Whether it is not marked if known: a translation may drop a mark, and cannot drop a copy."""
        return self.is_mark or self.is_copied

    @property
    def counts(self) -> bool:
        """Whether a complete translation has a counterpart for it."""
        return not self.is_mark and not self.is_optional


def source_words(
    text: str, offsets: Offsets, token_ids: Sequence[int], unknown_id: int | None, lists: WordLists = NO_LISTS
) -> list[SourceWord]:
    """Return the words of a text.

    offsets: for each token, the characters that it stands for, or `None`.
    """
    has_unknown = unknown_id is not None and unknown_id in token_ids
    words = []
    for span, tokens in words_of(text, offsets):
        word = text[span.start : span.end]
        folded = word.casefold()
        is_unknown = has_unknown and any(token_ids[token] == unknown_id for token in tokens)
        is_optional, is_function = folded in lists.optional, folded in lists.function
        words.append(SourceWord(span, tokens, is_mark(word), is_unknown, is_optional, is_function, span))
    return words


def is_mark(word: str) -> bool:
    """Whether a word has neither letters nor digits."""
    return not word.isalnum() and not any(map(str.isalnum, word))


def with_space(text: str, addition: str) -> str:
    """Join two parts of a translation, with a space where a word of one would else run into a word of the other."""
    if not text or not addition:
        return text + addition
    first = addition[0]  # unlike a superscript, it may begin a word
    ends_in_word = text[-1:].isalnum() and text[-2:-1] != "\\"  # unlike the escape "\n"
    begins_word = first.isdecimal() or (first.isalpha() and first != "\u207f")
    needs_space = ends_in_word and begins_word and not runs_on(text, addition)
    return f"{text} {addition}" if needs_space else text + addition


def runs_on(text: str, addition: str) -> bool:
    """Return whether two parts of a text are written without a space between them, as in Chinese and Japanese."""
    last, first = text.rstrip(CJK_NEIGHBOURS)[-1:], addition.lstrip(CJK_NEIGHBOURS)[:1]
    if last.isascii():
        return False
    return bool(re.match(CJK, last)) and (not last.isalnum() or bool(re.match(CJK, first)))


def words_of(text: str, offsets: Offsets) -> list[tuple[Span, list[int]]]:
    """Return the words of a text, or of scripts without spaces its tokens, each with the indices of its tokens.

    offsets: for each token, the characters that it stands for, or `None`.
    """
    words: list[tuple[Span, list[int]]] = []
    tokens_by_span = sorted((span, token) for token, span in enumerate(offsets) if span)
    tokens = [token for _, token in tokens_by_span]
    starts = [span[0] for span, _ in tokens_by_span]
    ends = [span[1] for span, _ in tokens_by_span]
    # both ascend, so that a binary search finds the tokens of a word in a long text
    latest_ends = list(accumulate(ends, max))
    is_in_order = latest_ends == ends and tokens == sorted(tokens)

    def tokens_of(start: int, end: int) -> list[int]:
        """Return the tokens that share a character with a word."""
        first, last = bisect_right(latest_ends, start), bisect_left(starts, end)
        if is_in_order:
            return tokens[first:last]
        return sorted(tokens[index] for index in range(first, last) if ends[index] > start)

    has_unspaced = not text.isascii() and re.search(UNSPACED_SCRIPTS, text) is not None
    for match in WORDS.finditer(text):
        start, end = match.span()
        word_tokens = tokens_of(start, end)
        if has_unspaced and re.search(UNSPACED_SCRIPTS, match[0]):
            spans = [span for span in (offsets[token] for token in word_tokens) if span]
            parts = sorted({(max(span[0], start), min(span[1], end)) for span in spans})
            words += [(Span(*part), tokens_of(*part)) for part in parts]
        elif word_tokens:
            words.append((Span(start, end), word_tokens))
    return words


def target_ends(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> list[int]:
    """Return the offset at which each token of a translation ends in its text."""
    ends = [0]
    for length in range(1, len(ids) + 1):
        ends.append(max(ends[-1], len(decode(ids[:length]))))
    return ends[1:]


def target_words(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> list[tuple[Span, list[int]]]:
    """Return the words of a translation, each with the indices of its tokens."""
    edges, words = [0, *target_ends(decode, ids)], []
    for match in WORDS.finditer(decode(ids)):
        tokens = [t for t, (start, end) in enumerate(pairwise(edges)) if start < match.end() and match.start() < end]
        words.append((Span(*match.span()), tokens))
    return words


def moved_offsets(offsets: Offsets, length: int) -> Offsets:
    """Count characters from the end of a prefix of this length; `None` for the tokens of the prefix."""
    moved = [None if span is None else (span[0] - length, span[1] - length) for span in offsets]
    return [span if span is not None and 0 <= span[0] < span[1] else None for span in moved]


def locate_tokens(text: str, pieces: Sequence[str | None]) -> Offsets:
    """Return the characters that each token stands for, for tokenizers that do not return offsets.

    Each token is searched for after the one before.

    pieces: the characters of each token, "" for a special one, `None` for an unknown one, which stands for what is
    between its neighbours.
    """
    position, offsets = 0, list[tuple[int, int] | None]()
    pending: list[int] = []  # indices of unknown tokens that end where the next token starts
    missed = 0  # characters of tokens since the last match: the text spells them another way
    text, source_spans = _normalized(text)

    def set_offsets(start: int, end: int, tokens: list[int]) -> None:
        for token in tokens if start < end else ():  # an empty span gives them no characters
            offsets[token] = (source_spans[start][0], source_spans[end - 1][1])

    for piece in pieces:
        offsets.append(None)
        if piece is None:
            pending.append(len(offsets) - 1)
            continue
        surface = _surface(piece)
        limit = position + len(surface) + missed + (MAX_UNKNOWN if pending else MAX_DRIFT)
        start = text.find(surface, position, limit) if surface else -1
        if start < 0:
            missed += len(surface)
            continue
        set_offsets(position, start, pending)
        pending, position, missed = [], start + len(surface), 0
        set_offsets(start, position, [len(offsets) - 1])
    set_offsets(position, len(text), pending)
    return offsets


@lru_cache(maxsize=1 << 16)
def _surface(piece: str) -> str:
    """Return the characters that a token stands for, as `_normalized` has them."""
    return _normalized(piece.replace("▁", " ").strip())[0]


def _normalized(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text as sentencepiece reads it (NFKC, single spaces), and the source span of each of its characters."""
    is_normal = text.isascii() or (
        unicodedata.is_normalized("NFKC", text) and not any(map(unicodedata.combining, text))
    )
    if is_normal and text.isprintable() and "  " not in text:  # the same, five times as fast
        return text, list(pairwise(range(len(text) + 1)))
    characters: list[str] = []
    spans: list[tuple[int, int]] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end < len(text) and _composes(text[start:end], text[end]):
            continue
        for character in unicodedata.normalize("NFKC", text[start:end]):
            if character.isspace():
                character = " "
            if unicodedata.category(character) in ("Cc", "Cf") or (character == " " and characters[-1:] == [" "]):
                continue
            characters.append(character)
            spans.append((start, end))
        start = end
    return "".join(characters), spans


def _composes(text: str, character: str) -> bool:
    """Return whether a character composes with those before, as vowels of Hangul do."""
    composed = character > "\u02ff" and unicodedata.normalize("NFC", text + character)
    return bool(composed) and (
        unicodedata.combining(character) > 0 or len(str(composed)) <= len(unicodedata.normalize("NFC", text))
    )
