"""Decoding caches that also hold what a decoder computes once per sentence.

Legend: B batch, S source positions, d model width.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn
from transformers.cache_utils import Cache, EncoderDecoderCache

from hf_capsule_mt.routing.common import may_read_values

# Which rows of a batch translate the same sentence
SENTENCES = "sentences"


class SentenceConstants:
    """Mixin before a `Cache` of transformers: tensors that depend on the source alone.

    constants: tensors with the batch dimension first, which a step reads and never changes. They follow the rows of
        the batch, as the other tensors of the cache do.
    """

    constants: dict[str, torch.Tensor]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.constants = {}

    def number_sentences(self, source: torch.Tensor) -> None:
        """Note which neighbouring rows have the same source [B, S, d], so that beams do not move their constants."""
        if SENTENCES not in self.constants:
            changes = (source[1:] != source[:-1]).flatten(1).any(dim=1)
            self.constants[SENTENCES] = nn.functional.pad(changes.cumsum(dim=0), (1, 0))  # [B]

    def reset(self) -> None:
        cast(Cache, super()).reset()
        self.constants = {}

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        cast(Cache, super()).reorder_cache(cast(torch.LongTensor, beam_idx))
        sentences = self.constants.get(SENTENCES)
        if (
            sentences is not None
            and may_read_values(sentences)
            and torch.equal(sentences[beam_idx.to(sentences.device)], sentences)
        ):
            return  # every beam follows one of its own sentence, which has the same constants
        self._change_constants(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        cast(Cache, super()).batch_repeat_interleave(repeats)
        self._change_constants(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        cast(Cache, super()).batch_select_indices(indices)
        self._change_constants(lambda tensor: tensor[indices.to(tensor.device)])

    def _change_constants(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.constants = {name: change(tensor) for name, tensor in self.constants.items()}


class GuidedCache(SentenceConstants, EncoderDecoderCache):
    """The cache of a guided Transformer decoder: keys and values of its layers, and the constants of each sentence."""

    _is_user_defined: bool  # set by `generate` on a cache that outlives it


def guided_cache(cache: Cache) -> GuidedCache:
    """Return the cache itself if it has a place for constants, else one that shares its keys and values."""
    if isinstance(cache, GuidedCache):
        return cache
    if not isinstance(cache, EncoderDecoderCache):
        raise TypeError(f"`cache` must be an EncoderDecoderCache, got {type(cache).__name__}")
    guided = GuidedCache(cache.self_attention_cache, cache.cross_attention_cache)
    guided.is_updated = cache.is_updated
    if getattr(cache, "_is_user_defined", False):
        guided._is_user_defined = True
    return guided
