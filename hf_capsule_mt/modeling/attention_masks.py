"""Masks of attention, in the form that an attention implementation takes.

Legend: B batch, S source positions, T target positions, K positions attended to, d model width. In every mask
of booleans `True` keeps.
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.modeling.cache_names import cache_field
from hf_capsule_mt.modeling.padding import padding_mask_or_none

# computed in `transformer.py`; every other implementation is one of transformers' `ALL_ATTENTION_FUNCTIONS`
OWN_ATTENTION = ("eager", "sdpa")


def implementation_of(config: CapsuleMarianConfig, output_attentions: bool) -> str:
    """Return which implementation computes: only eager attention has weights to return."""
    return "eager" if output_attentions else config._attn_implementation


def source_mask(
    config: CapsuleMarianConfig,
    padding_mask: torch.Tensor | None,
    hidden: torch.Tensor,
    implementation: str,
    encoder_hidden: torch.Tensor | None = None,
) -> Any:
    """Return the mask of attention from states [B, T, d] to a source, by default to themselves.

    Our own two implementations have masks of their own: those of transformers wait for the device at each step, to
    read whether anything is padding.
    """
    if implementation in OWN_ATTENTION:
        return bidirectional_mask(padding_mask, hidden.shape[1])
    return create_bidirectional_mask(config, hidden, padding_mask, encoder_hidden_states=encoder_hidden)


def target_mask(
    config: CapsuleMarianConfig,
    padding_mask: torch.Tensor | None,
    hidden: torch.Tensor,
    cache: Cache | None,
    implementation: str,
) -> Any:
    """Return the causal mask of decoder states [B, T, d] that follow those in the cache."""
    if implementation in OWN_ATTENTION:
        return causal_mask(padding_mask, hidden, cache, implementation)
    return create_causal_mask(config, hidden, padding_mask, **cache_field(cache))


def check_mask_shape(mask: torch.Tensor) -> None:
    if mask.dim() != 2:
        raise ValueError(
            f"an attention mask must be [batch, tokens] or [batch, 1, tokens, tokens], got {list(mask.shape)}"
        )


def bidirectional_mask(padding_mask: torch.Tensor | None, query_length: int) -> torch.Tensor | None:
    """Expand a padding mask [B, K] to the form that `attend` takes [B, 1, T, K].

    A mask that has this form already is returned as it is.
    """
    if padding_mask is None or padding_mask.dim() == 4:
        return padding_mask
    check_mask_shape(padding_mask)
    return padding_mask.bool()[:, None, None, :].expand(-1, 1, query_length, -1)


def causal_mask(
    padding_mask: torch.Tensor | None,
    hidden: torch.Tensor,
    cache: Cache | None,
    implementation: str,
) -> torch.Tensor | None:
    """Build the mask [B, 1, T, K] of decoder states [B, T, d] that follow those in the cache.

    `None` for "sdpa" where nothing is masked, or only the future, which it sees by itself.
    """
    if padding_mask is not None and padding_mask.dim() == 4:
        return padding_mask
    if padding_mask is not None:
        check_mask_shape(padding_mask)
    batch_size, query_length = hidden.shape[:2]
    past_length = 0 if cache is None else cache.get_seq_length()
    key_length = query_length if cache is None else cache.get_mask_sizes(query_length, 0)[0]
    keep = padding_mask_or_none(padding_mask)
    preallocated = cache is not None and cache.is_compileable  # its unused slots must be masked
    if keep is None and implementation == "sdpa" and not preallocated and query_length in (1, key_length):
        return None
    queries = torch.arange(query_length, device=hidden.device) + past_length
    keys = torch.arange(key_length, device=hidden.device)
    mask = (keys <= queries[:, None])[None, None]  # [1, 1, T, K]
    if keep is not None:
        if keep.shape[1] < key_length:
            keep = nn.functional.pad(keep, (0, key_length - keep.shape[1]))
        mask = mask & keep[:, None, None, :key_length]
    return mask.expand(batch_size, 1, query_length, key_length)


def additive_mask(keep: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return 0 where `keep` is True and the lowest number elsewhere, to be added to attention scores."""
    return torch.where(keep, torch.zeros((), device=keep.device, dtype=dtype), torch.finfo(dtype).min)
