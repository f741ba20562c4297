"""The state of an int8 checkpoint: `to_fast(model).save`."""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import torch
from torch import nn

from hf_capsule_mt.fast.programs import Program
from hf_capsule_mt.modeling.loading import from_codes

LARGEST = 127


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
