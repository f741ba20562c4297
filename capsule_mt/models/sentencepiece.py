"""SentencePiece models (.spm): read without the library of that name, and text encoded as it does, but for ties.

A .spm file is a protobuf message `ModelProto`: pieces with scores, how text is normalised, how it was trained.
"""

import math
import os
import re
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple, TypeVar, overload

from capsule_mt.engine.library import PieceTable, read_pieces
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.opening import read_file
from capsule_mt.models.weights import CheckpointError

SPACE = "\u2581"
MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNMATCHED = frozenset(range(256)) - {NORMAL, USER_DEFINED}  # kinds of pieces that text is not cut into
# the library's search for the largest score starts here, not at -inf; scores, which are logarithms, are rarely larger
SMALLEST_FLOAT = 2.0**-126
MAX_PART_LENGTH = 32  # characters that the map may replace at once; Unicode's compositions are shorter
MAX_REPLACEMENT = 1024  # bytes: Unicode's longest has 33; each character of a text may become one
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
# the score of a character without a piece is this much below the lowest score of any piece
UNKNOWN_PENALTY = 10.0
Span = tuple[int, int]  # of characters: start, end
Value = TypeVar("Value")


class PieceTexts(Sequence[str]):
    """The texts of pieces, decoded on request: a translation needs few of them.

    content: the texts in UTF-8, each with a zero at its end.
    starts: [pieces + 1], where each begins, and where the last one ends.
    """

    def __init__(self, content: bytearray, starts: "array[int]") -> None:
        self.content, self.starts = content, starts

    def append(self, text: bytes) -> None:
        self.content += text + b"\0"
        self.starts.append(len(self.content))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        number = range(len(self))[index]
        return self.content[self.starts[number] : self.starts[number + 1] - 1].decode()

    def __iter__(self) -> Iterator[str]:
        if self.content.count(0) == len(self):  # decode them all at once
            return iter(self.content.decode().split("\0")[:-1])
        return map(self.__getitem__, range(len(self)))


