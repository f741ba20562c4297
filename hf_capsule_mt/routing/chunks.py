"""Chunked computation: the size of a chunk, the split of positions into chunks, and small steps over one.

Legend: P positions of a chunk, N input capsules, M output capsules, D width of an output capsule.
"""

import torch

from hf_capsule_mt.routing.common import is_on_host, iteration_dtype


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


def product_numbers(tensor: torch.Tensor) -> int:
    """Return how many numbers the result of a matrix product should hold at once.

    More than in an elementwise pass: each product reads the whole matrix again.
    """
    return 2**22 if is_on_host(tensor) else 2**26


def chunk_rows(votes: torch.Tensor) -> int:
    """Return how many of the P positions of votes [P, N, M, D] to work on at once."""
    return max(1, chunk_numbers(votes) // votes.shape[1:].numel())


def flatten_positions(tensor: torch.Tensor | None, num_trailing: int) -> torch.Tensor | None:
    """[..., trailing] -> [positions, trailing]."""
    return None if tensor is None else tensor.reshape(-1, *tensor.shape[tensor.dim() - num_trailing :])


def chunk_slices(votes: torch.Tensor) -> list[slice]:
    """Split the positions of votes [positions, N, M, D] into slices of `chunk_rows`."""
    size = chunk_rows(votes)
    return [slice(start, start + size) for start in range(0, len(votes), size)]


def chunk_values(
    rows: slice, votes: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the votes [P, N, M, D] of one chunk, in the dtype of the iterations, and its mask [P, N, 1]."""
    return votes[rows].to(iteration_dtype(votes)), None if mask is None else mask[rows].unsqueeze(-1)


def exponential_weights(
    log_mass: torch.Tensor, keep: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split log R [P, N, M] into R over its peak [P, N, M], the sum of that over n [P, M], and the log peak [P, M]."""
    if keep is not None:
        log_mass = log_mass.masked_fill(~keep, torch.finfo(log_mass.dtype).min)
    peak = log_mass.amax(dim=1, keepdim=True)  # [P, 1, M]
    weight = (log_mass - peak).exp_()
    if keep is not None:
        weight.mul_(keep)
    total = weight.sum(dim=1).clamp_(min=1)  # at least 1, unless the mask keeps nothing
    return weight, total, peak.squeeze(1)


def sum_width(tensor: torch.Tensor) -> torch.Tensor:
    """[P, N, M, D] -> [P, N, M]; without a copy where D is 1, the setting of the papers."""
    return tensor.squeeze(-1) if tensor.shape[-1] == 1 else tensor.sum(dim=-1)


def weighted_sum(weight: torch.Tensor | None, values: torch.Tensor) -> torch.Tensor:
    """sum_n weight_nm x_nmd: [P, N, M] (None stands for ones) and [P, N, M, D] -> [P, M, D]."""
    return (values if weight is None else weight.unsqueeze(-1) * values).sum(dim=1)


def times_weight(weight: torch.Tensor | None, values: torch.Tensor) -> torch.Tensor:
    """weight_nm x_nmd: [P, N, M] (None stands for ones) and [P, N or 1, M, D] -> [P, N or 1, M, D]."""
    return values if weight is None else weight.unsqueeze(-1) * values
