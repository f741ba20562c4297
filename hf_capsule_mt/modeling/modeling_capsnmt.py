"""CapsNMT: the source in a fixed number of capsules, and a decoder whose step does not look back at the source.

Wang et al., "Towards Linear Time Neural Machine Translation with Capsule Networks": a bidirectional LSTM encoder, an
aggregation of its states to M vectors (`source_aggregation.py`), and an LSTM decoder that gets their projection W_c
[c_1; ..; c_M] with every word. A sentence costs O(M |S| + |T|).

`source_attention` is the hybrid that the paper's abstract names without an equation. Our reading: the decoder's lowest
layer also attends to the encoder's states, by additive attention, as a residual sub-layer of its own; it costs
O(|S| |T|) more.

Legend: B batch, S source positions, T target positions, M source vectors, d model width, e embedding width, V
vocabulary. In every mask `True` keeps.
"""

import math
from typing import Any, cast

import torch
from torch import nn
from transformers import GenerationMixin
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import can_return_tuple

from hf_capsule_mt.configuration.configuration_capsnmt import CapsNMTConfig
from hf_capsule_mt.modeling.additive_attention import AdditiveAttention
from hf_capsule_mt.modeling.cache_names import cache_field, takes_both_cache_names
from hf_capsule_mt.modeling.encoder_decoder import CapsulePreTrainedModel, EncoderDecoderModel, Stack
from hf_capsule_mt.modeling.generation import TranslationModel
from hf_capsule_mt.modeling.initial_std import get_initial_std
from hf_capsule_mt.modeling.keywords import ForwardKwargs, refuses_misspelt
from hf_capsule_mt.modeling.outputs import (
    CapsuleDecoderOutput,
    SourceCapsulesOutput,
    resolve_output_flags,
)
from hf_capsule_mt.modeling.padding import Compaction, padding_mask_or_none
from hf_capsule_mt.modeling.recurrent import FusedLSTM, ResidualLSTM, run_encoder
from hf_capsule_mt.modeling.recurrent_cache import RecurrentCache, RecurrentGeneration, cache_for
from hf_capsule_mt.modeling.source_aggregation import build_source_aggregation

# What source attention attends to: the projected keys [B, S, d], the states [B, S, d] and their mask [B, S]
SourceMemory = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


class CapsNMTPreTrainedModel(CapsulePreTrainedModel):
    """Base of all classes of the family: initialisation."""

    config: CapsNMTConfig
    config_class = CapsNMTConfig
    _no_split_modules = ["ResidualLSTM"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, FusedLSTM):
            for name, parameter in module.named_parameters():  # as transformers does for an `nn.LSTM`
                if "weight" in name:
                    init.xavier_uniform_(parameter)
                else:
                    init.zeros_(parameter)
            for name, parameter in module.named_parameters():
                if getattr(parameter, "_is_hf_initialized", False):  # loaded; the chunks below do not carry this flag
                    continue
                if name.startswith("weight_hh"):
                    for gate in parameter.chunk(4):
                        init.orthogonal_(gate)
                elif name.startswith("bias_hh"):  # a gate that forgets nothing at first
                    init.ones_(parameter.chunk(4)[1])
        elif isinstance(module, nn.Linear):
            std = get_initial_std(module)
            init.normal_(module.weight, std=1 / math.sqrt(module.in_features) if std is None else std)


def build_embedding_projection(in_features: int, out_features: int) -> nn.Module:
    """Map the width of embeddings to the width of states, or back; the identity if they are the same."""
    return nn.Identity() if in_features == out_features else nn.Linear(in_features, out_features, bias=False)


