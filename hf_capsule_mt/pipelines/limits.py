"""How long a source and a translation may become, and whether a translation was cut at its limit."""

from typing import Any

import torch
from transformers import LogitsProcessor

LIMIT_NAMES = ("max_length", "max_new_tokens", "generation_config", "max_time", "stopping_criteria")
# what transformers puts into a generation config by itself, which nobody has chosen
TRANSFORMERS_MAX_LENGTH = 20
# a tokenizer's `model_max_length` above this says that it knows none
NO_LIMIT = 1_000_000


class SourceLengthLimit(LogitsProcessor):
    """Ends each translation at a limit of its own, by leaving nothing but the end token.

    So a translation does not depend on the sources that are in its batch.
    """

    def __init__(self, limits: torch.Tensor, last_limit: int | None, end_token_id: int) -> None:
        """limits [B]: how many tokens may follow the decoder's start token, the end token included.

        At `last_limit`, and so at a limit beyond it, `generate()` stops by itself, without an end token.
        """
        self.limits = limits
        self.last_limit = last_limit
        self.lowest = int(limits.min())
        self.end_token_id = end_token_id

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The tokens of each hypothesis [B * beams, T], the start token included; scores [B * beams, V]."""
        length = input_ids.shape[1]
        if length < self.lowest or length == self.last_limit:
            return scores
        at_limit = (self.limits <= length).repeat_interleave(len(scores) // len(self.limits))
        ended = torch.full_like(scores, -torch.inf)
        ended[:, self.end_token_id] = 0.0
        return torch.where(at_limit[:, None], ended, scores)


def max_source_tokens(model: Any, tokenizer: Any) -> int | None:
    """The longest source in tokens that the model has positions for, as far as it or its tokenizer says."""
    known = (getattr(model.config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None))
    limits = [limit for limit in known if limit is not None and 0 < limit < NO_LIMIT]
    return min(limits, default=None)


def limits_by_source(source_lengths: torch.Tensor) -> torch.Tensor:
    """How many tokens a translation of so many tokens [B] may have: [B].

    Three times the source and thirty more is beyond any real translation: what gets there repeats itself.
    """
    return 3 * source_lengths + 30


def limit_of_checkpoint(model: Any) -> int | None:
    """The number of tokens after the start token that the checkpoint allows, or that it has positions for."""
    saved = model.generation_config
    positions = getattr(model.config, "max_position_embeddings", None)
    limits = [] if positions is None else [positions - 1]
    if saved.max_new_tokens is not None:
        limits.append(saved.max_new_tokens)
    elif saved.max_length is not None and saved.max_length != TRANSFORMERS_MAX_LENGTH:
        limits.append(saved.max_length - 1)
    return max(min(limits), 1) if limits else None


def given_limit(model: Any, generate_kwargs: dict[str, Any]) -> int | None:
    """The number of tokens after the start token at which `generate()` stops, if these settings say it."""
    settings = generate_kwargs.get("generation_config") or model.generation_config
    for source in (generate_kwargs, vars(settings)):
        if source.get("max_new_tokens") is not None:
            return int(source["max_new_tokens"])
        if source.get("max_length") is not None:
            return int(source["max_length"]) - 1
    return None


def end_token_ids(model: Any, generate_kwargs: dict[str, Any]) -> list[int]:
    settings = generate_kwargs.get("generation_config") or model.generation_config
    ids = generate_kwargs.get("eos_token_id", getattr(settings, "eos_token_id", None))
    if ids is None:
        ids = getattr(model.config, "eos_token_id", None)
    if ids is None:
        return []
    return [int(ids)] if isinstance(ids, int) else [int(token_id) for token_id in ids]


def generated_lengths(sequences: torch.Tensor, end_ids: list[int]) -> torch.Tensor:
    """How many tokens follow the start token in each sequence [N, T], up to the first end token, which counts: [N]."""
    body = sequences[:, 1:]
    is_end = torch.isin(body, torch.tensor(end_ids, device=body.device))
    before_first_end = is_end.cumsum(dim=1).eq(0)
    return before_first_end.sum(dim=1) + is_end.any(dim=1).long()
