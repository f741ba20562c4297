"""Merge an adapter into a model of its own, where there is one: a Marian becomes a `CapsuleMarianMTModel`.

A sum of layers cannot be folded into the weights of an unchanged stack. In H = sum_l a_l h_l = sum_l A_l f_l(h_{l-1})
with A_l = a_l + ... + a_L, the parts of the stream have different factors, and every later layer must still read the
stream without them.
"""

from typing import Any

import torch
from torch import nn
from transformers import MarianMTModel

from hf_capsule_mt.modeling import CapsuleMarianMTModel


def can_merge(model: Any) -> bool:
    """Return whether this is a Marian without a layer aggregation and without quantised weights."""
    has_none = getattr(model.config, "layer_aggregation", "none") == "none"
    return has_none and isinstance(model, (MarianMTModel, CapsuleMarianMTModel)) and not is_quantised(model)


def is_quantised(model: nn.Module) -> bool:
    """Return whether weights are integers, or tensors of a kind of their own, as in bitsandbytes or torchao."""
    parameters = list(model.parameters())
    return any(type(weight.data) is not torch.Tensor or not weight.is_floating_point() for weight in parameters)


def merged_model(model: Any, configs: dict[str, Any], adapter_names: list[str], attribute: str) -> nn.Module:
    """Return a model without PEFT that computes the same.

    Raise a `ValueError` for all but one adapter on a `MarianMTModel`, or on a `CapsuleMarianMTModel` without a layer
    aggregation, such as a student of Firefox, and for quantised weights.
    """
    if not can_merge(model) or len(adapter_names) != 1:
        own = getattr(model.config, "layer_aggregation", "none")
        aggregating = f" with `layer_aggregation` {own!r}" if own != "none" else ""
        aggregating += " with quantised weights" if is_quantised(model) else ""
        raise ValueError(
            "only one adapter on a MarianMTModel can be merged (it becomes a CapsuleMarianMTModel), or on a "
            "CapsuleMarianMTModel whose `layer_aggregation` is 'none', got "
            f"{', '.join(adapter_names)} on a {type(model).__name__}{aggregating}: a sum of layers has no place in a "
            "stack's weights. Save the adapter, and load it beside the model"
        )
    (name,) = adapter_names
    config = configs[name]
    settings = {
        field: value
        for field, value in config.aggregation_settings(model.config.d_model).to_dict().items()
        if field.startswith(("layer_aggregation", "em_", "depth_"))
    }
    settings["layer_aggregation_side"] = config.side_of(True)
    family: Any = type(model)
    plain = family(model.config)
    plain = plain.to(model.dtype)
    state = model.state_dict()
    plain.load_state_dict({key: value for key, value in state.items() if f".{attribute}." not in key})
    plain.generation_config = model.generation_config
    result = CapsuleMarianMTModel.from_marian(plain, **settings)
    for stack_name in config.target_modules:
        adapter: Any = model.get_submodule(f"{stack_name}.{attribute}.capsule_layers.{name}")
        aggregations = list(adapter)
        stack: Any = result.get_submodule(stack_name)
        stack.layer_aggregation.load_state_dict(aggregations[-1].state_dict())
        for number, aggregation in enumerate(aggregations[:-1], start=1):
            stack.depth_connections[number].load_state_dict(aggregation.state_dict())
    result.train(model.training)
    return result.to(model.device)
