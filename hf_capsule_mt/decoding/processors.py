"""Processors of logits that make `generate()` keep what a `SearchOptions` says of each source."""

from collections.abc import Sequence

import torch
from transformers import LogitsProcessor


class ForcedEnds(LogitsProcessor):
    """Ends translations at limits of their own, by leaving nothing but the end token.

    A translation then does not depend on the other sources of its batch.
    """

    def __init__(self, limits: Sequence[int], forced: Sequence[bool], end: int) -> None:
        """limits: how many tokens may follow the start token of each of B sources; forced: whether it ends there."""
        self.limits = [limit if is_forced else None for limit, is_forced in zip(limits, forced, strict=True)]
        self.lowest = min((limit for limit in self.limits if limit is not None), default=None)
        self.end = end

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The tokens of each hypothesis [B * beams, T], the start token included; scores [B * beams, V]."""
        length = input_ids.shape[1]
        if self.lowest is None or length < self.lowest:
            return scores
        reached = [limit is not None and limit <= length for limit in self.limits]
        at_limit = torch.tensor(reached, device=scores.device).repeat_interleave(len(scores) // len(reached))
        ended = torch.full_like(scores, -torch.inf)
        ended[:, self.end] = 0.0
        return torch.where(at_limit[:, None], ended, scores)


class TargetPrefix(LogitsProcessor):
    """Begins each translation with given tokens, by leaving nothing else at its first steps."""

    def __init__(self, prefixes: Sequence[Sequence[int]], first: int) -> None:
        """prefixes: the tokens of each of B sources, which may be none; `first`: how many tokens come before them."""
        self.prefixes = prefixes
        self.first = first

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The tokens of each hypothesis [B * beams, T], the start token included; scores [B * beams, V]."""
        index, copies = input_ids.shape[1] - self.first, len(scores) // len(self.prefixes)
        forced = [prefix[index] if 0 <= index < len(prefix) else -1 for prefix in self.prefixes]
        if max(forced) < 0:
            return scores
        tokens = torch.tensor(forced, device=scores.device).repeat_interleave(copies)[:, None]
        only = torch.full_like(scores, -torch.inf).scatter(1, tokens.clamp(min=0), 0.0)
        return torch.where(tokens >= 0, only, scores)


class FiniteLogits(LogitsProcessor):
    """Raises an error where the logits of a step are NaN: a NaN in a hidden state makes all of them so."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The tokens of each hypothesis [B * beams, T]; scores [B * beams, V], of which it looks at every 64th."""
        if scores[:, ::64].isnan().any():
            raise ValueError("the model's logits are not finite: its weights are damaged, or overflow in this dtype")
        return scores
