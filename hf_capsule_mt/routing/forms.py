"""Choose the form of a routing: plain, chunked, compiled, or kernels of another package."""

import enum
import functools
import os
from collections.abc import Callable
from typing import Any, Protocol

import torch

from hf_capsule_mt.routing.chunks import chunk_rows


class RoutingForm(enum.Enum):
    """The forms, which give the same numbers.

    PLAIN: the reference, a few lines per equation. It keeps every intermediate tensor for the backward pass, and a
        compiler can fuse it.
    CHUNKED: the same arithmetic over a few positions at a time, in buffers that stay in the processor's cache, with
        a backward pass written by hand that recomputes them. Several times faster in eager PyTorch, and its memory
        is that of the votes and their gradient.
    COMPILED: CHUNKED with `torch.compile` of the work on a chunk: up to twice as fast again, after some ten seconds of
        compilation. It needs a C++ compiler on a CPU and Triton on a GPU, so it has to be asked for. Guided routing
        has no such form and takes the chunked one.
    TRITON: kernels for a GPU, which read the votes once and iterate in registers. They need Triton and the package
        itself, run on CUDA tensors that are not float64, and hold at most 2^13 numbers of a position, N, M and D each
        rounded up to a power of two: 512 output capsules of width 1 for up to 16 input capsules, 1,024 for up to 8.
        What they do not take is CHUNKED. They have not run on a GPU yet, so they have to be asked for.
    """

    PLAIN = "plain"
    CHUNKED = "chunked"
    COMPILED = "compiled"
    TRITON = "triton"


class KernelRouting(Protocol):
    """The form TRITON: what `fast/triton_routing.py` registers, as the core imports nothing but PyTorch."""

    def takes(self, tensor: torch.Tensor) -> bool:
        """Return whether the kernels run on this device, in this dtype."""

    def takes_votes(self, votes: torch.Tensor, num_iterations: int) -> bool:
        """Return whether they also hold a position of these votes [..., N, M, D]."""

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
        """Return what `em_routing_chunked` returns."""

    def dynamic_routing(
        self, votes: torch.Tensor, mask: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
    ) -> torch.Tensor:
        """Return what `dynamic_routing_chunked` returns."""

    def additive_scores(self, query: torch.Tensor, keys: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Queries [R, T, D], keys [R, N, D] and w [D], in float32 -> [R, T, N]."""


_kernels: list[KernelRouting] = []
_preferred = RoutingForm(os.environ.get("HF_CAPSULE_MT_ROUTING", "chunked"))


def register_kernels(kernels: KernelRouting) -> None:
    """Offer the kernels that the form TRITON runs."""
    _kernels[:] = [kernels]


def kernels_for(votes: torch.Tensor, num_iterations: int) -> KernelRouting | None:
    """Return the kernels, if they are preferred and take these votes [..., N, M, D]."""
    if _preferred is not RoutingForm.TRITON or not _kernels or not _kernels[0].takes_votes(votes, num_iterations):
        return None
    return _kernels[0]


def kernels_for_scores(tensor: torch.Tensor) -> KernelRouting | None:
    """Return the kernels, if they are preferred and take scores of this device and dtype."""
    if _preferred is not RoutingForm.TRITON or not _kernels or not _kernels[0].takes(tensor):
        return None
    return _kernels[0]


def use_routing_form(form: RoutingForm | str) -> RoutingForm:
    """Prefer a form from now on, and return the previous one. HF_CAPSULE_MT_ROUTING sets the first.

    The plain form runs anyway when routing weights are returned or a compiler traces the call. Guided routing returns
    weights from its chunked form too.
    """
    global _preferred
    previous, _preferred = _preferred, RoutingForm(form)
    return previous


def choose_form(votes: torch.Tensor, *, return_weights: bool, detach_routing: bool) -> RoutingForm:
    """Return the plain form for weights, detached weights and compilers, else the preferred one."""
    if return_weights or detach_routing or torch.compiler.is_compiling() or votes.device.type == "meta":
        return RoutingForm.PLAIN
    return _preferred


def on_chunk(function: Callable[..., Any], num_rows: int, votes: torch.Tensor) -> Callable[..., Any]:
    """Return the function for a chunk of `num_rows`: compiled, if that form is preferred.

    The last chunk of a batch is shorter than the others and not worth a compilation of its own.
    """
    if _preferred is RoutingForm.COMPILED and num_rows == chunk_rows(votes):
        return _compiled(function)
    return function


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)
