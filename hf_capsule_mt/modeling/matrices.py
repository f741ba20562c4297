"""Weights and biases of linear layers for code that multiplies them itself, also of quantised and adapted layers."""

import torch
from torch import nn


def is_plain(linear: nn.Linear) -> bool:
    """Return whether a linear layer is as torch made it: not quantised, and without an adapter such as LoRA."""
    weight = linear.weight
    is_float = type(weight) is nn.Parameter and weight.is_floating_point() and weight.dtype.itemsize > 1  # not float8
    return isinstance(linear, nn.Linear) and is_float


def is_offloaded(linear: nn.Linear) -> bool:
    """Return whether accelerate keeps a layer's weights elsewhere, and loads them only while the layer is called."""
    return hasattr(linear, "_hf_hook") and getattr(linear.weight, "is_meta", False)


def matrix_of(linear: nn.Linear) -> torch.Tensor:
    """Return the weight [out, in] of a linear layer as floating-point numbers.

    A quantised layer may store integers, or an object that only the layer itself can multiply. An adapted layer stores
    the adapter's part elsewhere, and accelerate offloads weights. So these layers are applied to the identity matrix,
    and the bias is subtracted.
    """
    weight = linear.weight
    if is_offloaded(linear):
        identity = torch.eye(linear.in_features, dtype=weight.dtype)
    elif is_plain(linear) or (torch.compiler.is_compiling() and isinstance(linear, nn.Linear)):
        return weight
    else:
        is_tensor = isinstance(weight, torch.Tensor)  # a method in torch.ao's layers
        identity = torch.eye(linear.in_features, device=weight.device if is_tensor else None)
        if is_tensor and weight.is_floating_point() and weight.dtype.itemsize > 1:  # not stored in 8 bits
            identity = identity.to(weight.dtype)
    is_trainable = any(parameter.requires_grad for parameter in linear.parameters())
    with torch.set_grad_enabled(is_trainable and torch.is_grad_enabled()):
        return (linear(identity) - linear(torch.zeros_like(identity[:1]))).t()


def vector_of(linear: nn.Linear) -> torch.Tensor:
    """Return the bias [out] of a linear layer that has one."""
    if is_offloaded(linear):
        return linear(torch.zeros(linear.in_features, dtype=linear.weight.dtype))
    bias = linear.bias
    return bias() if callable(bias) and not isinstance(bias, torch.Tensor) else bias
