"""Translation with int8 products, for CPUs."""

from typing import Any

import torch
from torch import nn

from hf_capsule_mt.modeling.linear import MOST_PACKED_ROWS, FastLinear, PackedLinear, PackedWeight

# None where PyTorch comes without oneDNN
ONEDNN_INT8 = getattr(torch.ops.onednn, "qlinear_pointwise", None) if torch.backends.mkldnn.is_available() else None
LARGEST = 127
# a smaller matrix is read in less time than it takes to round a few rows
SMALLEST_WEIGHT = 2**19


class Int8Weight(PackedWeight):
    """A copy of a weight in int8 with a scale for each of its rows. The rows of the input are rounded to int8 as well.

    They, too, have a scale each, so that what a sentence becomes does not depend on the others of its batch.
    """

    def __init__(self, largest: int = LARGEST) -> None:
        super().__init__()
        self.largest = largest

    def __reduce__(self) -> Any:
        return Int8Weight, (self.largest,)

    def takes(self, num_rows: int, weight: torch.Tensor) -> bool:
        return weight.numel() >= SMALLEST_WEIGHT  # whatever the rows are: a batch equals its sentences

    def product(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        packed, scales, zeros = self.of(weight)
        largest = input.abs().amax(dim=-1, keepdim=True)
        rounded = (input * (LARGEST / largest)).round_().to(torch.int8)  # a row of zeros: anything, times zero
        output = ONEDNN_INT8(  # type: ignore[misc]
            rounded, 1.0, 0, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return output.mul_(largest) if bias is None else torch.addcmul(bias, output, largest)

    def pack(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        scales = weight.abs().amax(dim=1).clamp(min=torch.finfo(weight.dtype).tiny) / self.largest
        rounded = (weight / scales.unsqueeze(1)).round().to(torch.int8)
        packed = torch.ops.onednn.qlinear_prepack(rounded, [MOST_PACKED_ROWS, weight.shape[1]])
        return packed, scales / LARGEST, torch.zeros(len(weight), dtype=torch.long)

    def sample(self, weight: torch.Tensor) -> torch.Tensor:
        return weight[:0]  # a look at its version is enough: nobody reaches for int8 to train


def use_int8(model: nn.Module) -> nn.Module:
    """Lets any translation model multiply by int8 copies of its matrices where no gradient is asked for.

    That is for decoding on a CPU, where a step takes as long as it takes to read the matrices. The float32 weights
    stay: the model trains, saves and shares its embeddings as before, and the copies follow. Matrices that are small,
    and the LSTM and GRU layers of encoders, stay float32. A change through `.data` is not seen.

    Returns:
        The model, which is changed in place.
    """
    weight = next(model.parameters())
    if not weight.is_cpu or weight.dtype != torch.float32:
        raise ValueError(f"int8 is for float32 models on a CPU, got {weight.dtype} on {weight.device}")
    largest = largest_exact_weight()
    for module in model.modules():
        linear: Any = module
        if type(module) in (nn.Linear, FastLinear) and linear.weight.numel() >= SMALLEST_WEIGHT:
            linear.__class__ = PackedLinear  # an `nn.Linear` with one field more
            linear.packed = Int8Weight(largest)
        for name, value in vars(module).items():
            if isinstance(value, PackedWeight):
                setattr(module, name, Int8Weight(largest))
    return model


def largest_exact_weight() -> int:
    """The largest number of an int8 weight with which this processor's products are right.

    Older ones add two products in 16 bits, where the largest overflow; they need weights of 7 bits.
    """
    if ONEDNN_INT8 is None:
        raise RuntimeError("int8 needs PyTorch with oneDNN")
    ones = torch.ones(4, 512)
    weight = ones.repeat(8, 1) * torch.tensor([1.0, -1.0]).repeat(16).unsqueeze(1)
    for largest in (LARGEST, LARGEST // 2):
        if torch.allclose(Int8Weight(largest).product(ones, weight, None), ones @ weight.t()):
            return largest
    raise RuntimeError("int8 products are wrong on this processor")
