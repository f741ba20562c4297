"""Capsule Marian: Marian's encoder-decoder with a seam after each stack of layers, one in each attention, one between
the decoder and the vocabulary, and one for the decoder's own past.

With every switch of its configuration off it is transformers' MarianMTModel, parameter by parameter and bit by bit.
The seams: `layer_aggregation.py` (Dou et al. 2019) and `depth_aggregation.py` (its successors),
`head_aggregation.py` (Li et al. 2019), `past_future_guidance.py` (Zheng et al. 2019), whose losses are in
`guided_losses.py`, and `ssru.py` (Kim et al. 2019).

Legend: B batch, S source positions, T target positions, d model width, V vocabulary. In every mask `True` keeps.
"""

import math
import os
from typing import Any

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_masks_for_generate
from transformers.processing_utils import Unpack
from transformers.utils import can_return_tuple

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.modeling.aggregation_base import LayerAggregation, TopLayer
from hf_capsule_mt.modeling.attention_masks import implementation_of, source_mask, target_mask
from hf_capsule_mt.modeling.cache_names import cache_field, takes_both_cache_names
from hf_capsule_mt.modeling.coverage import PastFutureModel
from hf_capsule_mt.modeling.encoder_decoder import (
    ALL_TIED_TO_SHARED,
    TIED_TO_SHARED,
    CapsulePreTrainedModel,
    EncoderDecoderModel,
    Stack,
)
from hf_capsule_mt.modeling.guided_losses import GuidedLosses, build_guided_losses
from hf_capsule_mt.modeling.keywords import ForwardKwargs, refuses_misspelt
from hf_capsule_mt.modeling.layer_aggregation import (
    build_depth_connections,
    build_layer_aggregation,
    initialize_part,
)
from hf_capsule_mt.modeling.outputs import (
    CapsuleDecoderOutput,
    CapsuleEncoderOutput,
    IterationWeights,
    RoutingWeights,
    resolve_output_flags,
)
from hf_capsule_mt.modeling.past_future_guidance import build_guidance
from hf_capsule_mt.modeling.sentence_cache import guided_cache
from hf_capsule_mt.modeling.ssru import mask_of_new_tokens
from hf_capsule_mt.modeling.transformer import (
    DecoderLayer,
    EncoderLayer,
    SinusoidalPositions,
)
from hf_capsule_mt.modeling.warm_start import warm_start


class CapsuleMarianPreTrainedModel(CapsulePreTrainedModel):
    """Base of all classes of the family: initialisation."""

    config: CapsuleMarianConfig
    config_class = CapsuleMarianConfig
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _no_split_modules = ["EncoderLayer", "DecoderLayer"]
    _keys_to_ignore_on_load_missing = [r"final_logits_bias", r"embed_positions\.weight"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, SinusoidalPositions):
            init.copy_(module.weight, module.create_weight())
            module.weight.requires_grad_(False)
        elif isinstance(module, CapsuleMarianMTModel):
            init.zeros_(module.final_logits_bias)
        elif self.config.aggregates_layers_or_heads:
            initialize_part(module, self.config.init_std)

    def get_position_embeddings(self) -> Any:
        """Return the positions of an encoder or a decoder; of a model, those of both."""
        positions = tuple(module for module in self.modules() if isinstance(module, SinusoidalPositions))
        return positions[0] if len(positions) == 1 else positions

    @torch.no_grad()
    def resize_position_embeddings(self, new_num_position_embeddings: int) -> None:
        """Compute the sinusoids of another number of positions: of longer sequences, say.

        Raises:
            ValueError: the configuration does not take this `max_position_embeddings`.
        """
        old_number = self.config.max_position_embeddings
        self.config.max_position_embeddings = new_num_position_embeddings
        try:
            self.config.validate()
        except ValueError:
            self.config.max_position_embeddings = old_number
            raise
        for stack in self.modules():
            if isinstance(stack, TransformerStack):
                positions = SinusoidalPositions(self.config).to(stack.embed_positions.weight)
                positions.weight.copy_(positions.create_weight())
                stack.embed_positions = positions


