"""The section `adapter` of a recipe: a layer aggregation beside a pretrained model, which alone is trained."""

from collections.abc import Mapping
from typing import Any

import torch

from hf_capsule_mt.data.settings import check_fields, refuse_unknown
from hf_capsule_mt.loading import load_model

SECTION = "adapter"


def adapter_fields() -> dict[str, Any]:
    """Return the fields of `CapsuleConfig` that a recipe may set, with their types; its base class has others."""
    from hf_capsule_mt.adapters import CapsuleConfig  # late: it needs peft

    return {name: kind for name, kind in vars(CapsuleConfig)["__annotations__"].items() if name != "target_modules"}


def check_adapter(settings: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for an unknown key, a value of another type, and values that do not fit together."""
    from hf_capsule_mt.adapters import CapsuleConfig

    refuse_unknown(settings, adapter_fields(), f"`{SECTION}`")
    values = check_fields(CapsuleConfig, settings, SECTION)
    try:
        CapsuleConfig(**values)
    except ValueError as error:
        raise ValueError(f"`{SECTION}`: {error}") from None


def check_beside_adapter(recipe: Any) -> None:
    """Raise a `ValueError` for what a recipe with an adapter must not set, or lacks."""
    if recipe.init_from is None:
        raise ValueError(f"`{SECTION}` needs `init_from`, the model that it stands beside")
    for name in ("model", "freeze"):
        if getattr(recipe, name):
            raise ValueError(
                f"`{name}` must be left out beside `{SECTION}`, got {getattr(recipe, name)!r}: the model is that of "
                "`init_from`, whose weights stay as they are"
            )
    for name in ("average_last", "fsdp"):
        if recipe.training.get(name):
            raise ValueError(
                f"`training.{name}` must be left out beside `{SECTION}`, got {recipe.training[name]!r}: it takes the "
                "weights of a whole model"
            )


def build_adapted(init_from: str, settings: Mapping[str, Any]) -> Any:
    """Return a `PeftModel`: a pretrained model in float32, frozen, and a new adapter beside it."""
    from hf_capsule_mt.adapters import aggregate

    return aggregate(load_model(init_from, dtype=torch.float32).train(), **settings)
