"""Safetensors files as a test wants them, also wrong ones."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from capsule_mt.models.weights import write_safetensors

FOLDER = Path(__file__).parents[2] / "golden"

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def read_header(file: Path) -> tuple[dict[str, Any], bytes]:
    """Return the header of a file, and the numbers behind it."""
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write_file(file: Path, header: Any, data: bytes) -> None:
    described = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(len(described).to_bytes(8, "little") + described + data)


def write_tensors(file: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    write_file(file, header, data)


def golden(name: str, target: Path) -> Path:
    """Copy a golden checkpoint, with the tokenizer that all families share."""
    shutil.copytree(FOLDER / name, target)
    for file in TOKENIZER_FILES:
        if not (target / file).exists():
            shutil.copy(FOLDER / "capsule_marian" / file, target)
    return target


def write_m2m100(folder: Path, halves: Callable[[str, int], bytes | memoryview], **fields: Any) -> int:
    """Write an M2M100 with these fields of its configuration; return the size of its weights.

    halves: the float16 numbers of a tensor, by its name and how many it has.
    """
    config = {"model_type": "m2m_100", "activation_function": "relu", "scale_embedding": True, **fields}
    width, shapes, norms = config["d_model"], {"model.shared.weight": (config["vocab_size"], config["d_model"])}, []
    for side, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        norms.append(f"model.{side}.layer_norm")
        for index in range(config[f"{side}_layers"]):
            layer, inner = f"model.{side}.layers.{index}", config[f"{side}_ffn_dim"]
            linears = {f"{name}.{kind}_proj": (width, width) for name in attentions for kind in ("q", "k", "v", "out")}
            linears |= {"fc1": (inner, width), "fc2": (width, inner)}
            shapes |= {f"{layer}.{name}.weight": shape for name, shape in linears.items()}
            shapes |= {f"{layer}.{name}.bias": shape[:1] for name, shape in linears.items()}
            norms += [f"{layer}.{name}_layer_norm" for name in (*attentions, "final")]
    shapes |= {f"{name}.{kind}": (width,) for name in norms for kind in ("weight", "bias")}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    described = {name: ("F16", shape) for name, shape in shapes.items()}
    file = folder / "model.safetensors"
    write_safetensors(file, described, lambda name: halves(name, math.prod(shapes[name])), {})
    return file.stat().st_size


def edit_json(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | fields), encoding="utf-8")