class TransformerStack(CapsuleMarianPreTrainedModel, Stack):
    """Base of the encoder and the decoder: embedding, positions and LayerDrop."""

    embed_positions: SinusoidalPositions
    layer_aggregation: LayerAggregation | TopLayer
    gradient_checkpointing = False

    def embed(
        self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, start: int | torch.Tensor = 0
    ) -> torch.Tensor:
        """Token ids [B, T], or their embeddings [B, T, d], at the positions from `start` on -> [B, T, d]."""
        hidden = self.embeddings_of(input_ids, inputs_embeds)
        length = hidden.shape[1]
        if isinstance(start, int) and start + length > self.embed_positions.num_embeddings:
            raise ValueError(
                f"{type(self).__name__} got a sequence of {start + length} tokens, but `max_position_embeddings` is "
                f"{self.embed_positions.num_embeddings}"
            )
        if self.config.scale_embedding and (inputs_embeds is None or self.scales_given_embeddings):
            hidden = hidden * math.sqrt(self.config.d_model)
        hidden = hidden + self.embed_positions(length, start)
        return nn.functional.dropout(hidden, p=self.config.dropout, training=self.training)

    # transformers' Marian scales the embeddings that it is given in the decoder but not in the encoder
    scales_given_embeddings = True

    def aggregated(self, states: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return what the seam after the layers combines, of the embedding and the outputs of all layers."""
        return states if self.layer_aggregation.reads_embedding else states[1:] or states

    def check_source_mask(self, mask: torch.Tensor | None, hidden: torch.Tensor) -> None:
        """Refuse a padding mask that is not one of the source [B, S, d]; one row may stand for all."""
        if mask is not None and mask.dim() == 2 and not torch.compiler.is_compiling():
            rows, length = mask.shape
            if length != hidden.shape[1] or rows not in (1, hidden.shape[0]):
                raise ValueError(
                    f"`attention_mask` of {type(self).__name__} must be {list(hidden.shape[:2])}, got "
                    f"{list(mask.shape)}"
                )

    def drops_layer(self, probability: float) -> bool:
        """Decide whether to skip a layer this time (LayerDrop). A skipped layer's output is its input."""
        return self.training and probability > 0.0 and bool(torch.rand([]) < probability)


class CapsuleMarianEncoder(TransformerStack):
    """Transformer layers, and an aggregation of all of them if the configuration has one."""

    scales_given_embeddings = False

    def __init__(self, config: CapsuleMarianConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = SinusoidalPositions(config)
        self.layers = nn.ModuleList([EncoderLayer(config, layer) for layer in range(config.encoder_layers)])
        aggregates = config.aggregates_encoder_layers
        self.depth_connections = build_depth_connections(config, config.encoder_layers, aggregates)
        self.layer_aggregation = build_layer_aggregation(config, config.encoder_layers, aggregates)
        self.post_init()

    @can_return_tuple
    @refuses_misspelt
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_routing_weights: bool = False,
        **kwargs: Unpack[ForwardKwargs],
    ) -> CapsuleEncoderOutput:
        """Encode token ids [B, S] with their mask [B, S] to states [B, S, d]."""
        output_attentions, output_hidden_states = resolve_output_flags(
            self.config, output_attentions, output_hidden_states
        )
        hidden = self.embed(input_ids, inputs_embeds)
        self.check_has_words(hidden)
        self.check_source_mask(attention_mask, hidden)
        implementation = implementation_of(self.config, output_attentions)
        mask = source_mask(self.config, attention_mask, hidden, implementation)
        states, attentions = [hidden], []
        routings: dict[str, IterationWeights | None] = {}
        for number, layer in enumerate(self.layers):
            hidden, _ = self.depth_connections[number](states)
            if not self.drops_layer(self.config.encoder_layerdrop):
                hidden, layer_attentions, weights = layer(hidden, mask, output_attentions, output_routing_weights)
                attentions.append(layer_attentions)
                routings[f"encoder.layers.{number}.self_attn"] = weights
            states.append(hidden)
        hidden, weights = self.layer_aggregation(self.aggregated(states), output_routing_weights)
        routings["encoder.layer_aggregation"] = weights
        return CapsuleEncoderOutput(
            last_hidden_state=hidden,
            hidden_states=(*states[:-1], hidden) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
            routing_weights=_only_routings(routings) if output_routing_weights else None,
        )


class CapsuleMarianDecoder(TransformerStack):
    """Transformer layers, an aggregation as in the encoder, and PAST and FUTURE if the configuration has them."""

    def __init__(self, config: CapsuleMarianConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.target_vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = SinusoidalPositions(config)
        self.layers = nn.ModuleList([DecoderLayer(config, layer) for layer in range(config.decoder_layers)])
        aggregates = config.aggregates_decoder_layers
        self.depth_connections = build_depth_connections(config, config.decoder_layers, aggregates)
        self.layer_aggregation = build_layer_aggregation(config, config.decoder_layers, aggregates)
        self.guidance = build_guidance(config, config.d_model)
        self.post_init()

    @can_return_tuple
    @refuses_misspelt
    @takes_both_cache_names
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_routing_weights: bool = False,
        output_guided_capsules: bool = False,
        **kwargs: Unpack[ForwardKwargs],
    ) -> CapsuleDecoderOutput:
        """Decode token ids [B, T] after those in the cache, over encoder states [B, S, d], to states [B, T, d]."""
        output_attentions, output_hidden_states = resolve_output_flags(
            self.config, output_attentions, output_hidden_states
        )
        if use_cache is None:
            use_cache = self.config.use_cache
        if self.gradient_checkpointing and self.training:
            use_cache, cache = False, None
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        if cache is not None and not isinstance(cache, EncoderDecoderCache):
            cache = EncoderDecoderCache(cache, DynamicCache(config=self.config))
        guidance_constants = None
        if cache is not None and self.config.guided_routing != "none":
            cache = guidance_constants = guided_cache(cache)
        self_attention_cache = None if cache is None else cache.self_attention_cache
        start = 0 if self_attention_cache is None else self_attention_cache.get_seq_length()
        hidden = self.embed(input_ids, inputs_embeds, start)
        implementation = implementation_of(self.config, output_attentions)
        if self.config.decoder_self == "ssru":
            mask = mask_of_new_tokens(attention_mask, hidden.shape[1])
        else:
            mask = target_mask(self.config, attention_mask, hidden, self_attention_cache, implementation)
        encoder_mask = source_mask(self.config, encoder_attention_mask, hidden, implementation, encoder_hidden_states)
        states, attentions, cross_attentions = [hidden], [], []
        routings: dict[str, IterationWeights | None] = {}
        for number, layer in enumerate(self.layers):
            hidden, _ = self.depth_connections[number](states)
            if not self.drops_layer(self.config.decoder_layerdrop):
                hidden, layer_attentions, layer_cross_attentions, weights, cross_weights = layer(
                    hidden,
                    mask,
                    encoder_hidden_states,
                    encoder_mask,
                    cache=cache,
                    output_attentions=output_attentions,
                    output_routing_weights=output_routing_weights,
                )
                attentions.append(layer_attentions)
                cross_attentions.append(layer_cross_attentions)
                routings[f"decoder.layers.{number}.self_attn"] = weights
                routings[f"decoder.layers.{number}.encoder_attn"] = cross_weights
            states.append(hidden)
        hidden, weights = self.layer_aggregation(self.aggregated(states), output_routing_weights)
        routings["decoder.layer_aggregation"] = weights
        unguided_state = hidden
        hidden, guided_capsules, weights = self.guidance(
            hidden, encoder_hidden_states, encoder_attention_mask, guidance_constants, output_routing_weights
        )
        routings["decoder.guidance"] = weights
        has_self = output_attentions and self.config.decoder_self == "attention"
        has_cross = output_attentions and encoder_hidden_states is not None
        return CapsuleDecoderOutput(
            last_hidden_state=hidden,
            **cache_field(cache),
            hidden_states=(*states[:-1], hidden) if output_hidden_states else None,
            attentions=tuple(attentions) if has_self else None,
            cross_attentions=tuple(cross_attentions) if has_cross else None,
            routing_weights=_only_routings(routings) if output_routing_weights else None,
            guided_capsules=guided_capsules if output_guided_capsules else None,
            unguided_state=unguided_state if output_guided_capsules else None,
        )


def _only_routings(routings: dict[str, IterationWeights | None]) -> RoutingWeights:
    """Keep the places that have a routing."""
    return {routing: iterations for routing, iterations in routings.items() if iterations is not None}


class CapsuleMarianModel(CapsuleMarianPreTrainedModel, EncoderDecoderModel):
    """Encoder and decoder without the projection to the vocabulary."""

    encoder: CapsuleMarianEncoder
    decoder: CapsuleMarianDecoder

    # of the translation model's checkpoint
    _keys_to_ignore_on_load_unexpected = [r"^final_logits_bias$", r"^lm_head\.weight$", r"^guided_losses\."]

    def __init__(self, config: CapsuleMarianConfig) -> None:
        super().__init__(config)
        if config.share_encoder_decoder_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
            self._tied_weights_keys = dict(TIED_TO_SHARED)
        self.encoder = CapsuleMarianEncoder(config)
        self.decoder = CapsuleMarianDecoder(config)
        self.post_init()


class CapsuleMarianMTModel(CapsuleMarianPreTrainedModel, PastFutureModel, GenerationMixin):
    """The translation model: a [`CapsuleMarianModel`] and its projection to the vocabulary."""

    model: CapsuleMarianModel

    _tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}

    def __init__(self, config: CapsuleMarianConfig) -> None:
        super().__init__(config)
        self.model = CapsuleMarianModel(config)
        if config.share_encoder_decoder_embeddings:
            self._tied_weights_keys = dict(ALL_TIED_TO_SHARED)
        # When it resumes, the Trainer warns of missing weights unless they are exactly those that are not saved
        self._keys_to_ignore_on_save = [
            "model.encoder.embed_positions.weight",
            "model.decoder.embed_positions.weight",
            *(self._tied_weights_keys if config.tie_word_embeddings else ()),
        ]
        self.final_logits_bias: torch.Tensor
        self.register_buffer("final_logits_bias", torch.zeros((1, config.target_vocab_size)))
        self.lm_head: nn.Linear = nn.Linear(config.d_model, config.target_vocab_size, bias=False)
        self.guided_losses: GuidedLosses | None = build_guided_losses(config, config.d_model)
        self.post_init()

    def logits_of(self, states: torch.Tensor) -> torch.Tensor:
        return self.lm_head(states) + self.final_logits_bias

    @staticmethod
    def create_masks_for_generate(
        *,
        config: CapsuleMarianConfig,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: Any,
    ) -> Any:
        """Return the decoder's mask of the T tokens of a step, for which transformers asks if the cache is static."""
        if config.decoder_self == "ssru":
            return None if attention_mask is None else attention_mask[:, -inputs_embeds.shape[1] :]
        return create_masks_for_generate(
            config=config, inputs_embeds=inputs_embeds, attention_mask=attention_mask, **kwargs
        )

    @classmethod
    def from_marian(
        cls,
        model_or_path: PreTrainedModel | str | os.PathLike[str],
        *,
        output_loading_info: bool = False,
        **settings: Any,
    ) -> Any:
        """Add capsules to a Marian (OPUS-MT) model: keep its weights, initialise what the settings switch on.

        A log message lists new weights, and old ones that a seam replaces. The model starts as the old one with
        `guided_routing`, whose last layer starts at zero; with `layer_aggregation_placement="adds"` and
        `head_aggregation_placement="adds"`; and with `layer_aggregation` "dense" or "mudd", which start at the top
        layer. Train it before it translates with any other layer aggregation that replaces that layer, with an SSRU,
        and with head aggregation that replaces the old output projection.

        Args:
            model_or_path: a `MarianMTModel`, a name on the hub, or a folder. A `CapsuleMarianMTModel` works too, to
                add capsules to a baseline; settings that are not given keep its values. `guided_routing="none"` drops
                its guided routing.
            output_loading_info: return the model and a dictionary with the `new_weights` and the `dropped_weights`.
            **settings: fields of `CapsuleMarianConfig`, and keywords of `from_pretrained` (`revision`, `dtype`, ...).
        """
        model, info = warm_start(cls, model_or_path, settings)
        return (model, info) if output_loading_info else model

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        embeddings = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if self.config.share_encoder_decoder_embeddings:
            self._resize_final_logits_bias(embeddings.num_embeddings)
        return embeddings

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Resize the embeddings of a separate target vocabulary."""
        embeddings = super().resize_decoder_token_embeddings(new_num_tokens)
        self._resize_final_logits_bias(new_num_tokens)
        return embeddings

    def _resize_final_logits_bias(self, new_num_tokens: int) -> None:
        bias = self.final_logits_bias[:, :new_num_tokens]
        self.final_logits_bias = nn.functional.pad(bias, (0, new_num_tokens - bias.shape[1]))
