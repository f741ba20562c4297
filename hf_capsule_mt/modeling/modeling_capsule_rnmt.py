"""RNMT: the attentional GRU encoder-decoder of Bahdanau et al. (2015), in the stronger form of later work.

The encoder is a stack of bidirectional GRU layers. The decoder's lowest layer is a conditional GRU (Sennrich et al.
2017): a first GRU reads the last word, its state asks the additive attention for a context of the source, a second GRU
reads that; the word, the state and the context together make its output. GRU layers may follow. Every layer has
dropout and layer normalisation of its output, GRU layers also a residual connection where the widths allow it.
Normalisation is between layers and not inside the recurrences, so that these can be fused.

Between the decoder's top state and the vocabulary is a seam: `past_future_guidance.py` (Zheng et al. 2019), whose
losses are in `guided_losses.py`.

Legend: B batch, S source positions, T target positions, d width of a state, V vocabulary. In every mask `True` keeps.
"""

from collections.abc import Callable

import torch
from torch import nn
from transformers import GenerationMixin
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.processing_utils import Unpack
from transformers.utils import can_return_tuple

from hf_capsule_mt.configuration.configuration_capsule_rnmt import CapsuleRNMTConfig
from hf_capsule_mt.modeling.additive_attention import AdditiveAttention
from hf_capsule_mt.modeling.cache_names import cache_field, takes_both_cache_names
from hf_capsule_mt.modeling.conditional_gru import ConditionalGRU
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
from hf_capsule_mt.modeling.outputs import (
    CapsuleDecoderOutput,
    CapsuleEncoderOutput,
    resolve_output_flags,
)
from hf_capsule_mt.modeling.padding import Compaction
from hf_capsule_mt.modeling.past_future_guidance import build_guidance
from hf_capsule_mt.modeling.recurrent import FusedGRU, GRULayer, run_encoder
from hf_capsule_mt.modeling.recurrent_cache import RecurrentCache, RecurrentGeneration, cache_for


