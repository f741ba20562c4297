"""A linear map's own initial standard deviation, where the model's does not fit."""

from torch import nn


def set_initial_std(linear: nn.Linear, std: float) -> None:
    """Let the model draw this weight with `std` when it initialises its modules."""
    linear.init_std = std  # type: ignore[assignment]


def get_initial_std(linear: nn.Linear) -> float | None:
    """Return what `set_initial_std` set, or `None`."""
    std: float | None = vars(linear).get("init_std")
    return std
