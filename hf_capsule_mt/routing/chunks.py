"""A routing over a few positions at a time, whose backward pass runs the iterations once more.

What one chunk computes stays in the processor's cache, and no iteration keeps its tensors for the backward pass: the
memory is that of the votes and of their gradient.

Legend: P positions, N input capsules, M output capsules, D width of an output capsule.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch.utils.checkpoint import checkpoint

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
    leading, size = votes.dim() - 3, chunk_rows(votes)
    chunks = [
        itertools.repeat(None) if tensor is None else tensor.reshape(-1, *tensor.shape[leading:]).split(size)
        for tensor in (votes, *beside)
    ]
    if torch.is_grad_enabled():
        route = partial(checkpoint, route, use_reentrant=False, preserve_rng_state=False)
    capsules = [route(*chunk, *shared) for chunk in zip(*chunks, strict=False)]
    return torch.cat(capsules).view(*votes.shape[:leading], *votes.shape[-2:])
