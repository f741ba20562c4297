"""The parts of Marian's Transformer: positions, multi-head attention and the two kinds of layer.

The names and order of the parameters equal transformers' Marian's, so that its checkpoints load as they are. Two
modules can be replaced: the output projection of an attention, to aggregate heads (`head_aggregation.py`), and the
self-attention of the decoder's layers, by an SSRU (`ssru.py`).

Legend: B batch, S source positions, T target positions, K positions attended to, H heads, d model width. In every mask
`True` keeps.
"""

from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.modeling.attention_masks import OWN_ATTENTION, additive_mask, bidirectional_mask, implementation_of
from hf_capsule_mt.modeling.head_aggregation import AddedHeadAggregation, HeadAggregation
from hf_capsule_mt.modeling.outputs import IterationWeights
from hf_capsule_mt.modeling.positions import sinusoids
from hf_capsule_mt.modeling.ssru import SSRU


class SinusoidalPositions(nn.Embedding):
    """Fixed positions: transformers' Marian's, or Marian's own."""

    def __init__(self, config: CapsuleMarianConfig) -> None:
        self.marian_positions = config.marian_positions
        super().__init__(config.max_position_embeddings, config.d_model, _freeze=True)

    def create_weight(self) -> torch.Tensor:
        """[positions, d], computed in float64."""
        return sinusoids(*self.weight.shape, last_exponent=self.marian_positions).to(self.weight.dtype)

    @torch.no_grad()
    def forward(self, length: int, start: int | torch.Tensor = 0) -> torch.Tensor:  # type: ignore[override]
        """Return the positions [length, d] from `start` on."""
        return super().forward(torch.arange(length, device=self.weight.device) + start)


class MultiHead(nn.Module):
    """Attention by heads; `out_proj` is W^O, or routes them; `added_routing` adds to W^O."""

    def __init__(self, config: CapsuleMarianConfig, site: str, layer: int) -> None:
        super().__init__()
        self.config = config
        self.layer = layer
        self.num_heads = config.encoder_attention_heads if site == "encoder_self" else config.decoder_attention_heads
        self.head_width = config.d_model // self.num_heads
        self.is_causal = site == "decoder_self"
        self.is_cross = site == "cross"
        self.k_proj = nn.Linear(config.d_model, config.d_model)
        self.v_proj = nn.Linear(config.d_model, config.d_model)
        self.q_proj = nn.Linear(config.d_model, config.d_model)
        self.out_proj: nn.Module = (
            HeadAggregation(config, self.num_heads)
            if config.aggregates_heads(site, layer) and config.head_aggregation_placement == "replaces"
            else nn.Linear(config.d_model, config.d_model)
        )
        self.added_routing: AddedHeadAggregation | None = (
            AddedHeadAggregation(config, self.num_heads)
            if config.aggregates_heads(site, layer) and config.head_aggregation_placement == "adds"
            else None
        )

    def split_heads(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, T, d] -> [B, H, T, d / H]."""
        return hidden.unflatten(-1, (self.num_heads, self.head_width)).transpose(1, 2)

    def keys_and_values(
        self, source: torch.Tensor, cache: EncoderDecoderCache | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Project keys and values [B, H, K, d / H]: the encoder's once per sentence, the decoder's into the cache."""
        if cache is None:
            return self.split_heads(self.k_proj(source)), self.split_heads(self.v_proj(source))
        if self.is_cross and cache.is_updated.get(self.layer):
            cached: Any = cache.cross_attention_cache.layers[self.layer]
            return cached.keys, cached.values
        half: Cache = cache.cross_attention_cache if self.is_cross else cache.self_attention_cache
        keys, values = half.update(
            self.split_heads(self.k_proj(source)), self.split_heads(self.v_proj(source)), self.layer
        )
        if self.is_cross:
            cache.is_updated[self.layer] = True
        return keys, values

    def forward(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor | None = None,
        encoder_hidden: torch.Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        output_attentions: bool = False,
        output_routing_weights: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, IterationWeights | None]:
        """Queries [B, T, d] -> output [B, T, d], attention weights [B, H, T, K] and routing weights, if asked for."""
        queries = self.split_heads(self.q_proj(hidden))
        keys, values = self.keys_and_values(hidden if encoder_hidden is None else encoder_hidden, cache)
        dropout = self.config.attention_dropout if self.training else 0.0
        heads, attention_weights = self.attend(queries, keys, values, mask, dropout, output_attentions)
        heads = heads.transpose(1, 2).flatten(-2)  # [B, T, d]
        if isinstance(self.out_proj, HeadAggregation):
            output, routing_weights = self.out_proj(heads, output_routing_weights)
        else:
            output, routing_weights = self.out_proj(heads), None
        if self.added_routing is not None:
            addend, routing_weights = self.added_routing(heads, output_routing_weights)
            output = output + addend
        return output, attention_weights, routing_weights

    def attend(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor | None,
        dropout: float,
        output_attentions: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """[B, H, T, d / H] -> [B, H, T, d / H] and the attention weights [B, H, T, K], if asked for.

        transformers' other implementations (flash, flex, kernels of the hub) do not see a flash mask of the source
        [B, K]: they would take it for one of the queries, too, so that attention to a padded source is computed by
        sdpa (huggingface/transformers#35032).
        """
        scaling = self.head_width**-0.5
        implementation = implementation_of(self.config, output_attentions)
        if self.is_cross and isinstance(mask, torch.Tensor) and mask.dim() == 2:  # flex has masks of its own kind
            mask, implementation = bidirectional_mask(mask, queries.shape[2]), "sdpa"
        if implementation not in OWN_ATTENTION:
            attend = ALL_ATTENTION_FUNCTIONS[implementation]
            output, _ = attend(self, queries, keys, values, mask, dropout=dropout, scaling=scaling)
            return output.transpose(1, 2), None
        if implementation == "sdpa":
            query_length = queries.shape[2]
            is_causal = query_length > 1 and mask is None and self.is_causal
            if is_causal and keys.shape[2] > query_length:  # the first call with a preallocated cache
                keys, values = keys[:, :, :query_length], values[:, :, :query_length]
            output = nn.functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, dropout_p=dropout, scale=scaling, is_causal=is_causal
            )
            return output, None
        scores = torch.matmul(queries, keys.transpose(2, 3)) * scaling
        if mask is not None:
            scores = scores + (additive_mask(mask, scores.dtype) if mask.dtype == torch.bool else mask)
        weights = nn.functional.dropout(scores.softmax(dim=-1), p=dropout)
        return torch.matmul(weights, values), weights if output_attentions else None


