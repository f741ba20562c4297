"""The words of a source text, and the tokens that each is made of."""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from capsule_mt.text.sentences import Span
from hf_capsule_mt.modeling.vocabulary import decode_target

# words, and each mark by itself
WORDS = re.compile(r"\w+(?:['\u2019\-]\w+)*|[^\w\s]")
# scripts that put no space between words, where a token of the vocabulary stands for a word
UNSPACED_SCRIPTS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
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
    """The characters `span` of a text, and which tokens of its piece they are.

    A mark has neither letters nor digits, so a translation may drop it. An unknown word has a token that stands for
    whatever the vocabulary lacks, so no model can translate it. Optional words and function words are those of
    `WordLists`.
    """

    span: Span
    tokens: list[int]
    is_mark: bool
    is_unknown: bool
    is_optional: bool = False
    is_function: bool = False


def source_words(
    text: str,
    span: Span,
    offsets: Offsets,
    token_ids: Sequence[int],
    unknown_id: int | None,
    lists: WordLists = NO_LISTS,
) -> list[SourceWord]:
    """Return the words in a span of a text, whose tokens have these ids and stand for these characters of the span."""
    return [
        SourceWord(
            place,
            tokens,
            is_mark=is_mark(text[place.start : place.end]),
            is_unknown=unknown_id is not None and any(token_ids[n] == unknown_id for n in tokens),
            is_optional=text[place.start : place.end].casefold() in lists.optional,
            is_function=text[place.start : place.end].casefold() in lists.function,
        )
        for place, tokens in words_of(text, span, offsets)
    ]


def is_mark(word: str) -> bool:
    """Whether a word has neither letters nor digits."""
    return not any(map(str.isalnum, word))


def words_of(text: str, span: Span, offsets: Offsets) -> list[tuple[Span, list[int]]]:
    """Return the words in a span of a text, and which tokens each is made of.

    offsets: for each token, the characters of the span that it stands for, or `None`.
    """
    part = text[span.start : span.end]
    words: list[tuple[Span, list[int]]] = []
    for match in WORDS.finditer(part):
        places = {n: place for n, place in enumerate(offsets) if place and _overlap(place, match.span())}
        if UNSPACED_SCRIPTS.search(match[0]):
            cut = {(max(start, match.start()), min(end, match.end())) for start, end in places.values()}
            groups = [(part_of, [n for n in places if _overlap(places[n], part_of)]) for part_of in sorted(cut)]
        else:
            groups = [(match.span(), list(places))]
        words += [(Span(span.start + start, span.start + end), tokens) for (start, end), tokens in groups if tokens]
    return words


def token_offsets(tokenizer: PreTrainedTokenizerBase, text: str, token_ids: list[int], prefix: str) -> Offsets:
    """Return the characters of a text that each token stands for; `None` for special tokens and for the prefix's."""
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer(prefix + text, return_offsets_mapping=True, verbose=False)
        if list(encoded["input_ids"])[: len(token_ids)] == token_ids:
            return without_prefix(encoded["offset_mapping"][: len(token_ids)], prefix)
    return _offsets_by_search(tokenizer, prefix + text, token_ids, len(prefix))


def target_ends(tokenizer: PreTrainedTokenizerBase, sequence: Sequence[int], clean_up: bool | None) -> list[int]:
    """Return where each token of a translation ends in its text, after the decoder's start token."""
    ends = [0]
    for length in range(2, len(sequence) + 1):
        text = decode_target(tokenizer, sequence[:length], clean_up_tokenization_spaces=clean_up)
        ends.append(max(ends[-1], len(text)))
    return ends[1:]


def without_prefix(offset_mapping: Sequence[tuple[int, int]], prefix: str) -> Offsets:
    """Count characters from the end of the prefix; `None` for the tokens before it and for special ones."""
    moved = [(start - len(prefix), end - len(prefix)) for start, end in offset_mapping]
    return [place if 0 <= place[0] < place[1] else None for place in moved]


def _offsets_by_search(tokenizer: PreTrainedTokenizerBase, text: str, token_ids: list[int], skipped: int) -> Offsets:
    """Look for each token after the one before, for tokenizers that do not know its place.

    Unknown tokens stand for what is between their neighbours.
    """
    special, unknown_id, place = set(tokenizer.all_special_ids), getattr(tokenizer, "unk_token_id", None), 0
    offsets: list[tuple[int, int] | None] = []
    waiting: list[int] = []  # unknown tokens whose end has not been found
    missed = 0  # characters of the tokens since then that are not in the text as they are
    text, places = _normalized(text)

    def add(first: int, last: int, numbers: list[int]) -> None:
        if first == last:  # nothing is left for them
            return
        start, end = places[first][0], places[last - 1][1]
        for number in numbers:
            offsets[number] = (start - skipped, end - skipped) if start >= skipped else None

    tokens = tokenizer.convert_ids_to_tokens(token_ids)
    if getattr(tokenizer, "separate_vocabs", False):  # those were of the target
        of_source = {number: token for token, number in tokenizer.encoder.items()}
        tokens = [of_source.get(token_id, "") for token_id in token_ids]
    for token_id, token in zip(token_ids, tokens, strict=True):
        offsets.append(None)
        if token_id == unknown_id:
            waiting.append(len(offsets) - 1)
            continue
        surface = _normalized(token.replace("▁", " ").strip())[0]
        reach = place + len(surface) + missed + (LONGEST_UNKNOWN if waiting else 8)
        found = text.find(surface, place, reach) if surface else -1
        if token_id in special or found < 0:
            missed += 0 if token_id in special else len(surface)
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


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]
