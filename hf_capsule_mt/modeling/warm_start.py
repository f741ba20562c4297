"""Starting Capsule Marian from a Marian checkpoint."""

import copy
import difflib
import inspect
import os
import re
from dataclasses import fields
from typing import Any

import torch
from huggingface_hub.utils import HFValidationError, validate_repo_id
from transformers import AutoModelForSeq2SeqLM, MarianMTModel, PreTrainedModel
from transformers.utils import logging

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.modeling.past_future_guidance import PastFutureGuidance

warm_start_logger = logging.get_logger("hf_capsule_mt.modeling")

# keywords of `from_pretrained` that it takes from its **kwargs
LOADING_KEYWORDS = frozenset(
    {
        "attn_implementation",
        "device_map",
        "dtype",
        "max_memory",
        "offload_folder",
        "subfolder",
        "trust_remote_code",
    }
)
# With another value of these, the same weights compute another function; other sizes change a shape. Two fields may
# change: `marian_positions` and `layer_norm_eps` give a model that Marian trained the function that it had there.
FUNCTION_FIELDS = (
    *("activation_function", "scale_embedding", "encoder_attention_heads", "decoder_attention_heads"),
    *("encoder_layers", "decoder_layers", "share_encoder_decoder_embeddings", "tie_word_embeddings"),
    *("pad_token_id", "eos_token_id", "decoder_start_token_id"),
)


def warm_start(
    model_class: Any, model_or_path: PreTrainedModel | str | os.PathLike[str], settings: dict[str, Any]
) -> tuple[Any, dict[str, list[str]]]:
    """Return a model of the class with the weights of a Marian model, and the names of new and dropped weights."""
    settings = CapsuleMarianConfig.current_names(settings)
    config_fields = {field.name for field in fields(CapsuleMarianConfig)} - LOADING_KEYWORDS
    accepted = LOADING_KEYWORDS | set(inspect.signature(PreTrainedModel.from_pretrained).parameters)
    loading = {key: settings[key] for key in settings.keys() - config_fields}
    for keyword in loading.keys() - accepted:
        matches = difflib.get_close_matches(keyword, config_fields, n=1)
        hint = f"; did you mean `{matches[0]}`?" if matches else ""
        raise ValueError(f"`from_marian` got `{keyword}`, which is not a field of CapsuleMarianConfig{hint}")

    if isinstance(model_or_path, PreTrainedModel):
        if loading:
            raise ValueError(f"{sorted(loading)} apply to a checkpoint, but `from_marian` was given a model")
        source = model_or_path
    else:
        if not isinstance(model_or_path, (str, os.PathLike)):
            kind = type(model_or_path).__name__
            raise TypeError(f"`from_marian` takes a model, or the folder or the name of a checkpoint, got a {kind}")
        _check_folder(model_or_path, loading.get("subfolder", ""))
        source = AutoModelForSeq2SeqLM.from_pretrained(model_or_path, **loading)
    if not isinstance(source, (MarianMTModel, model_class)):
        raise ValueError(
            f"`from_marian` needs a MarianMTModel or a {model_class.__name__}, got a {type(source).__name__}"
        )

    _check_function(source.config, settings)
    values: dict[str, Any] = {key: value for key, value in source.config.to_dict().items() if key in config_fields}
    values |= {key: value for key, value in settings.items() if key in config_fields}
    values["attn_implementation"] = source.config._attn_implementation
    config = CapsuleMarianConfig(**values)
    scale, old_scale = (getattr(c, "layer_aggregation_update_scale", 1.0) for c in (config, source.config))
    if getattr(source.config, "layer_aggregation", "none") != "none" and scale != old_scale:
        raise ValueError(
            f"`layer_aggregation_update_scale` {scale} differs from the model's {old_scale}, by which the weights of "
            "its layer aggregation are divided"
        )
    config.architectures = [model_class.__name__]
    model = model_class(config).to(source.dtype)
    model.generation_config = copy.deepcopy(source.generation_config)
    if isinstance(model.model.decoder.guidance, PastFutureGuidance):
        model.model.decoder.guidance.start_without_effect()
    state = source.state_dict()
    if config.marian_positions != getattr(source.config, "marian_positions", False):
        state |= {name: model.state_dict()[name] for name in state if name.endswith("embed_positions.weight")}
    _check_shapes(state, model, source.config, settings)
    missing, unexpected = model.load_state_dict(state, strict=False)
    replaced = re.compile(r"\.(self_attn|encoder_attn)\.out_proj\.(weight|bias)$")
    if config.decoder_self == "ssru":
        replaced = re.compile(rf"{replaced.pattern}|\.decoder\..*\.self_attn\.[qkv]_proj\.(weight|bias)$")
    if config.guided_routing == "none":  # what is left is the plain twin
        replaced = re.compile(rf"{replaced.pattern}|\.decoder\.guidance\.|^guided_losses\.")
    surprising = [name for name in unexpected if not replaced.search(name)]
    if surprising:
        raise ValueError(f"the settings have no use for these weights of the model: {surprising}")
    if missing:
        warm_start_logger.warning(f"New weights, to be trained: {', '.join(missing)}.")
    if unexpected:
        warm_start_logger.warning(f"Replaced, and dropped: {', '.join(unexpected)}.")
    model.train(source.training)
    return model.to(source.device), {"new_weights": missing, "dropped_weights": unexpected}


