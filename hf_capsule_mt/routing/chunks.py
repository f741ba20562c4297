"""A routing over a few positions at a time, whose backward pass runs the iterations once more.

What one chunk computes stays in the processor's cache, and no iteration keeps its tensors for the backward pass: the
memory is that of the votes and of their gradient.

Legend: P positions, N input capsules, M output capsules, D width of an output capsule.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hf_capsule_mt.routing.common import is_on_host

# from votes [P, N, M, D] and what belongs to their positions or is the same for all, to capsules [P, M, D]
Route = Callable[..., torch.Tensor]


def chunk_numbers(tensor: torch.Tensor, total: int | None = None) -> int:
    """Return how many numbers an elementwise pass should hold at once, of the `total` that it goes through.

    On a CPU about 2^18 numbers (one MiB) stay in the cache. On a GPU a chunk has to be large enough to keep it busy,
    and the dozen buffers of one chunk small beside the whole: a sixteenth, as a power of two from 2^22 to 2^25. By
    default the total is the size of the tensor.
    """
    if is_on_host(tensor):
        return 2**18
    sixteenth = (tensor.numel() if total is None else total) // 16
    return min(max(1 << sixteenth.bit_length(), 2**22), 2**25)


def chunk_rows(votes: torch.Tensor) -> int:
    """Return how many of the P positions of votes [P, N, M, D] to work on at once."""
    return max(1, chunk_numbers(votes) // votes.shape[1:].numel())


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
    leading = votes.dim() - 3
    flat = [None if one is None else one.reshape(-1, *one.shape[leading:]) for one in (votes, *beside)]
    capsules: torch.Tensor = _InChunks.apply(route, len(flat), *flat, *shared)
    return capsules.view(*votes.shape[:leading], *votes.shape[-2:])


class _InChunks(torch.autograd.Function):
    """The first `number` tensors are cut into chunks, the others are shared."""

    @staticmethod
    def forward(ctx: Any, route: Route, number: int, *tensors: torch.Tensor | None) -> torch.Tensor:
        ctx.route, ctx.number = route, number
        ctx.save_for_backward(*tensors)
        votes: Any = tensors[0]
        capsules = votes.new_empty(votes.shape[0], *votes.shape[2:])
        for rows in _slices(votes):
            capsules[rows] = route(*_chunk(tensors, number, rows))
        return capsules

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_capsules: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        tensors = ctx.saved_tensors
        learns = ctx.needs_input_grad[2:]
        grads: list[Any] = [
            torch.zeros_like(tensor) if wanted else None for tensor, wanted in zip(tensors, learns, strict=True)
        ]
        for rows in _slices(tensors[0]):
            chunk: list[Any] = list(_chunk(tensors, ctx.number, rows))
            with torch.enable_grad():
                chunk = [
                    one if one is None else one.detach().requires_grad_(wanted)
                    for one, wanted in zip(chunk, learns, strict=True)
                ]
                capsules = ctx.route(*chunk)
            wanted = [place for place, one in enumerate(learns) if one]
            found = torch.autograd.grad(capsules, [chunk[place] for place in wanted], grad_capsules[rows])
            for place, grad in zip(wanted, found, strict=True):
                if place < ctx.number:
                    grads[place][rows] = grad
                else:
                    grads[place] += grad
        return None, None, *grads


def _slices(votes: torch.Tensor) -> list[slice]:
    size = chunk_rows(votes)
    return [slice(start, start + size) for start in range(0, len(votes), size)]


def _chunk(tensors: Sequence[torch.Tensor | None], number: int, rows: slice) -> list[torch.Tensor | None]:
    return [one if one is None or place >= number else one[rows] for place, one in enumerate(tensors)]
