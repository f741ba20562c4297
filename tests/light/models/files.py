"""Safetensors files as a test wants them, also wrong ones."""

import json
import shutil
from pathlib import Path
from typing import Any

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


def edit_json(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | fields), encoding="utf-8")
