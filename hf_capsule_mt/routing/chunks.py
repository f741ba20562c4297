"""A routing over a few positions at a time, whose backward pass runs the iterations once more.

What one chunk computes stays in the processor's cache, and no iteration keeps its tensors for the backward pass: the
memory is that of the votes and of their gradient.

Legend: P positions, N input capsules, M output capsules, D width of an output capsule.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hf_capsule_mt.routing.common import is_on_host

# a function of votes [P, N, M, D], of what belongs to their positions and of what is the same for all, which returns
# capsules [P, M, D]
Route = Callable[..., torch.Tensor]


def chunk_numbers(tensor: torch.Tensor, total: int | None = None, max_on_host: int = 2**18) -> int:
    """Return how many numbers an elementwise pass should hold at once, of the `total` that it goes through.

    It is about a sixteenth of the total (by default, of the tensor), a power of two. On a CPU it is from 2^18, whose
    MiB stays in the cache of a core, to `max_on_host`. On a GPU it is from 2^22 to 2^25: a chunk has to be large
    enough to keep it busy, but its dozen buffers small beside the whole.
    """
    smallest, largest = (2**18, max_on_host) if is_on_host(tensor) else (2**22, 2**25)
    sixteenth = (tensor.numel() if total is None else total) // 16
    return min(max(1 << sixteenth.bit_length(), smallest), largest)


def chunk_rows(votes: torch.Tensor) -> int:
    """Return how many of the positions of votes [..., N, M, D] to work on at once."""
    return max(1, chunk_numbers(votes) // votes.shape[-3:].numel())


class _Recomputed(torch.autograd.Function):
    """A route whose backward pass runs it once more, with a graph.

    torch's checkpoint does the same, but calls Python for every tensor that an operation would keep: 15 % of the time
    of EM routing on a CPU. It also restores autocast, which changes nothing here: routings iterate in float32.
    """

    @staticmethod
    def forward(ctx: Any, route: Route, *tensors: torch.Tensor | None) -> torch.Tensor:
        ctx.route = route
        ctx.save_for_backward(*tensors)
        return route(*tensors)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_capsules: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, differentiated = [], []
        for tensor, needs_grad in zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True):
            inputs.append(tensor.detach().requires_grad_() if needs_grad else tensor)
            differentiated += inputs[-1:] if needs_grad else []
        with torch.enable_grad():
            capsules = ctx.route(*inputs)
        grads = iter(torch.autograd.grad(capsules, differentiated, grad_capsules))
        return (None, *(next(grads) if needs_grad else None for needs_grad in ctx.needs_input_grad[1:]))


def route_in_chunks(
    route: Route,
    votes: torch.Tensor,
    *beside: torch.Tensor | None,
    shared: Sequence[torch.Tensor] = (),
) -> torch.Tensor:
    """Return `route(votes, *beside, *shared)` [..., M, D], computed by chunks of positions.

    Args:
        votes: [..., N, M, D].
        beside: what belongs to the positions of the votes, [..., N] or [..., N, M], or `None`.
        shared: tensors that are the same at all positions.
    """
    leading, size = votes.dim() - 3, chunk_rows(votes)
    chunks = [
        itertools.repeat(None) if tensor is None else tensor.reshape(-1, *tensor.shape[leading:]).split(size)
        for tensor in (votes, *beside)
    ]
    capsules = [_Recomputed.apply(route, *chunk, *shared) for chunk in zip(*chunks, strict=False)]
    return torch.cat(capsules).view(*votes.shape[:leading], *votes.shape[-2:])
