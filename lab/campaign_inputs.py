"""What the campaign does to files and checkpoints, and the strings that it translates; all of it by a seed."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

WEIGHTS, CONFIGURATION, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
HOSTILE_JSON = ["", "[]", "null", "{", '"text"', "\x00" * 64, "[" * 100_000, "\ufeff{}", "{}"]
HOSTILE_SETTINGS: dict[str, list[Any]] = {
    "vocab_size": [10, 10**9, -1, "many", None],
    "d_model": [0, 7, 48, 10**9, "16", 1.5],
    "encoder_layers": [0, -1, 1, 9, 10**9, [2]],
    "decoder_layers": [0, 3, 10**9, {}],
    "encoder_attention_heads": [0, 3, 10**9],
    "decoder_start_token_id": [10**6, -5, "start"],
    "pad_token_id": [10**6, -2],
    "dropout": [float("nan"), -1.0, 1e308, "none"],
    "activation_function": ["nonsense", 3],
    "layer_aggregation": ["dynamic_routing", "nonsense", 1],
    "guided_routing": ["none", "nonsense"],
    "model_type": ["capsules", "", 3, "../../etc"],
    "layer_aggregation_num_iterations": [0, -1, 10**9],
    "max_position_embeddings": [0, -3, 17],
}
PIECES = [
    *("\u0301" * 800, "\u200d" * 700, "\ufe0f" * 700, "\u200b", "\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"),
    *("\x00", "\x01\x02\x1b[31m", "\r", "\t\t", "\ufeff", "\ufffe", "\u202e", "\U000e0041", "\U0010ffff", "\ue000"),
    *("\U0001f469\u200d\U0001f469\u200d\U0001f467", "\u0e33" * 300, "\u1160" * 400, "<pad></s><unk>"),
    *("x" * 3000, "the " * 700, ". " * 400, "?!" * 300, "\u00ad" * 200, '"' * 99, "||| ||| |||", "\u0344\u0345 " * 90),
    *("▁" * 50, "%s{}\\"),
]


def damage_file(file: Path, chance: random.Random) -> str:
    """Empty, cut or change a file; return in words what was done."""
    content = file.read_bytes()
    kind = chance.choice(["emptied", "cut", "changed"])
    place = chance.randrange(len(content))
    if kind == "changed":
        file.write_bytes(content[:place] + bytes([content[place] ^ chance.randint(1, 255)]) + content[place + 1 :])
    else:
        file.write_bytes(content[: place if kind == "cut" else 0])
    return f"{file.name} {kind} at byte {place} of {len(content)}"


def hostile_lines(plain: list[str], chance: random.Random) -> tuple[list[str], list[int]]:
    """Return hostile lines between the plain ones, and the numbers of the plain ones."""
    lines: list[str] = []
    places = []
    for text in plain:
        for _ in range(chance.randrange(3)):
            pieces = [chance.choice([chance.choice(PIECES), chance.choice(plain), _noise(chance)]) for _ in range(3)]
            lines.append("".join(pieces[: chance.randint(0, 3)]))
        places.append(len(lines))
        lines.append(text)
    return lines, places


def _noise(chance: random.Random) -> str:
    """Return some characters of one random block of Unicode, line feeds and surrogates apart."""
    first = chance.choice([0, 0x300, 0x600, 0xE00, 0x2000, 0x3000, 0xAC00, 0xFE00, 0x1F000, 0xE0000])
    characters = [chr(first + chance.randrange(256)) for _ in range(chance.randint(1, 40))]
    return "".join(characters).replace("\n", "")


def _tensors(change: Callable[[dict[str, torch.Tensor], str, random.Random], object]) -> Callable[..., str]:
    def damage(folder: Path, chance: random.Random) -> str:
        weights = load_file(folder / WEIGHTS)
        name = chance.choice(sorted(name for name, value in weights.items() if value.dim() == 2))
        change(weights, name, chance)
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
        return name

    return damage


def _set_number(number: float) -> Callable[[dict[str, torch.Tensor], str, random.Random], object]:
    return lambda weights, name, chance: weights[name].view(-1)[chance.randrange(weights[name].numel())].fill_(number)


def _cut(name: str) -> Callable[..., str]:
    def damage(folder: Path, chance: random.Random) -> str:
        content = (folder / name).read_bytes()
        kept = chance.randrange(len(content) - 2)  # a line feed or a bracket at the end
        (folder / name).write_bytes(content[:kept])
        return f"{kept} of {len(content)} bytes"

    return damage


def _header(folder: Path, chance: random.Random) -> str:
    content = (folder / WEIGHTS).read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    name = chance.choice(sorted(header.keys() - {"__metadata__"}))
    field, value = chance.choice(
        [
            ("dtype", "F7"), ("dtype", "I8"), ("dtype", None), ("shape", [2**40, 2**40]), ("shape", [-1]),
            ("shape", "wide"), ("data_offsets", [0, 2**60]), ("data_offsets", [9, 3]), ("data_offsets", []),
        ]
    )  # fmt: skip
    header[name][field] = value
    changed = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(len(changed).to_bytes(8, "little") + changed + content[8 + size :])
    return f"{name}: {field} {value}"


def _json(name: str) -> Callable[..., str]:
    def damage(folder: Path, chance: random.Random) -> str:
        text = chance.choice(HOSTILE_JSON)
        (folder / name).write_text(text, encoding="utf-8")
        return repr(text[:20])

    return damage


def _setting(folder: Path, chance: random.Random) -> str:
    settings = json.loads((folder / CONFIGURATION).read_text(encoding="utf-8"))
    name = chance.choice(sorted(settings.keys() & HOSTILE_SETTINGS.keys()))
    value = chance.choice([value for value in HOSTILE_SETTINGS[name] if value != settings[name]])
    (folder / CONFIGURATION).write_text(json.dumps(settings | {name: value}), encoding="utf-8")
    return f"{name}: {value}"


# each leaves nothing that could be loaded
MALFORMED: dict[str, Callable[[Path, random.Random], str]] = {
    "weights cut": _cut(WEIGHTS),
    "configuration cut": _cut(CONFIGURATION),
    "tokenizer cut": _cut(TOKENIZER),
    "header changed": _header,
    "configuration no object": _json(CONFIGURATION),
    "tokenizer no object": _json(TOKENIZER),
    "setting hostile": _setting,
    "tensor missing": _tensors(lambda weights, name, _: weights.pop(name)),
    "tensor renamed": _tensors(lambda weights, name, _: weights.update({f"{name}x": weights.pop(name)})),
    "tensor of another shape": _tensors(lambda weights, name, _: weights.update({name: torch.zeros(3, 5)})),
    "tensor of whole numbers": _tensors(
        lambda weights, name, _: weights.update({name: torch.zeros(weights[name].shape, dtype=torch.int8)})
    ),
    "tensor with NaN": _tensors(_set_number(float("nan"))),
    "tensor with infinity": _tensors(_set_number(float("-inf"))),
}


def malformed_copy(checkpoint: Path, folder: Path, chance: random.Random) -> str:
    """Copy a checkpoint without its runs' folders, damage the copy, and return in words how."""
    folder.mkdir()
    for file in checkpoint.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    kind = chance.choice(sorted(MALFORMED))
    return f"{kind}, {MALFORMED[kind](folder, chance)}"
