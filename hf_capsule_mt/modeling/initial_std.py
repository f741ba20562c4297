"""The initial standard deviation of a linear map, where the model's default does not fit."""

from typing import Any

from torch import nn


def set_initial_std(module: Any, std: float) -> None:
    """Let the model draw the weight of a module with `std` when it initialises its modules."""
    module.init_std = std


def get_initial_std(module: nn.Module) -> float | None:
    """Return what `set_initial_std` set, or `None`."""
    return vars(module).get("init_std")