class RecurrentStack(CapsNMTPreTrainedModel, Stack):
    """Base of the encoder and the decoder: the embedding."""

    embedding_projection: nn.Module

    def embed(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Token ids [B, T], or their embeddings [B, T, e] -> [B, T, d]."""
        inputs_embeds = self.embeddings_of(input_ids, inputs_embeds)
        if self.config.scale_embedding:
            inputs_embeds = inputs_embeds * math.sqrt(inputs_embeds.shape[-1])
        projected: torch.Tensor = self.embedding_projection(inputs_embeds)
        return projected


class CapsNMTEncoder(RecurrentStack):
    """Bidirectional LSTM layers, and the aggregation of the top layer's states to M vectors."""

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_width, config.pad_token_id)
        self.embedding_projection = build_embedding_projection(config.embedding_width, config.hidden_size)
        self.layers = nn.ModuleList(
            [
                ResidualLSTM(config.hidden_size, config.dropout, bidirectional=True)
                for _ in range(config.encoder_layers)
            ]
        )
        self.aggregation = build_source_aggregation(config)
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
    ) -> SourceCapsulesOutput:
        """Encode token ids [B, S] and their mask to states [B, S, d], zero at padding, and capsules [B, M, d]."""
        _, output_hidden_states = resolve_output_flags(self.config, output_attentions, output_hidden_states)
        hidden = self.embed(input_ids, inputs_embeds)
        mask = self.source_mask(attention_mask, hidden)
        hidden = nn.functional.dropout(hidden, p=self.config.dropout, training=self.training)
        states = run_encoder(self.layers, hidden, mask)
        encoded = BaseModelOutput(states[-1], tuple(states) if output_hidden_states else None)
        return self.aggregate(encoded, mask, output_routing_weights)

    def aggregate(
        self, encoded: BaseModelOutput, mask: torch.Tensor | None, output_routing_weights: bool
    ) -> SourceCapsulesOutput:
        """Add the capsules, and the routing weights if asked for, to the states of a source."""
        states = cast(torch.Tensor, encoded.last_hidden_state)
        capsules, weights = self.aggregation(states, mask, output_routing_weights)
        routing_weights = {} if weights is None else {"encoder.aggregation": weights}
        return SourceCapsulesOutput(
            last_hidden_state=states,
            hidden_states=encoded.hidden_states,
            routing_weights=routing_weights if output_routing_weights else None,
            capsules=capsules,
        )


class SourceAttention(nn.Module):
    """The hybrid's sub-layer: LayerNorm(x + dropout(W attention(x))) over the states of the source."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.attention = AdditiveAttention(width, width, width)
        self.output = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.dropout = dropout

    def forward(
        self, hidden: torch.Tensor, keys: torch.Tensor, states: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[B, T, d] -> [B, T, d], and the attention weights [B, T, S]."""
        contexts, weights = self.attention(hidden, keys, states, mask)
        outputs = nn.functional.dropout(self.output(contexts), p=self.dropout, training=self.training)
        return self.norm(hidden + outputs), weights


class CapsNMTDecoder(RecurrentStack):
    """LSTM layers over u_t = W_c [c_1; ..; c_M] + y_(t-1), the projected source and the previous word (equation 5).

    Deviation: the paper prints y_t, which is the word to be predicted; it can only mean the previous one.
    """

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_width, config.pad_token_id)
        self.embedding_projection = build_embedding_projection(config.embedding_width, config.hidden_size)
        self.source_projection = nn.Linear(
            config.num_source_vectors * config.hidden_size, config.hidden_size, bias=False
        )
        # A capsule is shorter than 1 and is added to words of a length of about sqrt(d), so it needs this factor. W_c
        # could absorb it, but then its entries would be larger than optimisers expect.
        has_short_capsules = config.aggregation == "capsules" and not config.normalize_capsules
        self.source_scale = math.sqrt(config.hidden_size) if has_short_capsules else 1.0
        self.layers = nn.ModuleList(
            [ResidualLSTM(config.hidden_size, config.dropout, False) for _ in range(config.decoder_layers)]
        )
        self.source_attention = (
            SourceAttention(config.hidden_size, config.dropout) if config.source_attention else None
        )
        self.post_init()

    @can_return_tuple
    @refuses_misspelt
    @takes_both_cache_names
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        capsules: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Unpack[ForwardKwargs],
    ) -> CapsuleDecoderOutput:
        """Decode token ids [B, T] that follow those in the cache to states [B, T, d].

        Args:
            attention_mask: [B, T], or [B, past + T]; padding among the target's words leaves the state as it is.
            capsules: the source in M vectors [B, M, d].
            encoder_hidden_states: the states of the source [B, S, d] and, in `encoder_attention_mask`, their mask:
                what source attention attends to.
        """
        output_attentions, output_hidden_states = resolve_output_flags(
            self.config, output_attentions, output_hidden_states
        )
        cache = cache_for(self, cache, use_cache)
        hidden = self.embed(input_ids, inputs_embeds)
        source, memory = self._projected_source(cache, capsules, encoder_hidden_states, encoder_attention_mask)
        if source.shape[0] != hidden.shape[0]:
            raise ValueError(f"the source has {source.shape[0]} rows, but the target has {hidden.shape[0]}")
        hidden = nn.functional.dropout(hidden + source.unsqueeze(1), p=self.config.dropout, training=self.training)
        mask = self.target_mask(attention_mask, hidden)
        # while the cache records its past, it needs the state after every single word
        spans = [slice(None)]
        if cache is not None and cache.record_past:
            spans = [slice(position, position + 1) for position in range(hidden.shape[1])]
        parts = [
            self._run_layers(hidden[:, span], None if mask is None else mask[:, span], memory, cache) for span in spans
        ]
        states = parts[0][0]
        if len(parts) > 1:
            states = [
                torch.cat(level_states, dim=1) for level_states in zip(*(levels for levels, _ in parts), strict=True)
            ]
        attentions = None
        if output_attentions and memory is not None:
            part_weights = [weights for _, weights in parts if weights is not None]
            attentions = (torch.cat(part_weights, dim=1).unsqueeze(1),)  # [B, 1, T, S]
        return CapsuleDecoderOutput(
            last_hidden_state=states[-1],
            **cache_field(cache),
            hidden_states=tuple(states) if output_hidden_states else None,
            cross_attentions=attentions,
        )

    def _run_layers(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        memory: SourceMemory | None,
        cache: RecurrentCache | None,
    ) -> tuple[list[torch.Tensor], torch.Tensor | None]:
        """Run each layer over all positions [B, T, d] at once; return the states below and above every layer."""
        cached = None if cache is None else cache.states
        compaction = Compaction(mask)
        states, new_states, attentions = [compaction.compact(hidden)], [], None
        for number, layer in enumerate(self.layers):
            hidden, state = layer(states[-1], None if cached is None else cached[number], compaction.lengths)
            new_states.append(state)
            if number == 0 and self.source_attention is not None and memory is not None:
                hidden, attentions = self.source_attention(hidden, *memory)
            states.append(hidden)
        if cache is not None:
            cache.append(new_states, hidden.shape[1])
        return list(map(compaction.restore, states)), None if attentions is None else compaction.restore(attentions)

    def _projected_source(
        self,
        cache: RecurrentCache | None,
        capsules: torch.Tensor | None,
        states: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
    ) -> tuple[torch.Tensor, SourceMemory | None]:
        """Compute W_c [c_1; ..; c_M] [B, d] and the memory of source attention, once for each sentence."""
        constants = {} if cache is None else cache.constants
        if "source" not in constants:
            if capsules is None:
                raise ValueError("the decoder needs the source: give `capsules`, which the encoder returns")
            if capsules.shape[1:] != (self.config.num_source_vectors, self.config.hidden_size):
                raise ValueError(
                    f"`capsules` must be [B, {self.config.num_source_vectors}, {self.config.hidden_size}], got "
                    f"{list(capsules.shape)}"
                )
            constants["source"] = self.source_projection(capsules.flatten(1) * self.source_scale)
        if self.source_attention is None:
            return constants["source"], None
        if states is None:
            raise ValueError("source attention needs `encoder_hidden_states`")
        if "keys" not in constants:
            constants["keys"] = self.source_attention.attention.project_keys(states)
            mask = padding_mask_or_none(attention_mask)
            if mask is not None:
                constants["mask"] = mask
        return constants["source"], (constants["keys"], states, constants.get("mask"))


