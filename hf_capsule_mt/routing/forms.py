"""Choose the form of a routing: plain, chunked or compiled."""

import enum
import functools
import os
from collections.abc import Callable
from typing import Any

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
    """

    PLAIN = "plain"
    CHUNKED = "chunked"
    COMPILED = "compiled"


_preferred = RoutingForm(os.environ.get("HF_CAPSULE_MT_ROUTING", "chunked"))


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
