"""Float32 products of a few rows with a matrix, faster on CPUs than those of PyTorch's BLAS."""

import functools
import platform
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn


class Thresholds(NamedTuple):
    """Where other products beat PyTorch's float32 BLAS; measured."""

    splits_one_row: bool
    # what it takes for oneDNN: a plain weight, and a packed one
    fewest_plain_rows: int
    smallest_plain_weight: int
    fewest_packed_rows: int
    smallest_packed_weight: int


# that BLAS is MKL, which is slow for few rows on processors other than Intel's
WITH_FAST_BLAS = Thresholds(False, 4, 2**21, 3, 2**19)
WITH_SLOW_BLAS = Thresholds(True, 2, 2**17, 2, 2**17)

# None where PyTorch comes without oneDNN
ONEDNN_LINEAR: Any = (
    getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
)
# a call of oneDNN costs some 20 microseconds more, which a smaller matrix does not pay back
SMALLEST_ONEDNN_WEIGHT = 2**17
# a packed weight is laid out for so many rows; with more, a plain one is as fast
MOST_PACKED_ROWS = 16
PARTS_OF_ONE_ROW = 8


@functools.cache
def thresholds() -> Thresholds:
    """Return the thresholds of this processor, detected at the first call."""
    return WITH_FAST_BLAS if _is_mkl_on_intel() else WITH_SLOW_BLAS


def _is_mkl_on_intel() -> bool:
    if not torch.backends.mkl.is_available():
        return False
    try:
        with Path("/proc/cpuinfo").open(errors="replace") as processors:
            return "GenuineIntel" in processors.read(256)  # of the first one; a large machine has hundreds
    except OSError:
        return "GenuineIntel" in platform.processor()


class PackedWeight:
    """`nn.functional.linear` with a copy of the weight in the layout that oneDNN reads fastest.

    For the few rows of a beam search a packed matrix takes half the time of a plain one. The copy is made at the first
    product that needs it and follows the weight: it is made anew after an optimiser's step, after loading, and after a
    change through `.data` that reaches one of a few dozen numbers kept for comparison. It is neither saved nor copied
    with the model. With gradients, autocast, a compiler, another dtype or device, the product is PyTorch's own.
    """

    def __init__(self) -> None:
        self._made_of: tuple[int, int] | None = None
        self._sample = torch.empty(0)
        self._packed: Any = None

    def __reduce__(self) -> Any:
        return type(self), ()

    def __call__(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """[..., in], [out, in] and [out] -> [..., out], in the fastest way for this many rows."""
        if torch.is_grad_enabled() or not fits_onednn(input, weight):
            return nn.functional.linear(input, weight, bias)
        num_rows = input.numel() // input.shape[-1]
        if self.takes(num_rows, weight):
            return self.product(input, weight, bias)
        if num_rows == 1 and thresholds().splits_one_row:
            return _linear_of_one_row(input, weight, bias)
        if num_rows >= thresholds().fewest_plain_rows and weight.numel() >= thresholds().smallest_plain_weight:
            return _onednn_linear(input, weight, bias)
        return nn.functional.linear(input, weight, bias)

    def takes(self, num_rows: int, weight: torch.Tensor) -> bool:
        """Whether a packed product is the fastest for so many rows."""
        is_large = weight.numel() >= thresholds().smallest_packed_weight
        return is_large and thresholds().fewest_packed_rows <= num_rows <= MOST_PACKED_ROWS

    def product(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Multiply by the packed copy."""
        return _onednn_linear(input, self.of(weight), bias)

    def of(self, weight: torch.Tensor) -> Any:
        """Return the copy of a weight, made anew if the weight has changed."""
        weight = weight.detach()
        made_of = (weight.data_ptr(), -1 if weight.is_inference() else weight._version)
        sample = self.sample(weight)
        if self._made_of != made_of or not torch.equal(sample, self._sample):
            self._packed = self.pack(weight)
            self._made_of, self._sample = made_of, sample.clone()
        return self._packed

    def sample(self, weight: torch.Tensor) -> torch.Tensor:
        """Pick some numbers of a weight that tell whether it has changed."""
        return weight.view(-1)[:: weight.numel() // 64]

    def pack(self, weight: torch.Tensor) -> Any:
        return torch.ops.mkldnn._reorder_linear_weight(weight, MOST_PACKED_ROWS)


def _onednn_linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return ONEDNN_LINEAR(input.contiguous(), weight, bias, "none", [], "")


def _linear_of_one_row(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Multiply parts of the matrix with the row as a batch, which reads the matrix at the speed of memory."""
    out_features, in_features = weight.shape
    rest = out_features % PARTS_OF_ONE_ROW
    divided = out_features - rest
    parts = weight[:divided].view(PARTS_OF_ONE_ROW, -1, in_features)
    # a transposed row, and not a contiguous column, for which the batched product takes a way ten times slower
    columns = input.reshape(1, in_features).t().expand(PARTS_OF_ONE_ROW, -1, -1)
    if bias is None:
        output = torch.bmm(parts, columns)
    else:
        output = torch.baddbmm(bias[:divided].view(PARTS_OF_ONE_ROW, -1, 1), parts, columns)
    output = output.view(*input.shape[:-1], divided)
    if rest:
        last = nn.functional.linear(input, weight[divided:], None if bias is None else bias[divided:])
        output = torch.cat([output, last], dim=-1)
    return output


def fits_onednn(input: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether the products of this module can and may take the place of PyTorch's."""
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
