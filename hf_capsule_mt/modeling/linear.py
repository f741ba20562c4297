"""Linear maps that are fast when a CPU translates."""

from typing import ClassVar

import torch
from torch import nn

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig

# None where PyTorch comes without oneDNN
ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
# a call of oneDNN costs some 20 microseconds more, which a smaller matrix does not pay back
SMALLEST_ONEDNN_WEIGHT = 2**17


class FastLinear(nn.Linear):
    """`nn.Linear` whose float32 products on a CPU run in oneDNN where no gradient is asked for.

    A decoding step multiplies a few rows by every matrix of the model. The BLAS that PyTorch takes for float32 does
    that with one core and, for more than one row, several times slower than memory allows; oneDNN comes with PyTorch
    as well and does not. Its results differ in the last bits. `FastLinear.enabled = False` switches it off everywhere.
    """

    enabled: ClassVar[bool] = True

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return fast_linear(input, self.weight, self.bias)


def fast_linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`nn.functional.linear`, in oneDNN where `FastLinear` would be."""
    if FastLinear.enabled and not torch.is_grad_enabled() and fits_onednn(input, weight):
        return ONEDNN_LINEAR(input.contiguous(), weight, bias, "none", [], "")  # type: ignore[misc]
    return nn.functional.linear(input, weight, bias)


def fits_onednn(input: torch.Tensor, weight: torch.Tensor) -> bool:
    return (
        weight.numel() >= SMALLEST_ONEDNN_WEIGHT
        and input.dtype == weight.dtype == torch.float32
        and input.is_cpu
        and weight.is_cpu
        and type(weight) in (torch.Tensor, nn.Parameter)  # no quantised or distributed weight
        and weight.is_contiguous()
        and input.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and ONEDNN_LINEAR is not None
    )


def linear_class(config: CapsuleMarianConfig) -> type[nn.Linear]:
    """Plain Marian must equal transformers' Marian bit for bit, so it takes the same kernels."""
    return nn.Linear if config.is_plain_marian else FastLinear
