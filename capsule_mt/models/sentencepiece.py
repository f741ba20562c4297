"""SentencePiece models (.spm): read without the library of that name, and text encoded as it does.

A .spm file is a protobuf message `ModelProto`: pieces with scores, how text is normalised, how it was trained.
"""

import os
import re
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import Unigram

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.weights import CheckpointError

SPACE = "\u2581"
MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
NOT_PLAIN = re.compile(r"[^ -~]|  |^ | $")
NOT_ASCII = re.compile(r"[ -~]?[^ -~]+")
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
Offset = tuple[int, int]


class Piece(NamedTuple):
    """One entry of the vocabulary, whose number is its place; `kind` is `NORMAL`, `UNKNOWN`, ... of above."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieceModel:
    """What a .spm file says; `charsmap` is empty where text is not normalised."""

    file: str
    pieces: list[Piece]
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
    pieces: list[Piece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    try:
        for number, value in _fields(content):
            if number == 1:
                pieces.append(_piece(_bytes(value)))
            elif number == 2:
                trainer = dict(_fields(_bytes(value)))
            elif number == 3:
                normalizer = dict(_fields(_bytes(value)))
        charsmap = _bytes(normalizer.get(2, b""))
    except (ValueError, IndexError, struct.error):
        raise CheckpointError(f"{file}: is no SentencePiece model, or it is damaged") from None
    if sum(piece.kind == UNKNOWN for piece in pieces) != 1:
        raise CheckpointError(f"{file}: is no SentencePiece model: exactly one of its pieces must be the unknown one")
    model_type = MODEL_TYPES.get(_number(trainer.get(3, 1)))
    if model_type is None:
        raise CheckpointError(f"{file}: `model_type` must be one of {MODEL_TYPES}, got {trainer[3]!r}")
    if trainer.get(24) or not normalizer.get(5, True):
        raise UnsupportedModelError(
            f"{file}: a vocabulary that writes the space after a word, or not at all, is unknown"
        )
    return SentencePieceModel(
        file,
        pieces,
        model_type,
        charsmap,
        add_dummy_prefix=bool(normalizer.get(3, True)),
        remove_extra_whitespaces=bool(normalizer.get(4, True)),
        byte_fallback=bool(trainer.get(35, False)),
    )


class SentencePieceEncoder:
    """Cuts text into the pieces of a unigram vocabulary.

    Of two segmentations whose scores are equal up to the rounding of float32, such as "m mm" and "mm m", it may take
    the other one than the library: 2 of 30,000 lines.
    """

    def __init__(self, model: SentencePieceModel) -> None:
        if model.model_type != "unigram":
            raise UnsupportedModelError(f"{model.file}: a vocabulary of type {model.model_type!r}, only 'unigram'")
        normal = [piece.score for piece in model.pieces if piece.kind == NORMAL]
        if not normal:
            raise CheckpointError(f"{model.file}: has no pieces")
        self.model = model
        self._normaliser = Normaliser(model)
        longest_first = max(normal)  # user-defined pieces win over any others: so does the library score them
        scores = [
            (piece.text, piece.score if piece.kind == NORMAL else len(piece.text.encode()) * longest_first - 0.1)
            for piece in model.pieces
            if piece.kind in (NORMAL, USER_DEFINED)
        ]
        self._unigram = FastTokenizer(Unigram([("\0", min(normal)), *scores], 0))

    def encode(self, text: str) -> tuple[list[str], list[Offset]]:
        """Return the pieces of a text, and the characters that each stands for.

        What the vocabulary lacks is one piece as it is in the text, or its bytes where the model has pieces for them.
        """
        normalised, places = self._normaliser(text)
        encoding = self._unigram.encode(normalised)
        pieces: list[str] = encoding.tokens
        if places is None:
            offsets = [(max(start - 1, 0), end - 1) for start, end in encoding.offsets]
        else:
            offsets = [(places[start][0], places[end - 1][1]) for start, end in encoding.offsets]
        if not self.model.byte_fallback or 0 not in encoding.ids:
            return pieces, offsets
        found = []
        for piece, offset, number in zip(pieces, offsets, encoding.ids, strict=True):
            parts = [piece] if number else [f"<0x{byte:02X}>" for byte in piece.encode()]
            found += [(part, offset) for part in parts]
        return [piece for piece, _ in found], [offset for _, offset in found]


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
        self.model = model
        self._symbols = [piece.text for piece in model.pieces if piece.kind == USER_DEFINED and piece.text]
        size = int.from_bytes(model.charsmap[:4], "little")
        if model.charsmap and (size % 4 or not 0 < size <= len(model.charsmap) - 4):
            raise CheckpointError(f"{model.file}: the map of its characters is damaged")
        self._trie = array("I", model.charsmap[4 : 4 + size])
        self._replacements = model.charsmap[4 + size :]

    @cached_property
    def _keeps_ascii(self) -> bool:
        """Whether nothing happens to text of printable ASCII but to its spaces."""
        printable = [chr(code) for code in range(32, 127)]
        if any(symbol.isascii() for symbol in self._symbols):
            return False
        return all(self._replaced(one + other) is None for one in printable for other in printable)

    def __call__(self, text: str) -> tuple[str, list[Offset] | None]:
        """Return the normalised text, and the characters that each of its own is made of.

        `None` for these where the text has only been given the space before it.
        """
        adds, removes = self.model.add_dummy_prefix, self.model.remove_extra_whitespaces
        if adds and text and self._keeps_ascii and not NOT_PLAIN.search(text):
            return SPACE + text.replace(" ", SPACE), None
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
            if self._keeps_ascii:
                found = NOT_ASCII.search(text, place)
                plain = found.start() if found else len(text)
                yield from ((text[at], (at, at + 1)) for at in range(place, plain))
                place, last = plain, found.end() if found else plain
            else:
                last = len(text)
            while place < last:
                symbol = max((one for one in self._symbols if text.startswith(one, place)), key=len, default="")
                replaced = (symbol, len(symbol)) if symbol else self._replaced(text, place)
                part, length = replaced or (text[place], 1)
                yield part, (place, place + length)
                place += length

    def _replaced(self, text: str, place: int = 0) -> tuple[str, int] | None:
        """Return what the longest part of a text from a place on becomes that is in the map, and its length."""
        trie = self._trie
        if not trie:
            return None
        unit = trie[0]
        node, found = (unit >> 10) << ((unit & 512) >> 6), None
        for length, character in enumerate(text[place : place + 32], start=1):
            for byte in character.encode():
                node ^= byte
                if node >= len(trie):
                    raise CheckpointError(f"{self.model.file}: the map of its characters is damaged")
                unit = trie[node]
                if unit & 0x800000FF != byte:
                    return found and self._found(*found)
                node ^= (unit >> 10) << ((unit & 512) >> 6)
            if unit >> 8 & 1:
                found = (trie[node] & 0x7FFFFFFF, length)
        return found and self._found(*found)

    def _found(self, start: int, length: int) -> tuple[str, int]:
        end = self._replacements.find(b"\0", start)
        return self._replacements[start:end].decode("utf-8", "replace"), length


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


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: numbers, or bytes for strings, messages and floats."""
    place, size = 0, len(content)
    while place < size:
        tag, place = _varint(content, place)
        kind = tag & 7
        if kind == 0:
            value: int | bytes
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


def _piece(content: bytes) -> Piece:
    # nearly all of them: a string, a float and perhaps a kind, each of a single byte of length
    length = content[1]
    if content[0] == 0x0A and length < 128 and len(content) == length + 7 and content[length + 2] == 0x15:
        return Piece(content[2 : length + 2].decode(), struct.unpack_from("<f", content, length + 3)[0], NORMAL)
    fields = dict(_fields(content))
    (score,) = struct.unpack("<f", _bytes(fields.get(2, bytes(4))))
    return Piece(_bytes(fields[1]).decode() if 1 in fields else "", score, _number(fields.get(3, NORMAL)))


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number in the place of bytes")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("bytes in the place of a number")
    return value