class CapsuleRNMTPreTrainedModel(CapsulePreTrainedModel):
    """Base of all classes of the family: initialisation."""

    config: CapsuleRNMTConfig
    config_class = CapsuleRNMTConfig
    _no_split_modules = ["GRULayer", "ConditionalGRULayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, (FusedGRU, nn.GRUCell)):
            for name, parameter in module.named_parameters():
                if "bias" in name:
                    init.zeros_(parameter)
                else:  # for each gate alone; an orthogonal matrix keeps the length of a state
                    _init_gates(parameter, init.orthogonal_ if "_hh" in name else init.xavier_uniform_)
        elif isinstance(module, (AdditiveAttention, ConditionalGRULayer, CapsuleRNMTDecoder)):
            for child in module.children():
                if isinstance(child, nn.Linear):
                    init.xavier_uniform_(child.weight)
        elif isinstance(module, CapsuleRNMTForConditionalGeneration) and isinstance(module.project_out, nn.Linear):
            init.xavier_uniform_(module.project_out.weight)


def _init_gates(weight: torch.Tensor, initialize: Callable[[torch.Tensor], object]) -> None:
    """Initialise the three gates of a GRU's matrix [3d, in] one by one, unless it was loaded from a checkpoint."""
    if not getattr(weight, "_is_hf_initialized", False):  # a mark that the parts do not have
        for part in weight.chunk(3):
            initialize(part)


class RNMTStack(CapsuleRNMTPreTrainedModel, Stack):
    """Base of the encoder and the decoder: the embedding."""

    embed_layer_norm: nn.LayerNorm

    def embed(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Token ids [B, T], or their embeddings [B, T, e] -> [B, T, e]."""
        hidden = self.embed_layer_norm(self.embeddings_of(input_ids, inputs_embeds))
        return nn.functional.dropout(hidden, p=self.config.dropout, training=self.training)


class CapsuleRNMTEncoder(RNMTStack):
    """The encoder: bidirectional GRU layers."""

    def __init__(self, config: CapsuleRNMTConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_width, config.pad_token_id)
        self.embed_layer_norm = nn.LayerNorm(config.embedding_width)
        input_sizes = [config.embedding_width] + [config.hidden_size] * (config.encoder_layers - 1)
        self.layers = nn.ModuleList(
            [GRULayer(size, config.hidden_size, config.dropout, bidirectional=True) for size in input_sizes]
        )
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
        """Encode token ids [B, S] with their mask [B, S] to states [B, S, d], zero where there is padding."""
        _, output_hidden_states = resolve_output_flags(self.config, output_attentions, output_hidden_states)
        hidden = self.embed(input_ids, inputs_embeds)
        mask = self.source_mask(attention_mask, hidden)
        hidden_states = run_encoder(self.layers, hidden, mask)
        return CapsuleEncoderOutput(
            last_hidden_state=hidden_states[-1],
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            routing_weights={} if output_routing_weights else None,
        )


class ConditionalGRULayer(GradientCheckpointingLayer):
    """The decoder's lowest layer: a conditional GRU, and an output of each word y, state s and context c.

    output_t = layer_norm(dropout(tanh(W [s_t; c_t; y_t] + b)))
    """

    def __init__(self, config: CapsuleRNMTConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.recurrence = ConditionalGRU(config.embedding_width, width)
        self.readout = nn.Linear(2 * width + config.embedding_width, width)
        self.layer_norm = nn.LayerNorm(width)
        self.dropout = config.dropout

    def forward(
        self,
        words: torch.Tensor,
        state: torch.Tensor,
        source: torch.Tensor,
        keys: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Words [B, T, e] -> outputs [B, T, d], states [B, T, d] and attention weights [B, T, S].

        The other arguments are those of `ConditionalGRU`.
        """
        states, contexts, attentions = self.recurrence(words, state, source, keys, mask)
        output = torch.tanh(self.readout(torch.cat([states, contexts, words], dim=-1)))
        output = nn.functional.dropout(output, p=self.dropout, training=self.training)
        return self.layer_norm(output), states, attentions


class CapsuleRNMTDecoder(RNMTStack):
    """The decoder: a conditional GRU layer that attends to the source, and GRU layers above it, guided or not.

    Its first states are made of the mean of the source states.
    """

    def __init__(self, config: CapsuleRNMTConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.target_vocab_size, config.embedding_width, config.pad_token_id)
        self.embed_layer_norm = nn.LayerNorm(config.embedding_width)
        self.first_states = nn.Linear(config.hidden_size, config.decoder_layers * config.hidden_size)
        self.attention_layer = ConditionalGRULayer(config)
        self.layers = nn.ModuleList(
            [
                GRULayer(config.hidden_size, config.hidden_size, config.dropout)
                for _ in range(config.decoder_layers - 1)
            ]
        )
        self.guidance = build_guidance(config, config.hidden_size)
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
        cache: RecurrentCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_routing_weights: bool = False,
        output_guided_capsules: bool = False,
        **kwargs: Unpack[ForwardKwargs],
    ) -> CapsuleDecoderOutput:
        """Decode token ids [B, T] after those in the cache, over encoder states [B, S, d], to states [B, T, d].

        Args:
            attention_mask: [B, T], or with the tokens in the cache [B, past + T].
        """
        if encoder_hidden_states is None:
            raise ValueError(f"{type(self).__name__} needs the source: `encoder_hidden_states` is None")
        output_attentions, output_hidden_states = resolve_output_flags(
            self.config, output_attentions, output_hidden_states
        )
        source = encoder_hidden_states
        cache = cache_for(self, cache, use_cache)
        keep = self.checked_mask("encoder_attention_mask", encoder_attention_mask, source)
        embedded = self.embed(input_ids, inputs_embeds)
        mask = self.target_mask(attention_mask, embedded)
        compaction = Compaction(mask)
        keys, first_states = self.begin(source, keep, cache)
        hidden, states, attentions = self.attention_layer(
            compaction.compact(embedded), first_states[0], source, keys, keep
        )
        hidden_states, layer_states = [embedded, compaction.restore(hidden)], [states]
        for layer, first_state in zip(self.layers, first_states[1:], strict=True):
            hidden, states = layer(hidden, first_state)
            hidden_states.append(compaction.restore(hidden))
            layer_states.append(states)
        unguided_state = hidden_states[-1]
        hidden_states[-1], guided_capsules, weights = self.guidance(
            unguided_state, source, keep, cache, output_routing_weights
        )
        if cache is not None:
            self.append(cache, layer_states, first_states, mask)
        routing_weights = {} if weights is None else {"decoder.guidance": weights}
        return CapsuleDecoderOutput(
            last_hidden_state=hidden_states[-1],
            **cache_field(cache),
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            cross_attentions=(compaction.restore(attentions)[:, None],) if output_attentions else None,
            routing_weights=routing_weights if output_routing_weights else None,
            guided_capsules=guided_capsules if output_guided_capsules else None,
            unguided_state=unguided_state if output_guided_capsules else None,
        )

    def begin(
        self, source: torch.Tensor, mask: torch.Tensor | None, cache: RecurrentCache | None
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the keys of the source [B, S, d], computed once a sentence, and each layer's first state [B, d]."""
        keys = None if cache is None else cache.constants.get("source_keys")
        if keys is None:
            keys = self.attention_layer.recurrence.attention.project_keys(source)
            if cache is not None:
                cache.constants["source_keys"] = keys
                cache.number_sentences(source)
        if cache is not None and cache.states is not None:
            return keys, [state[0] for state in cache.states]
        if mask is None:
            mean = source.mean(dim=1)  # [B, d]
        else:
            weights = mask.to(source.dtype) / mask.sum(dim=1, keepdim=True).clamp(min=1)
            mean = torch.matmul(weights[:, None], source)[:, 0]
        return keys, list(torch.tanh(self.first_states(mean)).chunk(self.config.decoder_layers, dim=-1))

    def append(
        self,
        cache: RecurrentCache,
        layer_states: list[torch.Tensor],
        first_states: list[torch.Tensor],
        mask: torch.Tensor | None,
    ) -> None:
        """Append the states to the cache: the last of each layer, or those after every token if it records the past.

        Args:
            layer_states: [B, T, d], compact, of each layer.
            first_states: [B, d] of each layer, the states before.
            mask: [B, T], True where there is a token; `None` if everywhere. The state after padding is the one before.
        """
        if mask is not None:
            layer_states = [
                torch.cat([first_state[:, None], states], dim=1).gather(
                    1, mask.cumsum(dim=1)[..., None].expand(-1, -1, states.shape[-1])
                )
                for states, first_state in zip(layer_states, first_states, strict=True)
            ]
        length = layer_states[0].shape[1]
        if cache.record_past:
            for position in range(length):
                cache.append([(states[:, position],) for states in layer_states])
        else:
            cache.append([(states[:, -1],) for states in layer_states], length)


class CapsuleRNMTModel(CapsuleRNMTPreTrainedModel, EncoderDecoderModel):
    """Encoder and decoder without the projection to the vocabulary."""

    encoder: CapsuleRNMTEncoder
    decoder: CapsuleRNMTDecoder

    def __init__(self, config: CapsuleRNMTConfig) -> None:
        super().__init__(config)
        if config.share_encoder_decoder_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.embedding_width, config.pad_token_id)
            self._tied_weights_keys = dict(TIED_TO_SHARED)
        self.encoder = CapsuleRNMTEncoder(config)
        self.decoder = CapsuleRNMTDecoder(config)
        self.post_init()


class CapsuleRNMTForConditionalGeneration(
    CapsuleRNMTPreTrainedModel, RecurrentGeneration, PastFutureModel, GenerationMixin
):
    """The translation model: a [`CapsuleRNMTModel`] and its projection to the vocabulary."""

    model: CapsuleRNMTModel

    _tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}

    def __init__(self, config: CapsuleRNMTConfig) -> None:
        super().__init__(config)
        self.model = CapsuleRNMTModel(config)
        if config.share_encoder_decoder_embeddings:
            self._tied_weights_keys = dict(ALL_TIED_TO_SHARED)
        # When it resumes, the Trainer warns of missing weights unless they are exactly those that are not saved
        self._keys_to_ignore_on_save = [*(self._tied_weights_keys if config.tie_word_embeddings else ())]
        # from the width of a state to that of an embedding, which the output projection may share
        self.project_out: nn.Module = nn.Identity()
        if config.embedding_width != config.hidden_size:
            self.project_out = nn.Linear(config.hidden_size, config.embedding_width, bias=False)
        self.lm_head: nn.Linear = nn.Linear(config.embedding_width, config.target_vocab_size, bias=False)
        self.guided_losses: GuidedLosses | None = build_guided_losses(
            config, config.hidden_size, config.embedding_width
        )
        self.post_init()

    def logits_of(self, states: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.project_out(states))
