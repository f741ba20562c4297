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

BEGIN = "<s>"  # a control piece that SentencePiece adds by default


def write_pieces(tokenizer_file: str, out: str, size: int) -> None:
    """Write the first `size` tokens of a tokenizer.json, those of the model, as the vocabulary `out`.

    Raises:
        UnsupportedModelError: what a SentencePiece vocabulary of the kind unigram, the only kind written, cannot hold.
    """
    tokenizer = read_json(tokenizer_file)
    refused = UnsupportedModelError(
        f"{tokenizer_file}: is not a SentencePiece vocabulary of the kind unigram, and no other becomes Marian's .spm"
    )
    try:
        content = b"".join(_fields_of(tokenizer, size))
        expected = _segmentation_fields(tokenizer)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, struct.error):
        raise refused from None
    with open(f"{out}.part", "wb") as stream:
        stream.write(content)
    # read the file back: a tokenizer.json with anything that a .spm cannot say comes back different
    try:
        written = tokenizer_json(Pieces(f"{out}.part"), len(tokenizer["model"]["vocab"]))
        is_same = _segmentation_fields(written) == expected
    except (CheckpointError, UnsupportedModelError):
        is_same = False
    if not is_same:
        os.remove(f"{out}.part")
        raise refused
    os.replace(f"{out}.part", out)


def _segmentation_fields(tokenizer: Mapping[str, Any]) -> list[Any]:
    """Return what decides on the pieces of a text, with scores in float32: `tokenizers` writes other last digits."""
    model = tokenizer["model"]
    vocabulary = [(text, struct.pack("<f", score)) for text, score in model["vocab"]]
    return [tokenizer.get("normalizer"), tokenizer.get("pre_tokenizer"), {**model, "vocab": vocabulary}]


def _fields_of(tokenizer: Mapping[str, Any], size: int) -> Iterator[bytes]:
    """Yield the fields of the message `ModelProto`."""
    model, byte_fallback = tokenizer["model"], bool(tokenizer["model"]["byte_fallback"])
    for index, (text, score) in enumerate(model["vocab"][:size]):
        kind = UNKNOWN if index == model["unk_id"] else CONTROL if text in (END, BEGIN) else NORMAL
        if byte_fallback and BYTE_PIECE.fullmatch(text):
            kind = BYTE
        piece = _bytes(1, text.encode()) + b"\x15" + struct.pack("<f", score)
        yield _bytes(1, piece + (b"" if kind == NORMAL else _number(3, kind)))
    steps = (tokenizer.get("normalizer") or {}).get("normalizers", ())
    charsmaps = [base64.b64decode(step["precompiled_charsmap"]) for step in steps if step["type"] == "Precompiled"]
    (spaces,) = (step for step in tokenizer["pre_tokenizer"]["pretokenizers"] if step["type"] == "Metaspace")
    yield _bytes(2, _number(3, 1) + _number(35, byte_fallback))
    normalizer = [_bytes(2, charsmap) for charsmap in charsmaps]
    normalizer.append(_number(3, spaces["prepend_scheme"] == "always"))
    normalizer.append(_number(4, any(step["type"] == "Replace" for step in steps)))
    yield _bytes(3, b"".join(normalizer))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
