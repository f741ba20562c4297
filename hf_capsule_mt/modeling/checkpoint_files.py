"""What `from_pretrained` of our classes refuses, by the name of the file: damaged files, missing tensors, NaN.

A file without some tensors is a checkpoint for transformers, which initialises them at random and warns; such a model
would translate into noise.
"""

import json
import os
from collections.abc import Collection
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_utils import load_state_dict
from transformers.utils import (
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
    cached_file,
)

HUB_KEYWORDS = {"cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token"}
CACHE_KEYWORDS = {"cache_dir", "revision", "subfolder"}
# transformers reads the first that exists
WEIGHT_FILES = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME)
# others, such as float8, lack operations; a subclass may hold codes
CHECKED_DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
CHECKED_TYPES = (torch.Tensor, nn.Parameter)


def unusable_tensor(model: PreTrainedModel) -> tuple[str, str] | None:
    """Return the name of a tensor with NaN or, but for buffers, infinities, and how many; `None` without one."""
    buffers = dict(model.named_buffers())
    for name, tensor in (*model.named_parameters(), *buffers.items()):
        is_checked = type(tensor) in CHECKED_TYPES and tensor.dtype in CHECKED_DTYPES and not tensor.is_meta
        # one sum reads the memory once; it may overflow where every number is finite
        if is_checked and not tensor.sum().isfinite():
            wrong = tensor.isnan() if name in buffers else ~tensor.isfinite()
            if wrong.any():
                return name, f"{int(wrong.sum())} of {wrong.numel()} numbers that are not finite"
    return None


def weights_file(name_or_path: Any, settings: dict[str, Any]) -> str | None:
    """Return the path of the file, or index of parts, that transformers reads weights from; `None` if it is not here.

    Args:
        name_or_path: a folder, or a name on the hub, whose files are then those in the cache.
        settings: keywords of `from_pretrained`.
    """
    if name_or_path is None:
        return None
    cache = {key: settings[key] for key in CACHE_KEYWORDS & settings.keys()}
    variant = f".{settings['variant']}" if settings.get("variant") else ""
    for name in WEIGHT_FILES:
        stem, ending = os.path.splitext(name)
        if settings.get("use_safetensors") not in (None, "safetensors" in name):
            continue
        try:
            path = cached_file(name_or_path, f"{stem}{variant}{ending}", local_files_only=True, **cache)
        except (OSError, ValueError):  # it does not exist, or this cannot be a name on the hub
            continue
        if path is not None:
            return path
    return None


def parts_of(index: str) -> dict[str, str]:
    """Return the path of the file that has each tensor, by an index of parts."""
    with open(index, encoding="utf-8") as file:
        weight_map = json.load(file)["weight_map"]
    return {tensor: os.path.join(os.path.dirname(index), part) for tensor, part in weight_map.items()}


def file_of(name_or_path: Any, tensor: str | None, settings: dict[str, Any]) -> str:
    """Return the file that has a tensor, or should have it; the checkpoint's name if there is no such file."""
    path = weights_file(name_or_path, settings)
    if path is None:
        return os.fspath(name_or_path)
    return parts_of(path).get(tensor or "", path) if path.endswith(".json") else path


def damaged_file(name_or_path: Any, settings: dict[str, Any]) -> tuple[str, Exception] | None:
    """Return a file that transformers reads weights from, and why it cannot be read; `None` if all that exist can."""
    path = weights_file(name_or_path, settings)
    if path is None:
        return None
    files = [path]
    try:
        if path.endswith(".json"):
            files = sorted(set(parts_of(path).values()))
        for path in filter(os.path.isfile, files):
            load_state_dict(path, map_location="meta")  # reads the shapes of a safetensors file alone
    except Exception as error:  # each library raises its own
        return path, error
    return None


def lacks(tensors: Collection[str]) -> str:
    """Say that tensors are missing."""
    return f"lacks `{min(tensors)}`, which the configuration requires{and_more(tensors)}"


def and_more(names: Collection[Any]) -> str:
    """Say how many names there are beside the one that a message names."""
    return f", and {len(names) - 1} more" if len(names) > 1 else ""


def refuse_unusable(
    model: PreTrainedModel, missing: Collection[str], name_or_path: Any, settings: dict[str, Any]
) -> None:
    """Raise an OSError for a missing tensor that the checkpoint must have, or one with numbers that are not finite."""
    if missing and (lost := saved_tensors(model, name_or_path, settings).intersection(missing)):
        raise OSError(f"{file_of(name_or_path, min(lost), settings)}: {lacks(lost)}")
    unusable = unusable_tensor(model)
    if unusable is not None:
        name, numbers = unusable
        raise OSError(f"{file_of(name_or_path, name, settings)}: `{name}` has {numbers}")


def saved_tensors(model: PreTrainedModel, name_or_path: Any, settings: dict[str, Any]) -> set[str]:
    """Return the tensors that a checkpoint must have: those of its own configuration, which a keyword may extend.

    If another class was saved, that class may lack what is outside of the base model.

    Args:
        settings: keywords of `from_pretrained`.
    """
    if settings.get("state_dict") is not None:
        return set()
    hub = {key: settings[key] for key in HUB_KEYWORDS & settings.keys()}
    config, config_class = model.config, type(model.config)
    if config_class.get_config_dict(name_or_path, **hub)[0]:  # or `config` was given, for weights without one
        config = config_class.from_pretrained(name_or_path, **hub)
    with torch.device("meta"):
        saved = type(model)(config)
    names = {name for name, _ in (*saved.named_parameters(), *saved.named_buffers())}  # tied ones once
    if type(model).__name__ in (config.architectures or ()) or model.base_model is model:
        return names
    return {name for name in names if name.startswith(f"{model.base_model_prefix}.")}
