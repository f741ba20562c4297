"""Products with an int8 copy of the weight, on CPUs."""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

import torch
from torch import nn

from hf_capsule_mt.fast.linear import MOST_PACKED_ROWS, PackedWeight
from hf_capsule_mt.fast.programs import Program
from hf_capsule_mt.modeling.loading import from_codes

# None where PyTorch comes without oneDNN
ONEDNN_INT8: Any = (
    getattr(torch.ops.onednn, "qlinear_pointwise", None) if torch.backends.mkldnn.is_available() else None
)
LARGEST = 127
# oneDNN has fast kernels for unsigned inputs alone on processors without AMX: signed numbers are moved up by this
ZERO_POINT = 128
# a smaller matrix is read in less time than it takes to round a few rows
SMALLEST_WEIGHT = 2**19


class Int8Copy(NamedTuple):
    """A weight [out, in] in int8, as oneDNN packs it.

    scales: [out]. zeros: [out], all zero. half_above: [in], one half above the zero point.
    """

    packed: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    half_above: torch.Tensor


def int8_copy(weight: torch.Tensor, largest: int) -> Int8Copy:
    """Round a weight to whole numbers up to `largest`, with a scale for each of its rows."""
    scales = weight.abs().amax(dim=1).clamp(min=torch.finfo(weight.dtype).tiny) / largest
    rounded = (weight / scales.unsqueeze(1)).round().to(torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(rounded, [MOST_PACKED_ROWS, weight.shape[1]])
    zeros = torch.zeros(len(weight), dtype=torch.long)
    return Int8Copy(packed, scales / LARGEST, zeros, torch.full((weight.shape[1],), ZERO_POINT + 0.5))


def int8_product(input: torch.Tensor, copy: Int8Copy, bias: torch.Tensor | None) -> torch.Tensor:
    """[..., in], [out, in] and [out] -> [..., out]; the rows of the input are rounded with a scale for each."""
    packed, scales, zeros, half_above = copy
    largest = input.abs().amax(dim=-1, keepdim=True)
    # Integers cut off what follows the point. Those of 16 bits come in between because vector instructions make them.
    # In a row of zeros the rounded numbers are arbitrary, and multiplied by zero below.
    rounded = torch.addcdiv(half_above, input, largest, value=LARGEST).to(torch.int16).to(torch.uint8)
    output: torch.Tensor = ONEDNN_INT8(
        rounded, 1.0, ZERO_POINT, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return output.mul_(largest) if bias is None else torch.addcmul(bias, output, largest, out=output)


class Int8Weight(PackedWeight):
    """`nn.functional.linear` with a copy of the weight in int8, one scale for each of its rows.

    The rows of the input are rounded to eight bits as well, and each has its own scale: a sentence gets the same
    numbers alone and in a batch. A change of the weight through `.data` is not seen.
    """

    def __init__(self, largest: int = LARGEST) -> None:
        super().__init__()
        self.largest = largest

    def __reduce__(self) -> Any:
        return Int8Weight, (self.largest,)

    def takes(self, num_rows: int, weight: torch.Tensor) -> bool:
        return weight.numel() >= SMALLEST_WEIGHT  # for any number of rows: a batch equals its sentences

    def product(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return int8_product(input, self.of(weight), bias)

    def pack(self, weight: torch.Tensor) -> "Int8Copy":
        return int8_copy(weight, self.largest)

    def sample(self, weight: torch.Tensor) -> torch.Tensor:
        return weight[:0]  # its version is enough: nobody trains with int8


def largest_exact_weight() -> int:
    """Return the largest number of an int8 weight with which this processor's products are right.

    Older processors add two products in 16 bits, which overflow with the largest; they need weights of 7 bits.
    """
    if ONEDNN_INT8 is None:
        raise RuntimeError("int8 needs PyTorch with oneDNN")
    ones = torch.ones(4, 512)
    weight = ones.repeat(8, 1) * torch.tensor([1.0, -1.0]).repeat(16).unsqueeze(1)
    for largest in (LARGEST, LARGEST // 2):
        if torch.allclose(Int8Weight(largest).product(ones, weight, None), ones @ weight.t()):
            return largest
    raise RuntimeError("int8 products are wrong on this processor")


def int8_or_packed(weight: torch.Tensor, largest: int) -> PackedWeight:
    """Return an int8 product for a large matrix, and a float32 product for a small one."""
    return Int8Weight(largest) if weight.numel() >= SMALLEST_WEIGHT else PackedWeight()


def codes_of(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the codes of a weight [out, in] in int8, and the largest magnitude of each row [out]."""
    largest = weight.abs().amax(dim=1)
    factors = torch.full_like(largest, LARGEST) / largest  # as C divides; torch's scalar / tensor multiplies
    return (weight * factors[:, None]).nan_to_num().round().to(torch.int8), largest


def int8_state(model: nn.Module, program_of: Callable[[Any], Program]) -> dict[str, torch.Tensor]:
    """Return the state of an int8 checkpoint of a model in float32, whose weights are rounded on the way.

    A matrix is rounded if the program in int8 stays the same. What float16 holds exactly is kept in float16.
    """
    wanted = _in_int8(program_of(model))
    groups: dict[str, list[str]] = {}
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        if parameter.dim() == 2:
            groups.setdefault(re.sub(r"\d+", "", name), []).append(name)
    state: dict[str, torch.Tensor] = {}
    for names in groups.values():
        before = [parameters[name].clone() for name in names]
        codes = [codes_of(weight) for weight in before]
        for name, pair in zip(names, codes, strict=True):
            parameters[name].copy_(from_codes(*pair))
        if _in_int8(program_of(model)) == wanted:
            for name, (rounded, largest) in zip(names, codes, strict=True):
                state |= {f"{name}.codes": rounded, f"{name}.largest": largest}
        else:
            for name, weight in zip(names, before, strict=True):
                parameters[name].copy_(weight)
    tied = {id(parameter) for parameter in parameters.values()}
    buffers = {name: tensor for name, tensor in model.state_dict(keep_vars=True).items() if id(tensor) not in tied}
    for name, tensor in (parameters | buffers).items():
        if f"{name}.codes" not in state:
            half = tensor.half()
            state[name] = half if half.float().equal(tensor) else tensor
    return {name: tensor.detach().contiguous() for name, tensor in state.items()}


def _in_int8(program: Program) -> list[bytes]:
    """Return all numbers of a program whose matrices are in int8."""
    matrices = [tensor for linear in program.linears for tensor in (*codes_of(linear.weight), linear.bias)]
    found = [tensor for tensor in (*matrices, *program.vectors) if tensor is not None]
    return [sha256(tensor.contiguous().numpy().tobytes()).digest() for tensor in found]
