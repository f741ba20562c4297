"""Linear maps that are fast when a CPU translates."""

import platform
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig


class FastWays(NamedTuple):
    """Where other ways are faster than the BLAS that PyTorch takes for float32 products; measured."""

    splits_one_row: bool
    # what it takes for oneDNN: a plain weight, and a packed one
    fewest_plain_rows: int
    smallest_plain_weight: int
    fewest_packed_rows: int
    smallest_packed_weight: int


# that BLAS is MKL, which is slow for few rows on the processors of others than Intel
WITH_FAST_BLAS = FastWays(False, 4, 2**21, 3, 2**19)
WITH_SLOW_BLAS = FastWays(True, 2, 2**17, 2, 2**17)


def _is_mkl_on_intel() -> bool:
    if not torch.backends.mkl.is_available():
        return False
    try:
        with Path("/proc/cpuinfo").open(errors="replace") as processors:
            return "GenuineIntel" in processors.read(256)  # of the first one; a large machine has hundreds
    except OSError:
        return "GenuineIntel" in platform.processor()


WAYS = WITH_FAST_BLAS if _is_mkl_on_intel() else WITH_SLOW_BLAS
# None where PyTorch comes without oneDNN
ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
# a call of oneDNN costs some 20 microseconds more, which a smaller matrix does not pay back
SMALLEST_ONEDNN_WEIGHT = 2**17
# a packed weight is laid out for so many rows; with more, a plain one is as fast
MOST_PACKED_ROWS = 16
PARTS_OF_ONE_ROW = 8


class PackedWeight:
    """A copy of a weight in the layout that oneDNN reads fastest, made when it is first needed.

    For the few rows of a beam search a packed matrix takes half the time of a plain one. The copy follows the weight:
    it is made anew after an optimiser's step, after loading, and after a change through `.data` that reaches one of a
    few dozen numbers that it keeps for comparison. It is not saved and not copied with the model.
    """

    def __init__(self) -> None:
        self._made_of: tuple[int, int] | None = None
        self._sample: torch.Tensor | None = None
        self._packed: Any = None

    def __reduce__(self) -> Any:
        return type(self), ()

    def takes(self, num_rows: int, weight: torch.Tensor) -> bool:
        """Whether it is the fastest way for so many rows."""
        is_large = weight.numel() >= WAYS.smallest_packed_weight
        return is_large and WAYS.fewest_packed_rows <= num_rows <= MOST_PACKED_ROWS

    def product(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """`nn.functional.linear`."""
        return ONEDNN_LINEAR(input.contiguous(), self.of(weight), bias, "none", [], "")  # type: ignore[misc]

    def of(self, weight: torch.Tensor) -> Any:
        weight = weight.detach()
        made_of = (weight.data_ptr(), -1 if weight.is_inference() else weight._version)
        sample = self.sample(weight)
        if self._made_of != made_of or not torch.equal(sample, self._sample):  # type: ignore[arg-type]
            self._packed = self.pack(weight)
            self._made_of, self._sample = made_of, sample.clone()
        return self._packed

    def sample(self, weight: torch.Tensor) -> torch.Tensor:
        """Some numbers of a weight that tell whether it has changed."""
        return weight.view(-1)[:: weight.numel() // 64]

    def pack(self, weight: torch.Tensor) -> Any:
        return torch.ops.mkldnn._reorder_linear_weight(weight, MOST_PACKED_ROWS)


class FastLinear(nn.Linear):
    """`nn.Linear` whose float32 products on a CPU take faster ways where no gradient is asked for.

    A decoding step multiplies a few rows by every matrix of the model. On processors that are not Intel's, the BLAS
    that PyTorch takes for float32 does that with one core and several times slower than memory allows. One row is
    faster as a batched product with parts of the matrix, several rows are in oneDNN, which comes with PyTorch as well.
    The results differ in the last bits. `FastLinear.enabled = False` switches it off everywhere.
    """

    enabled: ClassVar[bool] = True
    init_std: float | None = None  # of the initial weights, where it is not that of the model's other matrices

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return fast_linear(input, self.weight, self.bias)


class PackedLinear(FastLinear):
    """A `FastLinear` that keeps a packed copy of its weight once it has multiplied the few rows of a beam search."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features, out_features, bias=bias)
        self.packed = PackedWeight()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return fast_linear(input, self.weight, self.bias, self.packed)


def fast_linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, packed: PackedWeight | None = None
) -> torch.Tensor:
    """`nn.functional.linear`, in the fastest way there is for this many rows where no gradient is asked for."""
    if not FastLinear.enabled or torch.is_grad_enabled() or not fits_onednn(input, weight):
        return nn.functional.linear(input, weight, bias)
    num_rows = input.numel() // input.shape[-1]
    if packed is not None and packed.takes(num_rows, weight):
        return packed.product(input, weight, bias)
    if num_rows == 1 and WAYS.splits_one_row:
        return _linear_of_one_row(input, weight, bias)
    if num_rows >= WAYS.fewest_plain_rows and weight.numel() >= WAYS.smallest_plain_weight:
        return ONEDNN_LINEAR(input.contiguous(), weight, bias, "none", [], "")  # type: ignore[misc]
    return nn.functional.linear(input, weight, bias)


def _linear_of_one_row(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """A batched product of parts of the matrix with the row, which reads the matrix at the speed of memory."""
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
