"""Capsule Marian without capsules as transformers' Marian."""

import copy
import json
from typing import Any, cast

from transformers import MarianConfig, MarianMTModel, PreTrainedModel

from hf_capsule_mt.modeling import CapsuleMarianMTModel

# each switch of `CapsuleMarianConfig` and its value for a model that is Marian's
OFF: dict[str, Any] = {
    "layer_aggregation": "none",
    "head_aggregation": "concat",
    "guided_routing": "none",
    "decoder_self": "attention",
    "marian_positions": False,
    "layer_norm_eps": 1e-5,
}


def to_marian(model: PreTrainedModel) -> MarianMTModel:
    """Return transformers' `MarianMTModel` with the weights of a Capsule Marian whose switches are all off."""
    if isinstance(model, MarianMTModel):
        return model
    if not isinstance(model, CapsuleMarianMTModel):
        raise ValueError(f"only a CapsuleMarianMTModel can become a MarianMTModel, got a {type(model).__name__}")
    switched_on = {name: value for name, off in OFF.items() if (value := getattr(model.config, name)) != off}
    if switched_on:
        named = ", ".join(f"{name}={json.dumps(value)}" for name, value in switched_on.items())
        accepted = ", ".join(f"{name}={json.dumps(OFF[name])}" for name in switched_on)
        raise ValueError(f"transformers' Marian cannot represent this model: it has {named}; only {accepted} converts")
    marian_fields = MarianConfig().to_dict()
    values = {name: value for name, value in model.config.to_dict().items() if name in marian_fields}
    config = MarianConfig(**{**values, "model_type": "marian", "architectures": ["MarianMTModel"]})
    if model.config.coverage_calibration is not None:
        config.coverage_calibration = model.config.coverage_calibration
    marian: Any = MarianMTModel(config)
    marian.to(model.dtype)
    marian.load_state_dict(model.state_dict())
    marian.generation_config = copy.deepcopy(model.generation_config)
    marian.eval()
    return cast(MarianMTModel, marian)
