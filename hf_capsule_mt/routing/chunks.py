"""What the chunked forms share: positions flattened, cut into chunks, and the small steps over one chunk.

Legend: P positions of a chunk, N input capsules, M output capsules, D width of an output capsule.
"""

import torch

from hf_capsule_mt.routing.common import iteration_dtype
from hf_capsule_mt.routing.forms import chunk_rows


def flatten_positions(tensor: torch.Tensor | None, num_trailing: int) -> torch.Tensor | None:
    """[..., trailing] -> [positions, trailing]."""
    return None if tensor is None else tensor.reshape(-1, *tensor.shape[tensor.dim() - num_trailing :])


def chunk_slices(votes: torch.Tensor) -> list[slice]:
    """The positions of votes [positions, N, M, D] in pieces of `chunk_rows`."""
    size = chunk_rows(votes)
    return [slice(start, start + size) for start in range(0, len(votes), size)]


def chunk_values(
    rows: slice, votes: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One chunk: its votes [P, N, M, D] in the dtype of the iterations, and its mask [P, N, 1]."""
    return votes[rows].to(iteration_dtype(votes)), None if mask is None else mask[rows].unsqueeze(-1)


def shares_(log_mass: torch.Tensor, keep: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """R / sum_n R [P, N, M] and sum_n R [P, M] from log R [P, N, M], which is overwritten."""
    if keep is not None:
        log_mass.masked_fill_(~keep, torch.finfo(log_mass.dtype).min)
    peak = log_mass.amax(dim=1, keepdim=True)  # [P, 1, M]
    share = log_mass.sub_(peak).exp_()
    if keep is not None:
        share.mul_(keep)
    total = share.sum(dim=1, keepdim=True).clamp_(min=1)  # at least 1, unless the mask keeps nothing
    total_mass = peak.exp_().mul_(total).squeeze(1)
    return share.div_(total), total_mass


def sum_width(tensor: torch.Tensor) -> torch.Tensor:
    """[P, N, M, D] -> [P, N, M]; without a copy where D is 1, the setting of the papers."""
    return tensor.squeeze(-1) if tensor.shape[-1] == 1 else tensor.sum(dim=-1)