class SentencePieceModel(NamedTuple):
    """What a .spm file says: texts, scores and kinds (such as `NORMAL`) of its pieces, by their index.

    charsmap: the map of the normalisation, empty if characters other than spaces stay as they are.
    """

    file: str
    texts: PieceTexts
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
        UnsupportedModelError: a vocabulary that does not write the space before a word.
    """
    file = os.fspath(file)
    content = read_file(file)
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    try:
        texts_content, starts, scores, kinds, offset = read_pieces(content)
        texts_content.decode()  # refuse what is not UTF-8
        texts = PieceTexts(texts_content, starts)
        for field, value in _fields(content[offset:]):
            if field == 1:
                piece = dict(_fields(value))
                texts.append(piece.get(1, b"").decode().encode())
                scores.extend(struct.unpack("<f", piece.get(2, bytes(4))))
                kinds.append(piece.get(3, NORMAL))
            elif field == 2:
                trainer = dict(_fields(value))
            elif field == 3:
                normalizer = dict(_fields(value))
        charsmap = bytes(memoryview(normalizer.get(2, b"")))
    except (AttributeError, IndexError, TypeError, ValueError, struct.error):
        raise CheckpointError(f"{file}: is not a SentencePiece model, or it is damaged") from None
    if not math.isfinite(sum(scores)):  # of float32 in double precision: finite ones do not overflow
        raise CheckpointError(f"{file}: has pieces with scores that are not finite")
    if kinds.count(UNKNOWN) != 1:
        raise CheckpointError(
            f"{file}: is not a SentencePiece model: exactly one of its pieces must be the unknown one"
        )
    model_type = MODEL_TYPES.get(trainer.get(3, 1))
    if model_type is None:
        raise CheckpointError(f"{file}: `model_type` must be one of {MODEL_TYPES}, got {shown(trainer[3])}")
    if trainer.get(24) or not normalizer.get(5, True):
        raise UnsupportedModelError(
            f"{file}: writes the space after a word, or not at all; only vocabularies that write it before are read"
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
    """Cuts text into the pieces of a vocabulary.

    table: the indices of all pieces, by their texts.
    byte_fallback: whether a character that the vocabulary lacks becomes its bytes.

    If the scores of two segmentations differ by no more than the rounding of float32, as for "m mm" and "mm m", the
    library may choose the other.
    """

    def __init__(self, model: SentencePieceModel) -> None:
        if model.model_type not in ("unigram", "bpe"):
            raise UnsupportedModelError(
                f"{model.file}: a vocabulary of type {shown(model.model_type)} is not read, only 'unigram' and 'bpe'"
            )
        if NORMAL not in model.kinds:
            raise CheckpointError(f"{model.file}: has no pieces")
        self._model, self._normaliser = model, Normaliser(model)
        self._scores = scores_of(model)
        wide_scores = self._scores if self._scores.typecode == "d" else None
        texts = model.texts
        try:
            self.table = PieceTable(
                texts.content, texts.starts, model.kinds, model.scores, wide_scores, UNKNOWN_PENALTY
            )
        except ValueError as error:
            raise CheckpointError(f"{model.file}: {error}") from None
        symbols = symbols_of(model)
        self._symbols, self._symbol_pattern = frozenset(symbols), longest_of(symbols)
        self.byte_fallback = model.byte_fallback
        self._segment = self._unigram if model.model_type == "unigram" else self._byte_pair_encoding
        # whether each word has the same pieces beside any neighbours
        self._by_words = (
            model.add_dummy_prefix
            and model.remove_extra_whitespaces
            and self._matched(SPACE) >= 0
            and not self.table.has_inner_spaces
            and not any(SPACE in text or " " in text for text in symbols)
        )

    def words_of(self, text: str) -> list[str]:
        """Return the parts of a text, with one space between two, that can be encoded one by one."""
        return text.split(" ") if self._by_words else [text]

    def encode(self, text: str) -> tuple[list[str], list[Span]]:
        """Return the pieces of a text, and the span of characters that each stands for.

        Adjacent characters that the vocabulary lacks become one piece, or bytes if the model falls back to these.
        """
        pieces: list[str] = []
        spans: list[Span] = []
        offset = 0
        for word in self.words_of(text):
            word_pieces, word_spans = self.encode_word(word)
            pieces += word_pieces
            spans += [(offset + start, offset + end) for start, end in word_spans]
            offset += len(word) + 1
        return pieces, spans

    def token_of(self, piece: str) -> int | None:
        """Return the index of a piece that text is cut into, or of a byte piece; `None` for any other text."""
        index = self.table.find(piece)
        return index if index is not None and self._model.kinds[index] in (NORMAL, USER_DEFINED, BYTE) else None

    def _matched(self, piece: str) -> int:
        """Return the index of a piece that text is cut into, -1 for other texts."""
        index = self.table.find(piece)
        return -1 if index is None or self._model.kinds[index] in UNMATCHED else index

    def encode_word(self, text: str) -> tuple[list[str], list[Span]]:
        """Return the pieces of one of `words_of` and their spans."""
        normalised, source_spans = self._normaliser(text)
        pieces: list[str] = []
        spans: list[Span] = []
        end, is_unknown = 0, False
        for length, index in self._segment(normalised):
            start, end = end, end + length
            piece = normalised[start:end]
            first, last = source_spans[start][0], source_spans[end - 1][1]
            was_unknown, is_unknown = is_unknown, index < 0
            if is_unknown and self.byte_fallback:
                byte_pieces = [f"<0x{byte:02X}>" for byte in piece.encode("utf-8", "replace")]
                pieces += byte_pieces
                spans += [(first, last)] * len(byte_pieces)
            elif is_unknown and was_unknown:
                pieces[-1] += piece
                spans[-1] = (spans[-1][0], last)
            else:
                pieces.append(piece)
                spans.append((first, last))
        return pieces, spans

    def _unigram(self, text: str) -> Iterable[tuple[int, int]]:
        """Yield the length and the index, -1 if unknown, of the pieces with the largest sum of log-probabilities."""
        return zip(*self.table.segment(text), strict=True)

    def _byte_pair_encoding(self, text: str) -> Iterable[tuple[int, int]]:
        """Yield the same for byte-pair encoding: the pair with the best score merges first, of equal ones the left.

        The user's symbols are cut out first, and are never part of a longer piece.
        """
        from heapq import heappop, heappush  # late: most models are unigram models

        parts = self._letters(text)  # a part that was merged into its left neighbour is empty
        symbols = self._symbols
        following, preceding = list(range(1, len(parts) + 1)), list(range(-1, len(parts) - 1))
        pairs: list[tuple[float, int, str]] = []

        def suggest(index: int) -> None:
            if index >= 0 and following[index] < len(parts):
                left_part, right_part = parts[index], parts[following[index]]
                merged = left_part + right_part
                piece = self._matched(merged)
                if piece >= 0 and left_part not in symbols and right_part not in symbols:
                    heappush(pairs, (-self._scores[piece], index, merged))

        for index in range(len(parts)):
            suggest(index)
        while pairs:
            _, index, merged = heappop(pairs)
            right_index = following[index]
            if not parts[index] or right_index >= len(parts) or parts[index] + parts[right_index] != merged:
                continue  # the pair is outdated: one of its parts has merged with another since
            parts[index], parts[right_index], following[index] = merged, "", following[right_index]
            if following[index] < len(parts):
                preceding[following[index]] = index
            suggest(index)
            suggest(preceding[index])
        return ((len(part), self._matched(part)) for part in parts if part)

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


def of_kinds(model: SentencePieceModel, values: Iterable[Value], *kinds: int) -> Iterator[Value]:
    """Return those of some values, one for each piece, whose pieces are of these kinds; without a loop in Python."""
    return compress(values, model.kinds.translate(bytes(kind in kinds for kind in range(256))))


def scores_of(model: SentencePieceModel) -> "array[float]":
    """Return the score of each piece; of the user's symbols, the high ones that the library gives them."""
    if USER_DEFINED not in model.kinds:
        return model.scores
    scores = array("d", model.scores)
    best = max(SMALLEST_FLOAT, *of_kinds(model, scores, NORMAL))
    for index in indices_of(model, USER_DEFINED):
        scores[index] = len(model.texts[index].encode()) * best - 0.1
    return scores