class CapsNMTModel(CapsNMTPreTrainedModel, EncoderDecoderModel):
    """Encoder and decoder without the projection to the vocabulary, which source and target share."""

    _tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__(config)
        self.encoder = CapsNMTEncoder(config)
        self.decoder = CapsNMTDecoder(config)
        self.post_init()

    def completed(
        self, encoded: BaseModelOutput, attention_mask: torch.Tensor | None, output_routing_weights: bool
    ) -> BaseModelOutput:
        has_requested_weights = getattr(encoded, "routing_weights", None) is not None or not output_routing_weights
        if has_requested_weights and getattr(encoded, "capsules", None) is not None:
            return encoded
        if not isinstance(encoded.last_hidden_state, torch.Tensor):
            raise ValueError("`encoder_outputs` must have the states of the source as `last_hidden_state`")
        mask = self.encoder.source_mask(attention_mask, encoded.last_hidden_state)
        return self.encoder.aggregate(encoded, mask, output_routing_weights)

    def for_decoder(self, encoded: BaseModelOutput, *_: bool) -> dict[str, Any]:
        return {"capsules": cast(SourceCapsulesOutput, encoded).capsules}


class CapsNMTForConditionalGeneration(CapsNMTPreTrainedModel, RecurrentGeneration, TranslationModel, GenerationMixin):
    """The translation model: a [`CapsNMTModel`] and its projection to the vocabulary.

    Its one routing is "encoder.aggregation": the coefficients [B, S, M] of each source word for each capsule.
    """

    _tied_weights_keys = {
        "lm_head.weight": "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight": "model.encoder.embed_tokens.weight",
    }
    model: CapsNMTModel

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__(config)
        self.model = CapsNMTModel(config)
        # On resuming, the Trainer warns of missing weights unless this list names exactly those that are missing
        self._keys_to_ignore_on_save = list(self._tied_weights_keys) if config.tie_word_embeddings else []
        self.output_projection = build_embedding_projection(config.hidden_size, config.embedding_width)
        self.lm_head: nn.Linear = nn.Linear(config.embedding_width, config.vocab_size, bias=False)
        self.guided_losses = None
        self.post_init()

    def logits_of(self, states: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.output_projection(states))
