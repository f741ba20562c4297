"""A map's own initial standard deviation, where the model's does not fit."""

from typing import Protocol, cast

from torch import nn


class _HasInitialStd(Protocol):
    init_std: float


def set_initial_std(module: nn.Module, std: float) -> None:
    """Let the model draw this weight with `std` when it initialises its modules."""
    cast(_HasInitialStd, module).init_std = std


def get_initial_std(module: nn.Module) -> float | None:
    """Return what `set_initial_std` set, or `None`."""
    std: float | None = vars(module).get("init_std")
    return std