class TransformerLayer(GradientCheckpointingLayer):
    """Base of encoder and decoder layers: dropout, and the feed-forward network."""

    config: CapsuleMarianConfig
    fc1: nn.Linear
    fc2: nn.Linear

    def dropout(self, hidden: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(hidden, p=self.config.dropout, training=self.training)

    def feed_forward(self, hidden: torch.Tensor) -> torch.Tensor:
        inner = ACT2FN[self.config.activation_function](self.fc1(hidden))
        inner = nn.functional.dropout(inner, p=self.config.activation_dropout, training=self.training)
        return self.fc2(inner)


class EncoderLayer(TransformerLayer):
    """Self-attention and feed-forward, each followed by dropout, residual and layer normalisation."""

    def __init__(self, config: CapsuleMarianConfig, layer: int) -> None:
        super().__init__()
        self.config = config
        self.self_attn = MultiHead(config, "encoder_self", layer)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.fc1 = nn.Linear(config.d_model, config.encoder_ffn_dim)
        self.fc2 = nn.Linear(config.encoder_ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        output_attentions: bool = False,
        output_routing_weights: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, IterationWeights | None]:
        """[B, S, d] -> [B, S, d], the attention weights and the routing weights."""
        attended, attentions, weights = self.self_attn(
            hidden, mask, output_attentions=output_attentions, output_routing_weights=output_routing_weights
        )
        hidden = self.self_attn_layer_norm(hidden + self.dropout(attended))
        hidden = self.final_layer_norm(hidden + self.dropout(self.feed_forward(hidden)))
        if hidden.dtype == torch.float16:  # as transformers' Marian does: clamp what overflowed
            limit = torch.finfo(hidden.dtype).max - 1000
            hidden = torch.clamp(hidden, min=-limit, max=limit)
        return hidden, attentions, weights


# The result [B, T, d] of a decoder layer, the attention weights of its self- and its cross-attention, and the routing
# weights of both. A plain tuple: reentrant gradient checkpointing turns any other into one.
DecoderLayerOutput = tuple[
    torch.Tensor, torch.Tensor | None, torch.Tensor | None, IterationWeights | None, IterationWeights | None
]


class DecoderLayer(TransformerLayer):
    """Self-attention or an SSRU, attention to the encoder, and feed-forward.

    Each is followed by dropout, residual and layer normalisation. `self_attn` is causal self-attention or the SSRU.
    """

    def __init__(self, config: CapsuleMarianConfig, layer: int) -> None:
        super().__init__()
        self.config = config
        self.self_attn = (
            SSRU(config, layer) if config.decoder_self == "ssru" else MultiHead(config, "decoder_self", layer)
        )
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.encoder_attn = MultiHead(config, "cross", layer)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.fc1 = nn.Linear(config.d_model, config.decoder_ffn_dim)
        self.fc2 = nn.Linear(config.decoder_ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        encoder_hidden: torch.Tensor | None,
        encoder_mask: torch.Tensor | None,
        cache: EncoderDecoderCache | None = None,
        output_attentions: bool = False,
        output_routing_weights: bool = False,
    ) -> DecoderLayerOutput:
        """[B, T, d] and the encoder's states [B, S, d] -> `DecoderLayerOutput`."""
        options = {"output_attentions": output_attentions, "output_routing_weights": output_routing_weights}
        attended, attentions, weights = self.self_attn(hidden, mask, None, cache, **options)
        hidden = self.self_attn_layer_norm(hidden + self.dropout(attended))
        cross_attentions = cross_weights = None
        if encoder_hidden is not None:
            attended, cross_attentions, cross_weights = self.encoder_attn(
                hidden, encoder_mask, encoder_hidden, cache, **options
            )
            hidden = self.encoder_attn_layer_norm(hidden + self.dropout(attended))
        hidden = self.final_layer_norm(hidden + self.dropout(self.feed_forward(hidden)))
        return hidden, attentions, cross_attentions, weights, cross_weights
