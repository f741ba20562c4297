"""Routing on a GPU by Triton kernels: the form "triton" of `routing/forms.py`, registered when this room is imported.

Triton itself is imported when the form runs for the first time.

Legend: P positions, N input capsules, M output capsules, D width of an output capsule; of scores R rows, T queries,
N keys.
"""

import functools
import math
import os
import sys
from importlib.util import find_spec
from typing import Any

import torch

from hf_capsule_mt.routing.chunks import flatten_positions
from hf_capsule_mt.routing.forms import KernelRouting, register_kernels

# A backward program holds up to sixteen tiles of N x M x D numbers in registers, of which a multiprocessor has 65,536:
# compiled for Hopper, 2^12 numbers fit and 2^13 spill a little. Sizes count as the next power of two.
LARGEST_TILE = 2**13
NUMBERS_PER_THREAD = 16
LARGEST_NUM_ITERATIONS = 8  # the backward pass computes iteration t anew from the first one
PROGRAMS_PER_PROCESSOR = 8
SCORE_BLOCKS = {"BLOCK_T": 16, "BLOCK_N": 16, "BLOCK_D": 32}


@functools.cache
def kernels() -> Any:
    """Import the kernels, and Triton with them."""
    from hf_capsule_mt.fast import triton_kernels

    return triton_kernels


def is_interpreted() -> bool:
    """Return whether Triton runs its kernels in Python, on a CPU, to test them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def is_installed() -> bool:
    return sys.platform == "linux" and find_spec("triton") is not None


class TritonRouting(KernelRouting):
    """What runs on Triton, and where."""

    def takes(self, tensor: torch.Tensor) -> bool:
        on_its_device = tensor.is_cuda or (is_interpreted() and tensor.is_cpu)
        return on_its_device and tensor.dtype != torch.float64 and is_installed()

    def takes_votes(self, votes: torch.Tensor, num_iterations: int) -> bool:
        return (
            self.takes(votes) and math.prod(_tile(votes)) <= LARGEST_TILE and num_iterations <= LARGEST_NUM_ITERATIONS
        )

    def em_routing(
        self,
        votes: torch.Tensor,
        mask: torch.Tensor | None,
        input_activation: torch.Tensor | None,
        beta_a: torch.Tensor,
        beta_u: torch.Tensor,
        lambdas: tuple[float, ...],
        min_variance: float,
    ) -> torch.Tensor:
        capsules = _EMRoutingKernel.apply(
            _contiguous(flatten_positions(votes, 3)),
            _contiguous(flatten_positions(mask, 1)),
            _contiguous(flatten_positions(input_activation, 2)),
            beta_a.contiguous(),
            beta_u.contiguous(),
            lambdas,
            min_variance,
        )
        return capsules.view(*votes.shape[:-3], *votes.shape[-2:])

    def dynamic_routing(
        self, votes: torch.Tensor, mask: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
    ) -> torch.Tensor:
        capsules = _DynamicRoutingKernel.apply(
            _contiguous(flatten_positions(votes, 3)),
            _contiguous(flatten_positions(mask, 1)),
            num_iterations,
            normalize_total_input,
        )
        return capsules.view(*votes.shape[:-3], *votes.shape[-2:])

    def additive_scores(self, query: torch.Tensor, keys: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Queries [R, T, D], keys [R, N, D] and w [D], in float32 -> [R, T, N]."""
        return _AdditiveScoresKernel.apply(query.contiguous(), keys.contiguous(), weight.contiguous())


def _run(kernel: str, programs: tuple[int, ...], *arguments: Any, **settings: Any) -> None:
    """Launch a kernel on the device of its first tensor."""
    with torch.cuda.device_of(arguments[0]):
        getattr(kernels(), kernel)[programs](*arguments, **settings)


