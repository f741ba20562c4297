"""Digests of what a run depends on: if they are equal, an interrupted run may resume."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

BLOCK = 1 << 20
# where a checkpoint was loaded from, and with which version
NOT_IDENTITY = (
    *("_name_or_path", "name_or_path", "transformers_version", "_from_model_config", "_commit_hash"),
    *("is_local", "local_files_only"),
)


def digest(parts: Iterable[bytes | memoryview | str]) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of some parts, each of which counts with its length."""
    hashed = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        hashed.update(b"%d:" % len(content))
        hashed.update(content)
    return hashed.hexdigest()[:16]


def model_digests(model: PreTrainedModel) -> dict[str, str]:
    """Return digests of a model's `weights`, its `configuration` and its `generation_config`."""
    generation = model.generation_config
    return {
        "weights": digest(_weights(model.state_dict())),
        "configuration": digest([_canonical(model.config.to_dict())]),
        "generation_config": digest([_canonical(generation.to_dict() if generation is not None else {})]),
    }


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the digest of the files that a tokenizer saves."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            tokenizer.save_pretrained(folder)
        except Exception as error:  # tokenizers raises no `OSError` on a full disk
            raise OSError(f"{folder}: the tokenizer could not be saved there to compare it ({error})") from error
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return digest(part for file in files for part in (file.name, _content(file)))


def _weights(state: dict[str, torch.Tensor]) -> Iterator[str | memoryview]:
    """Yield the name, dtype and shape of each tensor, and its bytes; of tied ones, those of the first."""
    first: dict[tuple[int, torch.Size], str] = {}
    for name, value in state.items():
        tied = first.setdefault((value.data_ptr(), value.shape), name)
        yield f"{name} {value.dtype} {tuple(value.shape)} {tied}"
        if tied == name:
            yield value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _content(file: Path) -> str | bytes:
    return _canonical(json.loads(file.read_bytes())) if file.name == "tokenizer_config.json" else file.read_bytes()


def _canonical(settings: dict[str, Any]) -> str:
    kept = {name: value for name, value in settings.items() if name not in NOT_IDENTITY}
    return json.dumps(kept, sort_keys=True, default=str)


def file_digest(file: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file."""
    with open(file, "rb", buffering=0) as stream:
        return digest_of(iter(lambda: stream.read(BLOCK), b""))


def digest_of(blocks: Iterable[bytes]) -> str:
    """Return the SHA-256 of bytes that come in blocks."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def joined(texts: Iterable[str]) -> bytes:
    """Return texts as bytes that no other texts give."""
    return "".join(f"{len(text)}:{text}" for text in texts).encode("utf-8", "surrogatepass")


def checkpoint_digests(checkpoint: str, revision: str | None = None) -> dict[str, str]:
    """Return the digest of each file of a model and its tokenizer, or the revision of one on the hub."""
    folder = Path(checkpoint)
    if not folder.is_dir():
        return {"revision": revision or "unknown"}
    named = ("config.json", "generation_config.json", "special_tokens_map.json", "added_tokens.json")
    wanted = [
        file
        for file in sorted(folder.iterdir())
        if file.name in named
        or file.suffix in (".safetensors", ".bin", ".spm", ".model")
        or (file.name.startswith(("tokenizer", "vocab", "merges", "source_", "target_")) and file.is_file())
    ]
    return {file.name: file_digest(file) for file in wanted}
