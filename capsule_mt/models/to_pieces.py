"""A tokenizer.json as a SentencePiece vocabulary (.spm): the inverse of `piece_tokenizer.tokenizer_json`."""

import base64
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.piece_tokenizer import END, Pieces, tokenizer_json
from capsule_mt.models.sentencepiece import BYTE, BYTE_PIECE, CONTROL, NORMAL, UNKNOWN
from capsule_mt.models.weights import CheckpointError, read_json

BEGIN = "<s>"  # of vocabularies that were not made for Marian


def write_pieces(tokenizer_file: str, out: str, size: int) -> None:
    """Write the first `size` tokens of a tokenizer.json, which are a model's, as the vocabulary `out`.

    Raises:
        UnsupportedModelError: it is not a SentencePiece vocabulary of the kind unigram, which is all that is written.
    """
    found = read_json(tokenizer_file)
    refused = UnsupportedModelError(
        f"{tokenizer_file}: is not a SentencePiece vocabulary of the kind unigram, and no other becomes Marian's .spm"
    )
    try:
        content = b"".join(_fields_of(found, size))
        wanted = _what_decides(found)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, struct.error):
        raise refused from None
    with open(f"{out}.part", "wb") as stream:
        stream.write(content)
    try:
        is_same = _what_decides(tokenizer_json(Pieces(f"{out}.part"), len(found["model"]["vocab"]))) == wanted
    except (CheckpointError, UnsupportedModelError):
        is_same = False
    if not is_same:
        os.remove(f"{out}.part")
        raise refused
    os.replace(f"{out}.part", out)


def _what_decides(tokenizer: Mapping[str, Any]) -> list[Any]:
    """Return what decides on the tokens of a text; `tokenizers` writes the last digits of scores in its own way."""
    model = tokenizer["model"]
    vocabulary = [(text, struct.pack("<f", score)) for text, score in model["vocab"]]
    return [tokenizer.get("normalizer"), tokenizer.get("pre_tokenizer"), {**model, "vocab": vocabulary}]


def _fields_of(tokenizer: Mapping[str, Any], size: int) -> Iterator[bytes]:
    """Yield the fields of the message `ModelProto`."""
    model, byte_fallback = tokenizer["model"], bool(tokenizer["model"]["byte_fallback"])
    for place, (text, score) in enumerate(model["vocab"][:size]):
        kind = UNKNOWN if place == model["unk_id"] else CONTROL if text in (END, BEGIN) else NORMAL
        if byte_fallback and BYTE_PIECE.fullmatch(text):
            kind = BYTE
        piece = _bytes(1, text.encode()) + b"\x15" + struct.pack("<f", score)
        yield _bytes(1, piece + (b"" if kind == NORMAL else _number(3, kind)))
    steps = (tokenizer.get("normalizer") or {}).get("normalizers", ())
    charsmaps = [base64.b64decode(step["precompiled_charsmap"]) for step in steps if step["type"] == "Precompiled"]
    (spaces,) = (one for one in tokenizer["pre_tokenizer"]["pretokenizers"] if one["type"] == "Metaspace")
    yield _bytes(2, _number(3, 1) + _number(35, byte_fallback))
    normalizer = [_bytes(2, charsmap) for charsmap in charsmaps]
    normalizer.append(_number(3, spaces["prepend_scheme"] == "always"))
    normalizer.append(_number(4, any(step["type"] == "Replace" for step in steps)))
    yield _bytes(3, b"".join(normalizer))


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