def _contiguous(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _tile(votes: torch.Tensor) -> tuple[int, int, int]:
    """The sizes N, M and D of a tile for votes [..., N, M, D], each a power of two."""
    num_inputs, num_outputs, width = (1 << (size - 1).bit_length() for size in votes.shape[-3:])
    return num_inputs, num_outputs, width


def _num_programs(votes: torch.Tensor) -> int:
    """How many programs share the positions of votes [P, N, M, D]."""
    if not votes.is_cuda:
        return min(len(votes), 2)
    processors = torch.cuda.get_device_properties(votes.device).multi_processor_count
    return min(len(votes), PROGRAMS_PER_PROCESSOR * processors)


def _launch(votes: torch.Tensor) -> dict[str, int]:
    """The tile of votes [P, N, M, D], and the warps that hold it."""
    blocks = _tile(votes)
    warps = max(1, math.prod(blocks) // (32 * NUMBERS_PER_THREAD))
    return dict(zip(("BLOCK_N", "BLOCK_M", "BLOCK_D"), blocks, strict=True)) | {"num_warps": warps}


class _EMRoutingKernel(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        votes: torch.Tensor,
        mask: torch.Tensor | None,
        input_activation: torch.Tensor | None,
        beta_a: torch.Tensor,
        beta_u: torch.Tensor,
        lambdas: tuple[float, ...],
        min_variance: float,
    ) -> torch.Tensor:
        ctx.save_for_backward(votes, mask, input_activation, beta_a, beta_u)
        ctx.settings = (lambdas, min_variance)
        capsules = votes.new_empty(votes.shape[0], *votes.shape[2:])
        if len(votes):
            inputs, settings = _em_arguments((votes, mask, input_activation, beta_a, beta_u), lambdas, min_variance)
            _run("em_forward", (_num_programs(votes),), *inputs, capsules, **settings)
        return capsules

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_capsules: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        votes, _, input_activation, beta_a, beta_u = ctx.saved_tensors
        grad_votes = torch.empty_like(votes)
        grad_activation = None if input_activation is None else torch.empty_like(input_activation)
        if not len(votes):
            return grad_votes, None, grad_activation, torch.zeros_like(beta_a), torch.zeros_like(beta_u), None, None
        inputs, settings = _em_arguments(ctx.saved_tensors, *ctx.settings)
        programs = _num_programs(votes)
        grad_betas = beta_a.new_empty(2, programs, len(beta_a))
        _run(
            "em_backward",
            (programs,),
            *inputs,
            grad_capsules.contiguous(),
            grad_votes,
            votes if grad_activation is None else grad_activation,
            *grad_betas,
            **settings,
        )
        grad_beta_a, grad_beta_u = grad_betas.sum(dim=1)
        return grad_votes, None, grad_activation, grad_beta_a, grad_beta_u, None, None


def _em_arguments(
    tensors: tuple[Any, ...], lambdas: tuple[float, ...], min_variance: float
) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]]:
    """The tensors that both EM kernels read, and their other arguments."""
    votes, mask, input_activation, beta_a, beta_u = tensors
    positions, num_inputs, num_outputs, width = votes.shape
    inputs = (
        votes,
        votes if mask is None else mask.view(torch.uint8),
        votes if input_activation is None else input_activation,
        beta_a,
        beta_u,
    )
    settings = {
        "P": positions,
        "N": num_inputs,
        "M": num_outputs,
        "D": width,
        "min_variance": min_variance,
        "constant": width * (1 + math.log(2 * math.pi)),
        "TEMPERATURES": lambdas,
        "ITERATIONS": len(lambdas),
        "HAS_MASK": mask is not None,
        "HAS_ACTIVATION": input_activation is not None,
    }
    return inputs, settings | _launch(votes)


class _DynamicRoutingKernel(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, votes: torch.Tensor, mask: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
    ) -> torch.Tensor:
        ctx.save_for_backward(votes, mask)
        ctx.settings = {
            **dict(zip("PNMD", votes.shape, strict=True)),
            "ITERATIONS": num_iterations,
            "NORMALIZE": normalize_total_input,
            "HAS_MASK": mask is not None,
            **_launch(votes),
        }
        capsules = votes.new_empty(votes.shape[0], *votes.shape[2:])
        if len(votes):
            _run("dynamic_forward", (_num_programs(votes),), *_dynamic_inputs(votes, mask), capsules, **ctx.settings)
        return capsules

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_capsules: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        votes, mask = ctx.saved_tensors
        grad_votes = torch.empty_like(votes)
        if len(votes):
            tensors = (*_dynamic_inputs(votes, mask), grad_capsules.contiguous(), grad_votes)
            _run("dynamic_backward", (_num_programs(votes),), *tensors, **ctx.settings)
        return grad_votes, None, None, None


def _dynamic_inputs(votes: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The votes, and the mask as bytes; the votes again, unread, where there is none."""
    return votes, votes if mask is None else mask.view(torch.uint8)


class _AdditiveScoresKernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, keys: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(query, keys, weight)
        (rows, num_queries, width), num_keys = query.shape, keys.shape[1]
        scores = query.new_empty(rows, num_queries, num_keys)
        if scores.numel():
            grid = (rows, _blocks(num_queries, "BLOCK_T"), _blocks(num_keys, "BLOCK_N"))
            _run("scores_forward", grid, query, keys, weight, scores, num_queries, num_keys, width, **SCORE_BLOCKS)
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
        query, keys, weight = ctx.saved_tensors
        (rows, num_queries, width), num_keys = query.shape, keys.shape[1]
        if not grad_scores.numel():
            return torch.zeros_like(query), torch.zeros_like(keys), torch.zeros_like(weight)
        grad_query, grad_keys = torch.empty_like(query), torch.empty_like(keys)
        grad_weight = weight.new_empty(rows * _blocks(num_queries, "BLOCK_T"), width)
        tensors = (query, keys, weight, grad_scores.contiguous(), grad_query, grad_keys, grad_weight)
        for of_keys, blocks in ((False, _blocks(num_queries, "BLOCK_T")), (True, _blocks(num_keys, "BLOCK_N"))):
            _run(
                "scores_backward",
                (rows, blocks, _blocks(width, "BLOCK_D")),
                *tensors,
                num_queries,
                num_keys,
                width,
                OF_KEYS=of_keys,
                **SCORE_BLOCKS,
            )
        return grad_query, grad_keys, grad_weight.sum(dim=0)


def _blocks(size: int, block: str) -> int:
    return -(-size // SCORE_BLOCKS[block])


register_kernels(TritonRouting())
