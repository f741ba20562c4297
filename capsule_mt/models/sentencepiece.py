"""SentencePiece vocabularies (`.spm`) without the package: its protobuf, and a tokenizer of `tokenizers` from it.

Of sentencepiece_model.proto these fields are read: pieces (1), trainer_spec (2), normalizer_spec (3) and
denormalizer_spec (5).
"""

import base64
import math
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.weights import CheckpointError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
KINDS = {1: "unigram", 2: "bpe"}
SPACE = "\u2581"
PAD = "<pad>"


class Piece(NamedTuple):
    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieces:
    """A vocabulary: its pieces, whose places are their numbers, and how text becomes pieces.

    kind: "unigram" or "bpe".
    charsmap: the normalisation, compiled; empty for none.
    """

    file: str
    pieces: Sequence[Piece]
    kind: str
    charsmap: bytes
    adds_prefix: bool
    removes_spaces: bool
    has_bytes: bool
    unknown: int
    end: int


def read_sentencepieces(file: str | os.PathLike[str]) -> SentencePieces:
    """Read a vocabulary; refuse what is not known of it."""
    file = os.fspath(file)
    if not os.path.isfile(file):
        raise CheckpointError(f"{file}: no such file")
    with open(file, "rb") as stream:
        content = stream.read()
    try:
        pieces, trainer, normalizer = _fields_of_model(file, content)
        return _checked(file, pieces, trainer, normalizer)
    except (struct.error, UnicodeDecodeError, IndexError, TypeError, AttributeError):
        raise CheckpointError(f"{file}: is no SentencePiece vocabulary, or it is damaged") from None


def _fields_of_model(file: str, content: bytes) -> tuple[list[Piece], dict[int, Any], dict[int, Any]]:
    pieces, trainer, normalizer = [], {}, {}
    for number, value in _fields(file, content):
        if number == 1:
            piece = dict(_fields(file, value))
            (score,) = struct.unpack("<f", piece.get(2, bytes(4)))
            pieces.append(Piece(piece[1].decode(), score, piece.get(3, NORMAL)))
        elif number == 2:
            trainer = dict(_fields(file, value))
        elif number == 3:
            normalizer = dict(_fields(file, value))
        elif number == 5 and dict(_fields(file, value)).get(2):
            raise UnsupportedModelError(f"{file}: `denormalizer_spec` is not known")
    return pieces, trainer, normalizer


