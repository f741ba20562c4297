"""Text to pieces and back as SentencePiece does it, in plain Python: words that came before are looked up."""

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from capsule_mt.models.sentencepiece import BYTE, CONTROL, NORMAL, SPACE, SentencePieces
from capsule_mt.models.weights import CheckpointError
from capsule_mt.text.tokenizer import Encoded

# how much less likely than the least likely piece an unknown character is
UNKNOWN_PENALTY = 10.0
UNKNOWN_TEXT = " \u2047 "
MOST_WORDS = 50_000  # that are kept
LONGEST_WORD = 40
BYTES = re.compile(r"<0x([0-9A-F]{2})>")


class Found(NamedTuple):
    """A piece of a text, from character `start` to `end` of it."""

    token: int
    start: int
    end: int


class Character(NamedTuple):
    """A character of normalised text, and those of the text that it stands for."""

    text: str
    start: int
    end: int


class Charsmap:
    """What a normaliser has compiled: a double array of prefixes in UTF-8, and what each becomes."""

    def __init__(self, file: str, compiled: bytes) -> None:
        size = int.from_bytes(compiled[:4], "little")
        if len(compiled) < 8 or size % 4 or not 0 < size <= len(compiled) - 4:
            raise CheckpointError(f"{file}: `precompiled_charsmap` is damaged")
        self._units = array("I", compiled[4 : 4 + size])
        self._texts = compiled[4 + size :]

    def longest(self, content: bytes, place: int) -> tuple[str, int] | None:
        """Return what the longest known prefix from a place on becomes, and how many bytes it has."""
        units, found = self._units, None
        node = _offset(units[0])
        for length, byte in enumerate(content[place:], start=1):
            node ^= byte
            if node >= len(units) or units[node] & 0x800000FF != byte:
                break
            unit = units[node]
            node ^= _offset(unit)
            if node >= len(units):
                break
            if unit >> 8 & 1:
                found = units[node] & 0x7FFFFFFF, length
        if found is None:
            return None
        start, length = found
        return self._texts[start : self._texts.find(b"\0", start)].decode("utf-8", "replace"), length


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 512) >> 6)


