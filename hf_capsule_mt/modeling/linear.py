"""Linear maps that are fast when a CPU translates."""

from typing import Any, ClassVar

import torch
from torch import nn

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig

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
        self._packed: torch.Tensor | None = None

    def __reduce__(self) -> Any:
        return PackedWeight, ()

    def of(self, weight: torch.Tensor) -> torch.Tensor:
        weight = weight.detach()
        made_of = (weight.data_ptr(), -1 if weight.is_inference() else weight._version)
        sample = weight.view(-1)[:: weight.numel() // 64]
        if self._packed is None or self._made_of != made_of or not torch.equal(sample, self._sample):  # type: ignore[arg-type]
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, MOST_PACKED_ROWS)
            self._made_of, self._sample = made_of, sample.clone()
        return self._packed


class FastLinear(nn.Linear):
    """`nn.Linear` whose float32 products on a CPU take faster ways where no gradient is asked for.

    A decoding step multiplies a few rows by every matrix of the model. The BLAS that PyTorch takes for float32 does
    that with one core and several times slower than memory allows. One row is faster as a batched product with parts
    of the matrix, several rows are in oneDNN, which comes with PyTorch as well. The results differ in the last bits.
    `FastLinear.enabled = False` switches it off everywhere.
    """

    enabled: ClassVar[bool] = True
    init_gain: float = 1.0  # for models that initialise each matrix to keep the scale of its input

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
    if num_rows == 1:
        return _linear_of_one_row(input, weight, bias)
    if packed is not None and num_rows <= MOST_PACKED_ROWS:
        weight = packed.of(weight)
    return ONEDNN_LINEAR(input.contiguous(), weight, bias, "none", [], "")  # type: ignore[misc]


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