def _check_function(old_config: Any, settings: dict[str, Any]) -> None:
    """Refuse settings with which the old model's weights would compute something else from the start."""
    old_values = {key: getattr(old_config, key) for key in FUNCTION_FIELDS if key in settings}
    if settings.get("tie_word_embeddings") is False:  # the output's own weights start as a copy
        del old_values["tie_word_embeddings"]
    changes = [
        f"`{key}` {settings[key]!r} (the model has {value!r})"
        for key, value in old_values.items()
        if settings[key] != value
    ]
    if changes:
        raise ValueError(
            f"`from_marian` keeps the function of the model, which {', '.join(changes)} would change. Leave it out; "
            "you may set dropout, layerdrop, `label_smoothing`, `decoder_self`, `marian_positions`, `layer_norm_eps`, "
            "`depth_connections`, and what begins with `layer_aggregation`, `head_aggregation`, `guided_` or `em_`"
        )


def _check_shapes(
    state: dict[str, torch.Tensor], model: PreTrainedModel, old_config: Any, settings: dict[str, Any]
) -> None:
    """Refuse settings with which a weight of the old model would have another shape."""
    old_values = {key: getattr(old_config, key, value) for key, value in settings.items()}
    changes = [
        f"`{key}` {value} (the model has {old_values[key]})"
        for key, value in settings.items()
        if value != old_values[key]
    ]
    for name, weight in model.state_dict().items() if changes else ():
        if name in state and weight.shape != state[name].shape:
            raise ValueError(
                f"`from_marian` keeps the weights of the model, of which {name} {list(state[name].shape)} would be "
                f"{list(weight.shape)} with {', '.join(changes)}: leave out what changes a shape"
            )


def _check_folder(path: str | os.PathLike[str], subfolder: str) -> None:
    """Refuse a missing folder, and one of Marian's own files, which the method's name seems to ask for.

    Without `capsule_mt`, which an exported model must not import.
    """
    if not os.path.isdir(path):
        try:
            validate_repo_id(os.fspath(path))
        except HFValidationError:
            raise FileNotFoundError(
                f"{os.fspath(path)}: no such folder; `from_marian` takes a model, a folder, or a name on the hub"
            ) from None
    elif not os.path.exists(os.path.join(path, subfolder, "config.json")):
        raise ValueError(
            f"{os.fspath(path)}: does not have a config.json of transformers. `from_marian` reads checkpoints of "
            "MarianMTModel; from Marian's own files, make one with `capsule-mt convert FOLDER TARGET --to huggingface`"
        )
