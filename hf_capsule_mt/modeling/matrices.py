"""The matrix of a linear layer that a routing multiplies itself, also when a library has changed the layer."""

import torch
from torch import nn


def is_plain(linear: nn.Linear) -> bool:
    """Return whether no library has quantised a linear layer or put an adapter (LoRA) around it."""
    return isinstance(linear, nn.Linear) and type(linear.weight) is nn.Parameter and linear.weight.is_floating_point()


def matrix_of(linear: nn.Linear) -> torch.Tensor:
    """Return the weight [out, in] of a linear layer as numbers.

    A quantised layer may keep integers, or an object that only its own product understands, and the weight of a layer
    with an adapter lacks the adapter's part. The matrix is then the product with the unit matrix.
    """
    weight = linear.weight
    if is_plain(linear) or (torch.compiler.is_compiling() and isinstance(linear, nn.Linear)):
        return weight
    device = getattr(weight, "device", None)  # of torch.ao's layers `weight` is a method
    unit = torch.eye(linear.in_features, device=device if isinstance(device, torch.device) else None)
    learns = any(parameter.requires_grad for parameter in linear.parameters())
    with torch.set_grad_enabled(learns and torch.is_grad_enabled()):
        return (linear(unit) - linear(torch.zeros_like(unit[:1]))).t()


def vector_of(linear: nn.Linear) -> torch.Tensor:
    """Return the bias [out] of a linear layer that has one."""
    bias = linear.bias
    return bias() if callable(bias) and not isinstance(bias, torch.Tensor) else bias
