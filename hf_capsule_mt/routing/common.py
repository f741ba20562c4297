"""Result type and argument checks of all routing functions."""

import contextlib
import math
from typing import Any, NamedTuple

import torch

HOST = "cpu"
LOG2_E = 1 / math.log(2)


class RoutingOutput(NamedTuple):
    """The result of a routing function.

    capsules: the output capsules [..., M, D], in the dtype of the votes.
    weights: the assignment probabilities [..., N, M], one tensor per iteration: C of that iteration's weighted
        sum. Over the output capsules they sum to one for every input capsule that the mask keeps, and are
        zero for the others. `None` when they were not asked for.
    """

    capsules: torch.Tensor
    weights: tuple[torch.Tensor, ...] | None


def check_votes(votes: torch.Tensor, num_iterations: int, mask: torch.Tensor | None) -> None:
    """Check that votes are [..., N, M, D], iterations at least one, and a mask bools [..., N]."""
    if not isinstance(votes, torch.Tensor):
        raise TypeError(f"`votes` must be a tensor of shape [..., N, M, D], got {type(votes).__name__}")
    if votes.dim() < 3 or not votes.is_floating_point():
        raise ValueError(
            f"`votes` must be a floating point tensor of shape [..., N, M, D], got {votes.dtype} of shape "
            f"{list(votes.shape)}"
        )
    if 0 in votes.shape[-3:]:
        raise ValueError(f"`votes` [..., N, M, D] needs at least one of each, got shape {list(votes.shape)}")
    check_num_iterations(num_iterations)
    if mask is not None:
        check_shape("mask", mask, votes.shape[:-2], votes)
        if mask.dtype != torch.bool:
            raise ValueError(f"`mask` must be a bool tensor in which True keeps an input capsule, got {mask.dtype}")


def check_num_iterations(num_iterations: int) -> None:
    if isinstance(num_iterations, bool) or not isinstance(num_iterations, int) or num_iterations < 1:
        raise ValueError(f"`num_iterations` must be an integer of at least 1, got {num_iterations!r}")


def check_shape(name: str, tensor: torch.Tensor, expected: torch.Size, votes: torch.Tensor) -> None:
    if tensor.shape != expected:
        raise ValueError(
            f"`{name}` must have shape {list(expected)} for `votes` of shape {list(votes.shape)}, "
            f"got {list(tensor.shape)}"
        )


def uniform_log_assignment(votes: torch.Tensor) -> torch.Tensor:
    """Return log C of the first iteration [..., N, 1], which is the same for all outputs."""
    return votes.new_full((*votes.shape[:-2], 1), -math.log(votes.shape[-2]))


def without_masked(logits: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return logits [..., N, M] so low where a mask [..., N] is False that they add nothing to a sum, but finite."""
    return logits if mask is None else logits.masked_fill(~mask.unsqueeze(-1), torch.finfo(logits.dtype).min)


def exp(values: torch.Tensor, peak: torch.Tensor | None = None) -> torch.Tensor:
    """Return e^x, or e^(x - peak), as 2^(x log2 e).

    Sharp routings have log C far below -88, where e^x underflows. There torch.exp takes many times as long on a
    CPU (MKL; torch 2.13). exp2 does not, and is not slower elsewhere.
    """
    exponents = values * LOG2_E if peak is None else (values - peak).mul_(LOG2_E)
    return exponents.exp2_()


def zero_masked(assignment: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return C [..., N, M] with zeros where a mask [..., N] is False."""
    return assignment if mask is None else assignment * mask.unsqueeze(-1)


def sum_width(values: torch.Tensor, keepdim: bool = False) -> torch.Tensor:
    """Return the sum over the last dimension [..., D] -> [...], or [..., 1].

    At D = 1 it is a view: on a CPU, a sum of one number takes longer than a product (torch 2.13).
    """
    if values.shape[-1] == 1:
        return values if keepdim else values.squeeze(-1)
    return values.sum(dim=-1, keepdim=keepdim)


def sum_inputs(weight: torch.Tensor | None, values: torch.Tensor) -> torch.Tensor:
    """Return sum_n weight_nm x_nmd [..., M, D] of [..., N, 1 or M] (`None`: of ones) and x [..., N, M, D]."""
    return (values if weight is None else weight.unsqueeze(-1) * values).sum(dim=-3)


def with_weights(capsules: torch.Tensor, assignments: list[torch.Tensor], votes: torch.Tensor) -> RoutingOutput:
    """Return the result of a routing of votes [..., N, M, D] with C of every iteration [..., N, 1 or M]."""
    shape = votes.shape[:-1]
    return RoutingOutput(capsules, tuple(assignment.expand(shape).to(votes.dtype) for assignment in assignments))


def is_on_host(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is in the memory of the CPU."""
    return tensor.device.type == HOST


def may_read_values(tensor: torch.Tensor) -> bool:
    """Return whether a decision may depend on the values of a tensor.

    It may not on an accelerator, where the host would wait for all queued work, nor while a compiler traces.
    """
    return is_on_host(tensor) and not torch.compiler.is_compiling()


def is_traced(tensor: torch.Tensor) -> bool:
    """Return whether a compiler traces the call, which fuses and recomputes by itself, or the tensor lacks values."""
    return torch.compiler.is_compiling() or tensor.device.type == "meta"


def iteration_dtype(votes: torch.Tensor) -> torch.dtype:
    """Return the dtype that routing iterates in: float64 for float64 votes, else float32."""
    return torch.promote_types(votes.dtype, torch.float32)


def without_autocast(tensor: torch.Tensor) -> contextlib.AbstractContextManager[Any]:
    """Disable autocast: matrix products inside keep the dtype of their arguments."""
    if tensor.device.type == "meta":
        return contextlib.nullcontext()
    return torch.autocast(tensor.device.type, enabled=False)
