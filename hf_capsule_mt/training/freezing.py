"""Train a part of a model and freeze the rest, such as the weights of the OPUS-MT model that it started from."""

from collections.abc import Iterable
from typing import Literal

import torch
from transformers import PreTrainedModel

# what switches the capsules of a family off; each family has some of these fields
WITHOUT_CAPSULES = {
    "layer_aggregation": "none",
    "head_aggregation": "concat",
    "guided_routing": "none",
    "aggregation": "pooling",
}


def capsule_weights(model: PreTrainedModel) -> list[str]:
    """Return the names of the parameters that the model would not have without its capsules."""
    config = model.config
    off = {key: value for key, value in WITHOUT_CAPSULES.items() if hasattr(config, key)}
    if not off:
        raise ValueError(f"a {type(model).__name__} has no capsules; give the names of the weights to train")
    with torch.device("meta"):
        plain = type(model)(type(config).from_dict({**config.to_dict(), **off}))
    return sorted(dict(model.named_parameters()).keys() - dict(plain.named_parameters()).keys())


def train_only(model: PreTrainedModel, weights: Literal["capsules"] | Iterable[str]) -> PreTrainedModel:
    """Freeze all parameters but some; return the model.

        model, info = CapsuleMarianMTModel.from_marian(name, guided_routing="guided", output_loading_info=True)
        train_only(model, info["new_weights"])

    Args:
        weights: names of parameters, or "capsules" for those that the model would not have without its capsules.
    """
    if isinstance(weights, str) and weights != "capsules":
        raise ValueError(f'`weights` must be "capsules" or a list of names, got {weights!r}')
    names = set(capsule_weights(model) if isinstance(weights, str) else weights)
    trained = {name for name, _ in model.named_parameters()} & names
    if not trained:
        raise ValueError("nothing is left to train: the model has none of these weights. Switch capsules on first")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
    return model