class Segmenter:
    """The pieces of texts, by one vocabulary."""

    def __init__(self, vocabulary: SentencePieces) -> None:
        self.vocabulary = vocabulary
        self._charsmap = Charsmap(vocabulary.file, vocabulary.charsmap) if vocabulary.charsmap else None
        kinds, scores = vocabulary.kinds, vocabulary.scores
        self._tokens = {text: place for place, text in enumerate(vocabulary.texts) if kinds[place] == NORMAL}
        self._longest = max(map(len, self._tokens), default=1)
        self._unknown_score = min((scores[place] for place in self._tokens.values()), default=0.0) - UNKNOWN_PENALTY
        self._bytes = {
            int(one[1], 16): place
            for place, text in enumerate(vocabulary.texts)
            if kinds[place] == BYTE and (one := BYTES.fullmatch(text))
        }
        self._segment: Callable[[str], list[Found]] = self._likeliest if vocabulary.kind == "unigram" else self._merged
        # where a word's pieces do not depend on its neighbours
        self._by_words = (
            vocabulary.adds_prefix
            and vocabulary.removes_spaces
            and SPACE in self._tokens
            and not any(SPACE in text[1:] for text in self._tokens)
            and (self._charsmap is None or self._charsmap.longest(b" ", 0) is None)
        )
        self._words: dict[str, list[Found]] = {}

    def pieces_of(self, text: str) -> list[Found]:
        """Return the pieces of a text."""
        if not self._by_words:
            return self._segment_all(text)
        found: list[Found] = []
        start = 0
        for word in text.split(" "):
            pieces = self._words.get(word)
            if pieces is None:
                pieces = self._keep(word)
            found += [Found(token, start + first, start + end) for token, first, end in pieces]
            start += len(word) + 1
        return found

    def text_of(self, tokens: Sequence[int]) -> str:
        """Return the text of pieces, without control pieces."""
        vocabulary, parts, pending = self.vocabulary, [""], bytearray()
        for token in tokens:
            kind, text = vocabulary.kinds[token], vocabulary.texts[token]
            if kind == BYTE:
                pending.append(int(text[3:5], 16))
                continue
            if pending:
                parts.append(pending.decode("utf-8", "replace"))
                pending.clear()
            if kind != CONTROL:
                parts.append(UNKNOWN_TEXT if token == vocabulary.unknown else text)
        whole = "".join([*parts, pending.decode("utf-8", "replace")])
        if vocabulary.removes_spaces:
            whole = whole.lstrip(SPACE)
        elif vocabulary.adds_prefix:
            whole = whole.removeprefix(SPACE)
        return whole.replace(SPACE, " ")

    def _keep(self, word: str) -> list[Found]:
        pieces = self._segment_all(word)
        if len(word) <= LONGEST_WORD:
            if len(self._words) >= MOST_WORDS:
                self._words.clear()
            self._words[word] = pieces
        return pieces

    def _segment_all(self, text: str) -> list[Found]:
        characters = list(self._spaced(self._normalised(text)))
        normalised = "".join(one.text for one in characters)
        found: list[Found] = []
        for token, start, end in self._segment(normalised):
            piece = Found(token, characters[start].start, characters[end - 1].end)
            if token != self.vocabulary.unknown:
                found.append(piece)
            elif self._bytes:
                content = normalised[start:end].encode("utf-8", "replace")
                found += [piece._replace(token=self._bytes.get(byte, token)) for byte in content]
            elif found and found[-1].token == token:
                found[-1] = found[-1]._replace(end=piece.end)
            else:
                found.append(piece)
        return found

    def _normalised(self, text: str) -> Iterator[Character]:
        """Yield the characters of a text after the charsmap."""
        if self._charsmap is None:
            for place, character in enumerate(text):
                yield Character(character, place, place + 1)
            return
        content, place, at = text.encode("utf-8", "replace"), 0, 0
        while place < len(text):
            match = self._charsmap.longest(content, at)
            end = place + 1
            if match is None:
                becomes, size = text[place], len(text[place].encode("utf-8", "replace"))
            else:
                becomes, size = match
                end = place + len(content[at : at + size].decode("utf-8", "replace"))
            for character in becomes:
                yield Character(character, place, end)
            place, at = max(end, place + 1), at + size

    def _spaced(self, characters: Iterator[Character]) -> Iterator[Character]:
        """Mark the beginnings of words, and drop what spaces are too many."""
        after_space, pending = True, None
        needs_mark = self.vocabulary.adds_prefix
        for one in characters:
            if one.text == " " and self.vocabulary.removes_spaces:
                pending = None if after_space else pending or one
                continue
            if needs_mark:
                yield Character(SPACE, one.start, one.start)
            elif pending is not None:
                yield Character(SPACE, pending.start, pending.end)
            needs_mark, pending, after_space = False, None, False
            yield Character(SPACE, one.start, one.end) if one.text == " " else one

    def _likeliest(self, text: str) -> list[Found]:
        """The unigram model's: the sum of the pieces' log-probabilities is the largest."""
        known, scores, longest, unknown = self._tokens, self.vocabulary.scores, self._longest, self.vocabulary.unknown
        count = len(text)
        best = [float("-inf")] * (count + 1)
        best[0] = 0.0
        starts, tokens = [0] * (count + 1), [unknown] * (count + 1)
        for start in range(count):
            so_far = best[start]
            for end in range(start + 1, min(start + longest, count) + 1):
                token = known.get(text[start:end])
                if token is not None and so_far + scores[token] > best[end]:
                    best[end], starts[end], tokens[end] = so_far + scores[token], start, token
            if text[start] not in known and so_far + self._unknown_score > best[start + 1]:
                best[start + 1], starts[start + 1], tokens[start + 1] = so_far + self._unknown_score, start, unknown
        found = []
        while count:
            found.append(Found(tokens[count], starts[count], count))
            count = starts[count]
        return found[::-1]

    def _merged(self, text: str) -> list[Found]:
        """Byte-pair encoding's: two neighbours after the other become one, the likeliest first."""
        parts: list[str] = list(text)  # those that were merged into the one before are empty
        after, before = list(range(1, len(parts) + 1)), list(range(-1, len(parts) - 1))
        pairs: list[tuple[float, int, str]] = []

        def suggest(place: int) -> None:
            if place >= 0 and after[place] < len(parts):
                merged = parts[place] + parts[after[place]]
                if merged in self._tokens:
                    heappush(pairs, (-self.vocabulary.scores[self._tokens[merged]], place, merged))

        for place in range(len(parts)):
            suggest(place)
        while pairs:
            _, place, merged = heappop(pairs)
            other = after[place]
            if not parts[place] or other >= len(parts) or parts[place] + parts[other] != merged:
                continue
            parts[place], parts[other], after[place] = merged, "", after[other]
            if after[place] < len(parts):
                before[after[place]] = place
            suggest(place)
            suggest(before[place])
        ends = accumulate(map(len, parts))
        unknown = self.vocabulary.unknown
        return [
            Found(self._tokens.get(p, unknown), end - len(p), end) for p, end in zip(parts, ends, strict=True) if p
        ]


class SentencePieceTokenizer:
    """The tokenizer of a folder of Marian's: see `capsule_mt.text.tokenizer.Tokenizer`.

    size: how many tokens there are, with those beside the pieces.
    """

    language_tokens: Sequence[str] = ()

    def __init__(self, source: SentencePieces, target: SentencePieces, size: int) -> None:
        self._source = Segmenter(source)
        self._target = self._source if target is source else Segmenter(target)
        self._end, self.unknown_id = source.end, source.unknown
        self.special_ids = frozenset({self._end, size - 1})
        self.vocabulary_sizes = (size, size)

    def encode(self, text: str) -> Encoded:
        pieces = self._source.pieces_of(text)
        tokens = [token for token, _, _ in pieces]
        offsets = [(start, end) if start < end else None for _, start, end in pieces]
        return Encoded([*tokens, self._end], [*offsets, None])

    def encode_target(self, text: str) -> list[int]:
        return [*(one.token for one in self._target.pieces_of(text)), self._end]

    def decode(self, ids: Sequence[int]) -> str:
        return self._target.text_of([token for token in ids if token < len(self._target.vocabulary.texts)])
