"""A routing over a few positions at a time, whose backward pass runs the iterations once more.

What one chunk computes stays in the processor's cache, and no iteration keeps its tensors for the backward pass: the
memory is that of the votes and of their gradient.

Legend: P positions, N input capsules, M output capsules, D width of an output capsule.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hf_capsule_mt.routing.common import is_on_host

# a function of votes [P, N, M, D], of what belongs to their positions and of what is the same for all, which returns
# capsules [P, M, D]
Route = Callable[..., torch.Tensor]


def chunk_numbers(tensor: torch.Tensor, total: int | None = None, max_on_host: int = 2**18) -> int:
    """Return how many numbers an elementwise pass should hold at once, of the `total` that it goes through.

    It is a sixteenth to an eighth of the total (by default, of the tensor), a power of two. On a CPU it is from 2^18,
    whose MiB stays in the cache of a core, to `max_on_host`. On a GPU it is from 2^22 to 2^25: a chunk has to be
    large enough to keep it busy, but its dozen buffers small beside the whole.
    """
    smallest, largest = (2**18, max_on_host) if is_on_host(tensor) else (2**22, 2**25)
    sixteenth = (tensor.numel() if total is None else total) // 16
    return min(max(1 << sixteenth.bit_length(), smallest), largest)


def chunk_rows(votes: torch.Tensor) -> int:
    """Return how many of the positions of votes [..., N, M, D] to work on at once."""
    return max(1, chunk_numbers(votes) // votes.shape[-3:].numel())


class _InChunks(torch.autograd.Function):
    """A route over chunks of positions, whose backward pass runs each chunk once more, with a graph.

    torch's checkpoint does the same for a chunk, but calls Python for every tensor that an operation would keep. It
    also restores autocast, which changes nothing here: routings iterate in float32. Chunks that are slices, not
    results of `split`, write their gradients into one tensor while the cache has them; autograd would keep all until
    `cat` copies them.
    """

    @staticmethod
    def forward(ctx: Any, route: Route, num_split: int, *tensors: torch.Tensor | None) -> torch.Tensor:
        """The first `num_split` tensors [P, ...] are cut into chunks, the others are the same for all positions."""
        ctx.route, ctx.num_split = route, num_split
        ctx.save_for_backward(*tensors)
        votes: Any = tensors[0]
        capsules = votes.new_empty(votes.shape[0], *votes.shape[2:])
        for rows in _chunk_slices(votes):
            capsules[rows] = route(*_chunk(tensors, num_split, rows))
        return capsules

    @staticmethod
    def backward(ctx: Any, grad_capsules: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():  # by `create_graph`, which `once_differentiable` ignores if the loss is linear
            raise RuntimeError("a routing in chunks has only the first derivative: use `return_weights=True`")
        tensors, needs_grad = ctx.saved_tensors, ctx.needs_input_grad[2:]
        learned = [index for index, needed in enumerate(needs_grad) if needed]
        grads = {
            index: (torch.empty_like if index < ctx.num_split else torch.zeros_like)(tensors[index])
            for index in learned
        }
        for rows in _chunk_slices(tensors[0]):
            chunk: list[Any] = [
                None if tensor is None else tensor.detach() for tensor in _chunk(tensors, ctx.num_split, rows)
            ]
            inputs = [chunk[index].requires_grad_() for index in learned]
            with torch.enable_grad():
                capsules = ctx.route(*chunk)
            for index, grad in zip(learned, torch.autograd.grad(capsules, inputs, grad_capsules[rows]), strict=True):
                if index < ctx.num_split:
                    grads[index][rows] = grad
                else:
                    grads[index] += grad
        return (None, None, *(grads.get(index) for index in range(len(tensors))))


def _chunk_slices(votes: torch.Tensor) -> list[slice]:
    size = chunk_rows(votes)
    return [slice(start, start + size) for start in range(0, len(votes), size)]


def _chunk(tensors: Sequence[torch.Tensor | None], num_split: int, rows: slice) -> list[Any]:
    """Return the rows of the first `num_split` tensors, and the others as they are."""
    return [tensor if tensor is None or index >= num_split else tensor[rows] for index, tensor in enumerate(tensors)]


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
    flat = [None if tensor is None else tensor.reshape(-1, *tensor.shape[leading:]) for tensor in (votes, *beside)]
    capsules: torch.Tensor = _InChunks.apply(route, len(flat), *flat, *shared)
    return capsules.view(*votes.shape[:leading], *votes.shape[-2:])
