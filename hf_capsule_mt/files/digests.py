"""Digests of a model and a tokenizer in memory."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from capsule_mt.text.digests import digest

# where a checkpoint was loaded from, and with which version
NOT_IDENTITY = (
    *("_name_or_path", "name_or_path", "transformers_version", "_from_model_config", "_commit_hash"),
    *("is_local", "local_files_only"),
)


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
