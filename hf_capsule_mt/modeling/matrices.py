"""The matrix of a linear layer that a routing multiplies by itself, also after a library has quantised the layer."""

import torch
from torch import nn


def is_plain(linear: nn.Linear) -> bool:
    """Return whether no library has quantised a linear layer."""
    return type(linear.weight) is nn.Parameter and linear.weight.is_floating_point()


def matrix_of(linear: nn.Linear) -> torch.Tensor:
    """Return the weight [out, in] of a linear layer as numbers.

    A quantised layer may keep integers, or an object that only its own product understands. Its matrix is then the
    product with the unit matrix.
    """
    weight = linear.weight
    if torch.compiler.is_compiling() or is_plain(linear):
        return weight
    device = getattr(weight, "device", None)  # of torch.ao's layers `weight` is a method
    unit = torch.eye(linear.in_features, device=device if isinstance(device, torch.device) else None)
    with torch.no_grad():
        return (linear(unit) - linear(torch.zeros_like(unit[:1]))).t()


def vector_of(linear: nn.Linear) -> torch.Tensor:
    """Return the bias [out] of a linear layer that has one."""
    bias = linear.bias
    return bias() if callable(bias) and not isinstance(bias, torch.Tensor) else bias