def indices_of(model: SentencePieceModel, kind: int) -> list[int]:
    """Return the indices of the pieces of a kind that few pieces have; without a loop over all."""
    indices: list[int] = []
    index = model.kinds.find(kind)
    while index >= 0:
        indices.append(index)
        index = model.kinds.find(kind, index + 1)
    return indices


def symbols_of(model: SentencePieceModel) -> list[str]:
    """Return the user-defined pieces: they are cut out of every text before it is normalised."""
    return [text for index in indices_of(model, USER_DEFINED) if (text := model.texts[index])]


def longest_of(texts: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern that matches the longest of these texts at an offset; `None` without texts."""
    by_length = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, by_length))) if texts else None


def joined_pieces(pieces: list[str]) -> str:
    """Return the text of pieces, decoding those for bytes; the caller leaves out control pieces."""
    text = "".join(pieces)
    if "<0x" in text and BYTE_PIECE.search(text):
        parts = (BYTE_PIECE.fullmatch(piece) for piece in pieces)
        content = (
            bytes.fromhex(part[1]) if part else piece.encode() for part, piece in zip(parts, pieces, strict=True)
        )
        text = b"".join(content).decode("utf-8", "replace")
    return text.replace(SPACE, " ").strip(" ")


class Normaliser:
    """Replaces characters by the map of a model, and spaces by "\u2581".

    The map is a double-array trie (darts-clone) of UTF-8 strings, followed by what each becomes.
    """

    def __init__(self, model: SentencePieceModel) -> None:
        self._file, self._adds, self._removes = model.file, model.add_dummy_prefix, model.remove_extra_whitespaces
        self._symbol_pattern = longest_of(symbols_of(model))
        size = int.from_bytes(model.charsmap[:4], "little")
        if model.charsmap and (size % 4 or not 0 < size <= len(model.charsmap) - 4):
            raise CheckpointError(f"{model.file}: the map of its characters is damaged")
        self._trie = array("I", model.charsmap[4 : 4 + size])
        self._replacements = model.charsmap[4 + size :]
        self._unchanged: set[str] = set()  # ASCII characters that `_stays` has found to stay

    def __call__(self, text: str) -> tuple[str, list[Span]]:
        """Return the normalised text, and for each of its characters the span of `text` that became it."""
        adds, removes = self._adds, self._removes
        if self._symbol_pattern is None and self._is_unchanged(text):  # as most words are
            spans = [(offset, offset + 1) for offset in range(len(text))]
            return (SPACE + text, [(0, 0), *spans]) if adds and text else (text, spans)
        parts = [(part, span) for part, span in self._parts(text) if part]
        while removes and parts and parts[0][0] == " ":
            del parts[0]
        if not parts:
            return "", []
        first = parts[0][1][0]
        characters, spans = ([SPACE], [(first, first)]) if adds else ([], [])
        after_space = removes
        for part, span in parts:
            stripped = part.lstrip(" ") if after_space else part
            characters += stripped
            spans += [span] * len(stripped)
            after_space = removes and stripped.endswith(" ") if stripped else after_space
        normalised = "".join(characters).replace(" ", SPACE)
        length = len(normalised.rstrip(SPACE)) if removes else len(normalised)
        return normalised[:length], spans[:length]

    def _is_unchanged(self, text: str) -> bool:
        return self._unchanged.issuperset(text) or (text.isascii() and all(map(self._stays, text)))

    def _stays(self, character: str) -> bool:
        """Return whether the map has no part that begins with this ASCII character and has only ASCII characters."""
        stays = character in self._unchanged or (character not in " \0" and self._lacks_ascii_parts(ord(character)))
        if stays:
            self._unchanged.add(character)
        return stays

    def _lacks_ascii_parts(self, byte: int) -> bool:
        trie = self._trie
        if not trie:
            return True
        try:
            node = _below(trie[0]) ^ byte
            unit = trie[node]
            if unit & 0x800000FF != byte:
                return True
            node ^= _below(unit)
            return not unit >> 8 & 1 and all(trie[node ^ other] & 0x800000FF != other for other in range(1, 128))
        except IndexError:  # `_replaced` names the fault
            return False

    def _parts(self, text: str) -> Iterator[tuple[str, Span]]:
        """Yield the replacement of each part of a text, and the part's span."""
        offset = 0
        while offset < len(text):
            symbol = self._symbol_pattern.match(text, offset) if self._symbol_pattern else None
            part, length = (symbol[0], len(symbol[0])) if symbol else self._replaced(text, offset)
            yield part, (offset, offset + length)
            offset += length

    def _replaced(self, text: str, offset: int) -> tuple[str, int]:
        """Return the replacement of the longest part from an offset on that the map has, and the part's length.

        A character that the map lacks stays as it is.
        """
        trie, replacement, length = self._trie, text[offset], 1
        if not trie:
            return replacement, length
        try:
            node = _below(trie[0])
            for end in range(offset, min(offset + MAX_PART_LENGTH, len(text))):
                for byte in text[end].encode("utf-8", "replace"):
                    node ^= byte
                    unit = trie[node]
                    if unit & 0x800000FF != byte:
                        return replacement, length
                    node ^= _below(unit)
                if unit >> 8 & 1:
                    start, length = trie[node] & 0x7FFFFFFF, end + 1 - offset
                    end_of_replacement = self._replacements.index(b"\0", start, start + MAX_REPLACEMENT)
                    replacement = self._replacements[start:end_of_replacement].decode()
        except (IndexError, ValueError):
            raise CheckpointError(f"{self._file}: the map of its characters is damaged") from None
        return replacement, length


def _below(unit: int) -> int:
    """Return where the children of a node are, as a darts-clone trie packs it."""
    return (unit >> 10) << ((unit & 512) >> 6)


# ---- protobuf
def _varint(content: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def raw_fields(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message with all their bytes, those of their tags and lengths included."""
    start = 0
    for field, _, end in _fields_and_ends(content):
        yield field, content[start:end]
        start = end


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: numbers, or bytes for strings, messages and floats."""
    return ((field, value) for field, value, _ in _fields_and_ends(content))


def _fields_and_ends(content: bytes) -> Iterator[tuple[int, Any, int]]:
    """Yield the fields of a message, and the offset at which each ends."""
    offset, size = 0, len(content)
    while offset < size:
        tag, offset = _varint(content, offset)
        kind = tag & 7
        if kind == 0:
            value: Any
            value, offset = _varint(content, offset)
        else:
            if kind == 2:
                length, offset = _varint(content, offset)
            else:
                length = {1: 8, 5: 4}[kind] if kind in (1, 5) else -1
            if length < 0 or offset + length > size:
                raise ValueError("a field is cut off")
            value = content[offset : offset + length]
            offset += length
        yield tag >> 3, value, offset
