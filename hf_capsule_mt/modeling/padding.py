"""Padding of recurrent layers: masks, moving padding to the right, and running backwards from each sequence's end.

Legend: B batch, T positions, d width of a state. In every mask `True` keeps.
"""

import torch

from hf_capsule_mt.routing.common import may_read_values


def padding_mask_or_none(mask: torch.Tensor | None) -> torch.Tensor | None:
    """Return a padding mask [B, T] of any dtype as bools, or `None` if it is known to keep all."""
    return None if mask is None or (may_read_values(mask) and bool(mask.all())) else mask.bool()


def keep_first(lengths: torch.Tensor, num_positions: int) -> torch.Tensor:
    """Return the mask [B, T] of the first `lengths` [B] positions of sequences."""
    return torch.arange(num_positions, device=lengths.device) < lengths[:, None]


def reverse_sequences(hidden: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Reverse the first `lengths` [B] positions of each sequence [B, T, d], and leave the padding behind them."""
    positions = torch.arange(hidden.shape[1], device=hidden.device)
    lengths = lengths[:, None]
    return _gather_positions(hidden, torch.where(positions < lengths, lengths - 1 - positions, positions))


class Compaction:
    """Move the padding of sequences to their right, wherever it is, and back again.

    lengths: [B], how many positions of each sequence are words; `None` if all are known to be.
    """

    def __init__(self, mask: torch.Tensor | None) -> None:
        """mask: [B, T], True keeps."""
        self.mask = mask
        self.lengths: torch.Tensor | None = None
        self.positions: torch.Tensor | None = None  # [B, T], where each position goes
        if mask is None:
            return
        if not may_read_values(mask) or not bool(mask.all()):
            self.lengths = mask.sum(dim=1)
            if not may_read_values(mask) or bool((mask[:, 1:] > mask[:, :-1]).any()):
                padding = self.lengths[:, None] + (~mask).cumsum(dim=1)
                self.positions = torch.where(mask, mask.cumsum(dim=1), padding) - 1

    def compact(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, T, d] -> [B, T, d], padding last."""
        if self.positions is None:
            return hidden
        return torch.zeros_like(hidden).scatter(1, self.positions[..., None].expand_as(hidden), hidden)

    def restore(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, T, d], padding last -> [B, T, d], padding where it was."""
        return hidden if self.positions is None else _gather_positions(hidden, self.positions)


def _gather_positions(hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1]))
