"""SentencePiece models (.spm): read without the library of that name, and text encoded as it does.

A .spm file is a protobuf message `ModelProto`: pieces with scores, how text is normalised, how it was trained.
"""

import math
import os
import re
import struct
from array import array
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.weights import CheckpointError

SPACE = "\u2581"
MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
# where the library's search for the likeliest piece begins; scores, which are logarithms, are rarely larger
SMALLEST_FLOAT = 2.0**-126
LONGEST_PART = 32  # characters that the map may replace at once; Unicode's compositions are shorter
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
# how much less likely than the least likely piece a character is that no piece has
UNKNOWN_PENALTY = 10.0
MOST_WORDS, LONGEST_WORD = 50_000, 40  # that are kept
Offset = tuple[int, int]


class SentencePieceModel(NamedTuple):
    """What a .spm file says: texts, scores and kinds of its pieces, such as `NORMAL`; the number of each is its place.

    charsmap: empty where text stays as it is.
    """

    file: str
    texts: list[str]
    scores: "array[float]"
    kinds: bytearray
    model_type: str = "unigram"
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    byte_fallback: bool = False


def read_sentencepiece(file: str | os.PathLike[str]) -> SentencePieceModel:
    """Read a .spm file.

    Raises:
        CheckpointError: a file that is damaged, or of another kind.
        UnsupportedModelError: a vocabulary that writes the space after a word, or not at all.
    """
    file = os.fspath(file)
    if not os.path.isfile(file):
        raise CheckpointError(f"{file}: no such file")
    with open(file, "rb") as stream:
        content = stream.read()
    texts, scores, kinds = list[str](), array("f"), bytearray()
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    try:
        rest = _read_pieces(content, texts, scores, kinds)
        for number, value in _fields(content[rest:]):
            if number == 1:
                piece = dict(_fields(value))
                texts.append(piece.get(1, b"").decode())
                scores.extend(struct.unpack("<f", piece.get(2, bytes(4))))
                kinds.append(piece.get(3, NORMAL))
            elif number == 2:
                trainer = dict(_fields(value))
            elif number == 3:
                normalizer = dict(_fields(value))
        charsmap = bytes(memoryview(normalizer.get(2, b"")))
    except (AttributeError, IndexError, TypeError, ValueError, struct.error):
        raise CheckpointError(f"{file}: is not a SentencePiece model, or it is damaged") from None
    if not all(map(math.isfinite, scores)):
        raise CheckpointError(f"{file}: has pieces with scores that are not finite")
    if kinds.count(UNKNOWN) != 1:
        raise CheckpointError(
            f"{file}: is not a SentencePiece model: exactly one of its pieces must be the unknown one"
        )
    model_type = MODEL_TYPES.get(trainer.get(3, 1))
    if model_type is None:
        raise CheckpointError(f"{file}: `model_type` must be one of {MODEL_TYPES}, got {trainer[3]!r}")
    if trainer.get(24) or not normalizer.get(5, True):
        raise UnsupportedModelError(
            f"{file}: a vocabulary that writes the space after a word, or not at all, is unknown"
        )
    return SentencePieceModel(
        file,
        texts,
        scores,
        kinds,
        model_type,
        charsmap,
        add_dummy_prefix=bool(normalizer.get(3, True)),
        remove_extra_whitespaces=bool(normalizer.get(4, True)),
        byte_fallback=bool(trainer.get(35, False)),
    )


