"""What `from_pretrained` of our classes refuses, by the name of the file: damaged files, missing tensors, NaN.

A file without some tensors is a checkpoint for transformers, which initialises them at random and warns; such a model
would translate into noise.
"""

import json
import os
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_utils import load_state_dict

HUB_KEYWORDS = {"cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token"}
INDEX_FILES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def unusable_tensor(model: PreTrainedModel) -> tuple[str, str] | None:
    """Return the name of a tensor with numbers that are not finite, and how many; a buffer may be infinite."""
    buffers = dict(model.named_buffers())
    for name, tensor in (*model.named_parameters(), *buffers.items()):
        # one sum reads the memory once; it may overflow where every number is finite
        if tensor.is_floating_point() and not tensor.is_meta and not tensor.sum().isfinite():
            wrong = tensor.isnan() if name in buffers else ~tensor.isfinite()
            if wrong.any():
                return name, f"{int(wrong.sum())} of {wrong.numel()} numbers that are not finite"
    return None


def file_of(folder: str, tensor: str) -> str:
    """Return the file that has a tensor, or should have it; the folder if there is no such file."""
    for index in INDEX_FILES:
        path = os.path.join(folder, index)
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                return os.path.join(folder, json.load(file)["weight_map"].get(tensor, index))
    files = weight_files(folder)
    return files[0] if len(files) == 1 else folder


def weight_files(folder: str) -> list[str]:
    """Return the files of a folder that may have weights of a model."""
    if not os.path.isdir(folder):
        return []
    names = (name for name in sorted(os.listdir(folder)) if name.startswith(("model", "pytorch_model")))
    return [os.path.join(folder, name) for name in names if name.endswith((".safetensors", ".bin"))]


def damaged_file(folder: str) -> tuple[str, Exception] | None:
    """Return a file of weights that cannot be read, and the error; `None` if all of them can."""
    for path in weight_files(folder):
        try:
            load_state_dict(path, map_location="meta")  # reads the shapes of a safetensors file alone
        except Exception as error:  # each library raises its own
            return path, error
    return None


def refuse_unusable(model: PreTrainedModel, missing: set[str] | list[str], folder: str) -> None:
    """Raise an OSError for a missing tensor, or for one with numbers that are not finite."""
    if missing:
        first, *others = sorted(missing)
        more = f", and {len(others)} more" if others else ""
        raise OSError(f"{file_of(folder, first)}: lacks `{first}`, which the configuration requires{more}")
    unusable = unusable_tensor(model)
    if unusable is not None:
        name, numbers = unusable
        raise OSError(f"{file_of(folder, name)}: `{name}` has {numbers}")


def is_other_model(model: PreTrainedModel, name_or_path: Any, settings: dict[str, Any]) -> bool:
    """Return whether a model differs from the one that was saved, by its class or by a field of its configuration.

    Then tensors may be missing that the checkpoint has never had.

    Args:
        settings: keywords of `from_pretrained`.
    """
    if settings.get("state_dict") is not None or type(model).__name__ not in (model.config.architectures or ()):
        return True
    config_class = type(model.config)
    hub = {key: settings[key] for key in HUB_KEYWORDS & settings.keys()}
    saved = config_class.from_pretrained(name_or_path, **hub)
    fields = config_class.__dataclass_fields__.keys() - PreTrainedConfig.__dataclass_fields__.keys()
    return any(getattr(saved, field) != getattr(model.config, field) for field in fields)
