"""Build the model of a recipe: new, or on top of an earlier checkpoint."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, cast

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from hf_capsule_mt.training.sections import config_class_of

models_logger = logging.get_logger("hf_capsule_mt.training")


def train_only(model: PreTrainedModel, weights: Iterable[str]) -> PreTrainedModel:
    """Freeze all parameters but those of some names, such as what is new on top of an OPUS-MT model; return the model.

    model, info = CapsuleMarianMTModel.from_marian(name, guided_routing="guided", output_loading_info=True)
    train_only(model, info["new_weights"])
    """
    if isinstance(weights, str):
        raise TypeError(f"`weights` must be a list of names of weights, got the string {weights!r}")
    names = set(weights)
    unknown = sorted(names - model.state_dict().keys())
    if unknown:
        raise ValueError(f"`weights` has {unknown[0]!r}, but the model has no weight of this name")
    if not names & dict(model.named_parameters()).keys():
        raise ValueError("nothing is left to train: no parameter is new. Switch capsules on first")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    return model


def vocabulary_fields(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the configuration fields that a tokenizer decides."""
    facts = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
        "forced_eos_token_id": None,
    }
    target_vocab_size = getattr(tokenizer, "target_vocab_size", None)
    if target_vocab_size is not None:
        facts |= {"decoder_vocab_size": target_vocab_size, "share_encoder_decoder_embeddings": False}
    return facts


def build_config(model: dict[str, Any], tokenizer_fields: dict[str, Any]) -> Any:
    """Return the configuration of a recipe's model, completed by the tokenizer's fields."""
    settings = dict(model)
    config_class = config_class_of(settings.pop("model_type"))
    names = {entry.name for entry in fields(config_class)}
    if "decoder_vocab_size" in tokenizer_fields and "decoder_vocab_size" not in names:
        raise ValueError(f"{config_class.__name__} has no separate vocabularies: `tokenizer.separate` must be false")
    conflicting = settings.keys() & tokenizer_fields.keys() - {"share_encoder_decoder_embeddings"}
    if conflicting:
        raise ValueError(f"`model` sets {sorted(conflicting)}, which the tokenizer decides")
    return config_class(**{key: value for key, value in tokenizer_fields.items() if key in names} | settings)


def build_model(
    model: dict[str, Any], tokenizer: PreTrainedTokenizerBase, init_from: str | None = None, freeze: str | None = None
) -> PreTrainedModel:
    """Return a new model, or one that starts from the weights of an earlier one, changed as the recipe's fields say.

    Capsule Marian starts from any Marian checkpoint or from itself, every other family from itself.

    Args:
        freeze: "old" freezes the weights of `init_from`.
    """
    if init_from is None:
        return AutoModelForSeq2SeqLM.from_config(build_config(model, vocabulary_fields(tokenizer)))
    settings = dict(model)
    config_class = config_class_of(settings.pop("model_type"))
    model_class = cast(type[PreTrainedModel], AutoModelForSeq2SeqLM._model_mapping[config_class])
    source_config = AutoConfig.from_pretrained(init_from)
    if hasattr(model_class, "from_marian") and source_config.model_type in ("marian", config_class.model_type):
        result, info = model_class.from_marian(init_from, output_loading_info=True, dtype=torch.float32, **settings)
        new = info["new_weights"]
    else:
        result, new = _on_top_of(init_from, source_config, config_class, settings)
    check_vocabulary(result, tokenizer, init_from)
    return train_only(result, new) if freeze == "old" else result


def check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, init_from: str) -> None:
    """Raise a `ValueError` if a tokenizer has more words than the checkpoint, or another padding or end."""
    size = cast(nn.Embedding, model.get_input_embeddings()).num_embeddings
    if len(tokenizer) > size:
        raise ValueError(f"the tokenizer has {len(tokenizer)} words, but the vocabulary of {init_from} has {size}")
    for name in ("pad_token_id", "eos_token_id"):
        ours, theirs = getattr(tokenizer, name), getattr(model.config, name)
        if ours != theirs:
            raise ValueError(f"`{name}` is {ours} in the tokenizer, but {theirs} in {init_from}: load its tokenizer")


def _on_top_of(
    init_from: str,
    source_config: PreTrainedConfig,
    config_class: type[PreTrainedConfig],
    settings: dict[str, Any],
) -> tuple[PreTrainedModel, list[str]]:
    if source_config.model_type != config_class.model_type:
        raise ValueError(
            f"a {config_class.model_type} cannot start from {init_from}, which is a {source_config.model_type}"
        )
    names = {entry.name for entry in fields(config_class) if entry.init}
    values = {key: value for key, value in source_config.to_dict().items() if key in names}
    result = AutoModelForSeq2SeqLM.from_config(config_class(**values | settings | {"dtype": "float32"}))
    source = AutoModelForSeq2SeqLM.from_pretrained(init_from)
    missing, unexpected = result.load_state_dict(source.state_dict(), strict=False)
    if unexpected:
        raise ValueError(f"the settings have no use for these weights of {init_from}: {unexpected}")
    result.tie_weights()
    changes = [
        f"`{key}` {value!r} (there {values.get(key)!r})" for key, value in settings.items() if values.get(key) != value
    ]
    if changes:
        models_logger.warning(f"Other settings than those of {init_from}: {', '.join(changes)}.")
    if missing:
        models_logger.warning(f"New weights, to be trained: {', '.join(missing)}.")
    return result, missing