class SentencePieceEncoder:
    """Cuts text into the pieces of a vocabulary; words that came before are looked up.

    places: the number of each piece that text is cut into, but for bytes.

    Of two segmentations whose scores are equal up to the rounding of float32, such as "m mm" and "mm m", it may take
    the other one than the library: 2 of 30,000 lines.
    """

    def __init__(self, model: SentencePieceModel) -> None:
        if model.model_type not in ("unigram", "bpe"):
            raise UnsupportedModelError(
                f"{model.file}: a vocabulary of type {model.model_type!r}, only 'unigram' and 'bpe'"
            )
        normal = [score for score, kind in zip(model.scores, model.kinds, strict=True) if kind == NORMAL]
        if not normal:
            raise CheckpointError(f"{model.file}: has no pieces")
        self._normaliser = Normaliser(model)
        self.places = {text: n for n, text in enumerate(model.texts) if model.kinds[n] in (NORMAL, USER_DEFINED)}
        self._scores = scores_of(model)
        symbols = symbols_of(model)
        self._symbols, self._symbol_pattern = frozenset(symbols), longest_of(symbols)
        self._longest = max(map(len, self.places))
        self._unknown_score = min(normal) - UNKNOWN_PENALTY
        self._byte_fallback = model.byte_fallback
        self._segment = self._likeliest if model.model_type == "unigram" else self._merged
        # whether the pieces of a word do not depend on its neighbours
        self._by_words = (
            model.add_dummy_prefix
            and model.remove_extra_whitespaces
            and SPACE in self.places
            and not any(SPACE in text[1:] for text in self.places)
            and not any(SPACE in text or " " in text for text in symbols)
        )
        self._words: dict[str, tuple[list[str], list[Offset]]] = {}

    def encode(self, text: str) -> tuple[list[str], list[Offset]]:
        """Return the pieces of a text, and the characters that each stands for.

        What the vocabulary lacks is one piece as it is in the text, or its bytes where the model has pieces for them.
        """
        if not self._by_words:
            return self._pieces_of(text)
        pieces: list[str] = []
        offsets: list[Offset] = []
        place = 0
        for word in text.split(" "):
            found, places = self._words.get(word) or self._keep(word)
            pieces += found
            offsets += [(place + start, place + end) for start, end in places]
            place += len(word) + 1
        return pieces, offsets

    def _keep(self, word: str) -> tuple[list[str], list[Offset]]:
        found = self._pieces_of(word)
        if len(word) <= LONGEST_WORD:
            if len(self._words) >= MOST_WORDS:
                self._words.clear()
            self._words[word] = found
        return found

    def _pieces_of(self, text: str) -> tuple[list[str], list[Offset]]:
        normalised, places = self._normaliser(text)
        pieces: list[str] = []
        offsets: list[Offset] = []
        end, is_unknown = 0, False
        for piece in self._segment(normalised):
            start, end = end, end + len(piece)
            first, last = places[start][0], places[end - 1][1]
            was_unknown, is_unknown = is_unknown, piece not in self.places
            if is_unknown and self._byte_fallback:
                content = [f"<0x{byte:02X}>" for byte in piece.encode("utf-8", "replace")]
                pieces += content
                offsets += [(first, last)] * len(content)
            elif is_unknown and was_unknown:
                pieces[-1] += piece
                offsets[-1] = (offsets[-1][0], last)
            else:
                pieces.append(piece)
                offsets.append((first, last))
        return pieces, offsets

    def _likeliest(self, text: str) -> list[str]:
        """The pieces of the unigram model: the sum of their log-probabilities is the largest."""
        places, scores, longest, count = self.places, self._scores, self._longest, len(text)
        best, starts = [float("-inf")] * (count + 1), [0] * (count + 1)
        best[0] = 0.0
        for start in range(count):
            so_far = best[start]
            for end in range(start + 1, min(start + longest, count) + 1):
                piece = places.get(text[start:end])
                if piece is not None and so_far + scores[piece] > best[end]:
                    best[end], starts[end] = so_far + scores[piece], start
            if text[start] not in places and so_far + self._unknown_score > best[start + 1]:
                best[start + 1], starts[start + 1] = so_far + self._unknown_score, start
        pieces = []
        while count:
            pieces.append(text[starts[count] : count])
            count = starts[count]
        return pieces[::-1]

    def _merged(self, text: str) -> list[str]:
        """The pieces of byte-pair encoding: neighbours become one, the likeliest first, of equal ones the left.

        The user's symbols are cut out first, and are never part of a longer piece.
        """
        parts = self._letters(text)  # those that were merged into the one before are empty
        symbols = self._symbols
        after, before = list(range(1, len(parts) + 1)), list(range(-1, len(parts) - 1))
        pairs: list[tuple[float, int, str]] = []

        def suggest(place: int) -> None:
            if place >= 0 and after[place] < len(parts):
                left, right = parts[place], parts[after[place]]
                merged = left + right
                if merged in self.places and left not in symbols and right not in symbols:
                    heappush(pairs, (-self._scores[self.places[merged]], place, merged))

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
        return [part for part in parts if part]

    def _letters(self, text: str) -> list[str]:
        """Return the characters of a text, and each of the user's symbols as a whole."""
        if self._symbol_pattern is None:
            return list(text)
        letters: list[str] = []
        end = 0
        for symbol in self._symbol_pattern.finditer(text):
            letters += [*text[end : symbol.start()], symbol[0]]
            end = symbol.end()
        return [*letters, *text[end:]]


def scores_of(model: SentencePieceModel) -> "array[float]":
    """Return the score of each piece; the user's symbols win over any others, as the library scores them."""
    scores = array("d", model.scores)
    if USER_DEFINED not in model.kinds:
        return scores
    best = max(SMALLEST_FLOAT, *(score for score, kind in zip(scores, model.kinds, strict=True) if kind == NORMAL))
    for index, text in enumerate(model.texts):
        if model.kinds[index] == USER_DEFINED:
            scores[index] = len(text.encode()) * best - 0.1
    return scores


def symbols_of(model: SentencePieceModel) -> list[str]:
    """Return the pieces that the user has defined: they are found in every text, and not normalised."""
    return [text for text, kind in zip(model.texts, model.kinds, strict=True) if kind == USER_DEFINED and text]


