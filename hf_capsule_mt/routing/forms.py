"""Which form of a routing runs: the one place where that is decided."""

import enum

import torch


class RoutingForm(enum.Enum):
    """The forms give the same numbers.

    PLAIN: the reference, a few lines per equation. It keeps every intermediate tensor for the backward pass, and is
        what a compiler wants to see.
    CHUNKED: the same arithmetic over a few positions at a time, in buffers that stay in the processor's cache, with
        a backward pass written by hand that recomputes them. Several times faster in eager PyTorch, and its memory
        is that of the votes and their gradient.
    """

    PLAIN = "plain"
    CHUNKED = "chunked"


def choose_form(votes: torch.Tensor, *, return_weights: bool, detach_routing: bool) -> RoutingForm:
    """The plain form where someone looks inside (weights, cut gradients) or a compiler will fuse it; else chunks."""
    if return_weights or detach_routing or torch.compiler.is_compiling() or votes.device.type == "meta":
        return RoutingForm.PLAIN
    return RoutingForm.CHUNKED


def chunk_rows(votes: torch.Tensor) -> int:
    """How many of the P positions of votes [P, N, M, D] to work on at once.

    On a CPU about 2^18 numbers (one MiB) stay in the cache; on a GPU a chunk has to be large enough to keep it busy.
    """
    numbers = 2**18 if votes.device.type == "cpu" else 2**25
    return max(1, numbers // votes.shape[1:].numel())