def _fields(file: str, content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and the values of the fields of a message: whole numbers, or bytes."""
    place, end = 0, len(content)
    while place < end:
        tag, place = _varint(content, place)
        kind = tag & 7
        if kind == 0:
            value, place = _varint(content, place)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, place = _varint(content, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise CheckpointError(f"{file}: is no SentencePiece vocabulary")
        if place + size > end:
            raise CheckpointError(f"{file}: is cut off, or is no SentencePiece vocabulary")
        yield tag >> 3, content[place : place + size]
        place += size


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
    return value, place


def _checked(file: str, pieces: list[Piece], trainer: dict[int, Any], normalizer: dict[int, Any]) -> SentencePieces:
    kind = trainer.get(3, 1)
    if kind not in KINDS:
        raise UnsupportedModelError(f"{file}: `model_type` {kind} is not known, only 1 (unigram) and 2 (bpe)")
    for name, value, wanted in (
        ("treat_whitespace_as_suffix", trainer.get(24, 0), 0),
        ("escape_whitespaces", normalizer.get(5, 1), 1),
    ):
        if value != wanted:
            raise UnsupportedModelError(f"{file}: `{name}` {bool(value)} is not known, only {bool(wanted)}")
    if not pieces or not all(piece.text and math.isfinite(piece.score) for piece in pieces):
        raise CheckpointError(f"{file}: has no pieces, or pieces without a text or a score")
    places = {piece.text: place for place, piece in enumerate(pieces)}
    if len(places) != len(pieces):
        raise CheckpointError(f"{file}: has a piece twice")
    unknown = [place for place, piece in enumerate(pieces) if piece.kind == UNKNOWN]
    end = places.get("</s>", -1)
    if len(unknown) != 1 or end < 0 or pieces[end].kind != CONTROL:
        raise CheckpointError(f"{file}: needs one unknown piece and `</s>`")
    others = [piece.text for piece in pieces if piece.kind == USER_DEFINED]
    if others:
        raise UnsupportedModelError(f"{file}: `user_defined_symbols` {others[0]!r} is not known")
    return SentencePieces(
        file,
        pieces,
        KINDS[kind],
        charsmap=normalizer.get(2, b""),
        adds_prefix=bool(normalizer.get(3, 1)),
        removes_spaces=bool(normalizer.get(4, 1)),
        has_bytes=any(piece.kind == BYTE for piece in pieces),
        unknown=unknown[0],
        end=end,
    )


def tokenizer_json(vocabulary: SentencePieces, size: int) -> dict[str, Any]:
    """Return a tokenizer.json with the pieces of a vocabulary, filled up to `size` tokens; the last one pads.

    SentencePiece never finds its control pieces in a text; `tokenizers` would, and so they are split there.
    """
    pieces = [*vocabulary.pieces]
    pieces += [Piece(f"<unused {number}>", 0.0, UNUSED) for number in range(len(pieces), size - 1)]
    pieces.append(Piece(PAD, 0.0, CONTROL))
    end, pad = vocabulary.end, size - 1
    special = {end: pieces[end].text, vocabulary.unknown: pieces[vocabulary.unknown].text, pad: PAD}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    never = [piece.text for piece in pieces if piece.kind != NORMAL and len(piece.text) > 1]
    metaspace = {"type": "Metaspace", "replacement": SPACE, "split": True}
    metaspace["prepend_scheme"] = "always" if vocabulary.adds_prefix else "never"
    end_token = {"SpecialToken": {"id": pieces[end].text, "type_id": 0}}
    first, second = ({"Sequence": {"id": one, "type_id": 0}} for one in "AB")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": place, "content": text, **plain} for place, text in sorted(special.items())],
        "normalizer": _normalizer(vocabulary),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [metaspace, _splitter(never)]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, end_token],
            "pair": [first, end_token, second, end_token],
            "special_tokens": {
                pieces[end].text: {"id": pieces[end].text, "ids": [end], "tokens": [pieces[end].text]},
            },
        },
        "decoder": _decoder(vocabulary),
        "model": _model(vocabulary, pieces),
    }


def _splitter(texts: Sequence[str]) -> dict[str, Any]:
    """Split after the first letter of these texts."""
    rest: dict[str, list[str]] = {}
    for text in texts:
        rest.setdefault(text[0], []).append(re.escape(text[1:]))
    pattern = "|".join(f"{re.escape(first)}(?=(?:{'|'.join(ends)}))" for first, ends in rest.items())
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "MergedWithPrevious", "invert": False}


def _normalizer(vocabulary: SentencePieces) -> dict[str, Any] | None:
    steps: list[dict[str, Any]] = []
    if vocabulary.charsmap:
        charsmap = base64.b64encode(vocabulary.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if vocabulary.removes_spaces:
        steps.append({"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    return {"type": "Sequence", "normalizers": steps} if steps else None


def _decoder(vocabulary: SentencePieces) -> dict[str, Any]:
    scheme = "always" if vocabulary.adds_prefix else "never"
    if not vocabulary.has_bytes:
        return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    decoders = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": int(vocabulary.adds_prefix), "stop": 0},
    ]
    return {"type": "Sequence", "decoders": decoders}


def _model(vocabulary: SentencePieces, pieces: Sequence[Piece]) -> dict[str, Any]:
    if vocabulary.kind == "unigram":
        return {
            "type": "Unigram",
            "unk_id": vocabulary.unknown,
            "vocab": [[piece.text, piece.score] for piece in pieces],
            "byte_fallback": vocabulary.has_bytes,
        }
    places = {piece.text: place for place, piece in enumerate(pieces)}
    merged = (piece for piece in pieces if piece.kind == NORMAL)
    merges = [
        [piece.text[:middle], piece.text[middle:]]
        for piece in sorted(merged, key=lambda piece: -piece.score)
        for middle in range(1, len(piece.text))
        if piece.text[:middle] in places and piece.text[middle:] in places
    ]
    return {
        "type": "BPE",
        "vocab": places,
        "merges": merges,
        "unk_token": pieces[vocabulary.unknown].text,
        "fuse_unk": True,
        "byte_fallback": vocabulary.has_bytes,
    }