def longest_of(texts: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds the longest of these texts at a place of another one; `None` without texts."""
    by_length = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, by_length))) if texts else None


def joined_pieces(pieces: list[str]) -> str:
    """Return the text of pieces, among which there may be bytes; other control pieces are to be left out before."""
    text = "".join(pieces)
    if BYTE_PIECE.search(text):
        parts = (BYTE_PIECE.fullmatch(piece) for piece in pieces)
        content = (
            bytes.fromhex(part[1]) if part else piece.encode() for part, piece in zip(parts, pieces, strict=True)
        )
        text = b"".join(content).decode("utf-8", "replace")
    return text.replace(SPACE, " ").strip(" ")


class Normaliser:
    """Replaces characters by the map of a model, and spaces by "\u2581".

    The map is a double-array trie (darts-clone) of UTF-8 strings, and behind it what each becomes.
    """

    def __init__(self, model: SentencePieceModel) -> None:
        self._file, self._adds, self._removes = model.file, model.add_dummy_prefix, model.remove_extra_whitespaces
        self._symbol_pattern = longest_of(symbols_of(model))
        size = int.from_bytes(model.charsmap[:4], "little")
        if model.charsmap and (size % 4 or not 0 < size <= len(model.charsmap) - 4):
            raise CheckpointError(f"{model.file}: the map of its characters is damaged")
        self._trie = array("I", model.charsmap[4 : 4 + size])
        self._replacements = model.charsmap[4 + size :]

    def __call__(self, text: str) -> tuple[str, list[Offset]]:
        """Return the normalised text, and the characters that each of its own is made of."""
        adds, removes = self._adds, self._removes
        parts = [(part, place) for part, place in self._parts(text) if part]
        while removes and parts and parts[0][0] == " ":
            del parts[0]
        if not parts:
            return "", []
        first = parts[0][1][0]
        characters, places = ([SPACE], [(first, first)]) if adds else ([], [])
        after_space = removes
        for part, place in parts:
            kept = part.lstrip(" ") if after_space else part
            characters += kept
            places += [place] * len(kept)
            after_space = removes and kept.endswith(" ") if kept else after_space
        found = "".join(characters).replace(" ", SPACE)
        length = len(found.rstrip(SPACE)) if removes else len(found)
        return found[:length], places[:length]

    def _parts(self, text: str) -> Iterator[tuple[str, Offset]]:
        """Yield what parts of a text become, and the characters of each."""
        place = 0
        while place < len(text):
            symbol = self._symbol_pattern.match(text, place) if self._symbol_pattern else None
            part, length = (symbol[0], len(symbol[0])) if symbol else self._replaced(text, place)
            yield part, (place, place + length)
            place += length

    def _replaced(self, text: str, place: int) -> tuple[str, int]:
        """Return what the longest part of a text from a place on becomes that is in the map, and its length.

        A character that is not in the map stays as it is.
        """
        trie, found, length = self._trie, text[place], 1
        if not trie:
            return found, length
        try:
            node = _below(trie[0])
            for end in range(place, min(place + LONGEST_PART, len(text))):
                for byte in text[end].encode("utf-8", "replace"):
                    node ^= byte
                    unit = trie[node]
                    if unit & 0x800000FF != byte:
                        return found, length
                    node ^= _below(unit)
                if unit >> 8 & 1:
                    start, length = trie[node] & 0x7FFFFFFF, end + 1 - place
                    found = self._replacements[start : self._replacements.index(b"\0", start)].decode()
        except (IndexError, ValueError):
            raise CheckpointError(f"{self._file}: the map of its characters is damaged") from None
        return found, length


def _below(unit: int) -> int:
    """Return where the children of a node are, as a darts-clone trie packs it."""
    return (unit >> 10) << ((unit & 512) >> 6)


# ---- protobuf
def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number that is too long")


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: numbers, or bytes for strings, messages and floats."""
    place, size = 0, len(content)
    while place < size:
        tag, place = _varint(content, place)
        kind = tag & 7
        if kind == 0:
            value: Any
            value, place = _varint(content, place)
        else:
            if kind == 2:
                length, place = _varint(content, place)
            else:
                length = {1: 8, 5: 4}[kind] if kind in (1, 5) else -1
            if length < 0 or place + length > size:
                raise ValueError("a field that is cut off")
            value = content[place : place + length]
            place += length
        yield tag >> 3, value


def _read_pieces(content: bytes, texts: list[str], scores: "array[float]", kinds: bytearray) -> int:
    """Read pieces as they nearly all are, in a tenth of the time; return where the first other field begins.

    A string, a float and perhaps a kind, all shorter than 128 bytes, whose lengths are single bytes.
    """
    place, numbers, end = 0, bytearray(), len(content) - 8
    while place < end and content[place] == content[place + 2] == 0x0A and content[place + 1] < 128:
        length, begin = content[place + 1], place + 4
        stop = begin + content[place + 3]
        has_kind = length == stop - place + 5
        if content[stop] != 0x15 or not (has_kind or length == stop - place + 3):
            break
        if has_kind and (content[stop + 5] != 0x18 or content[stop + 6] > 127):
            break
        texts.append(content[begin:stop].decode())
        numbers += content[stop + 1 : stop + 5]
        kinds.append(content[stop + 6] if has_kind else NORMAL)
        place += 2 + length
    scores.extend(number for (number,) in struct.iter_unpack("<f", numbers))
    return place
