"""The models' outputs: transformers' output classes with routing weights and the parts of the loss."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)

from hf_capsule_mt.modeling.cache_names import cache_field, gives_both_cache_names
from hf_capsule_mt.modeling.losses import CrossEntropy

# The assignment probabilities [..., N, M] of one routing, one tensor per iteration
IterationWeights = tuple[torch.Tensor, ...]
# The same for all routings of a model, by where they are, such as "encoder.layers.0.self_attn"
RoutingWeights = dict[str, IterationWeights]


@dataclass
class CapsuleEncoderOutput(BaseModelOutput):
    """[`~transformers.modeling_outputs.BaseModelOutput`] and what this model's encoder adds."""

    routing_weights: RoutingWeights | None = None


@dataclass
class SourceCapsulesOutput(CapsuleEncoderOutput):
    """What the encoder of CapsNMT returns: the states of the source, and the capsules that the decoder reads.

    capsules: [B, M, d], the source in a fixed number of vectors.
    """

    capsules: torch.Tensor | None = None


@gives_both_cache_names
@dataclass
class CapsuleDecoderOutput(BaseModelOutputWithPastAndCrossAttentions):
    """The decoder output of transformers and what this model's decoder adds, if asked for.

    guided_capsules: the capsules [batch, positions, 2 n, width] of PAST (the first half) and FUTURE.
    unguided_state: the decoder's states [batch, positions, d] before PAST and FUTURE are added to them.
    """

    routing_weights: RoutingWeights | None = None
    guided_capsules: torch.Tensor | None = None
    unguided_state: torch.Tensor | None = None


@gives_both_cache_names
@dataclass
class CapsuleSeq2SeqModelOutput(Seq2SeqModelOutput):
    """[`~transformers.modeling_outputs.Seq2SeqModelOutput`] and what the two stacks return beside it."""

    routing_weights: RoutingWeights | None = None
    guided_capsules: torch.Tensor | None = None
    unguided_state: torch.Tensor | None = None


@gives_both_cache_names
@dataclass
class CapsuleSeq2SeqLMOutput(Seq2SeqLMOutput):
    """[`~transformers.modeling_outputs.Seq2SeqLMOutput`], and what this model adds.

    loss: the cross entropy, smoothed by `config.label_smoothing` in training mode only, plus the other losses if any.
    nll_loss: the cross entropy without smoothing, normalised as in `loss`: the score of a translation.
    bow_loss, bca_loss: the guided losses, if the model has them: bag of words and bilingual content agreement,
        weighted and normalised as in `loss`. In evaluation mode `loss` is the sum of the three.
    routing_weights: for each routing of the model, named by where it is, the assignment probabilities
        [batch, positions, N input capsules, M output capsules] of each iteration, without positions for CapsNMT.
        Positions of padding have them too.
    """

    nll_loss: torch.Tensor | None = None
    bow_loss: torch.Tensor | None = None
    bca_loss: torch.Tensor | None = None
    routing_weights: RoutingWeights | None = None


def resolve_output_flags(
    config: PreTrainedConfig, output_attentions: bool | None, output_hidden_states: bool | None
) -> tuple[bool, bool]:
    """Resolve `output_attentions` and `output_hidden_states` against the config defaults."""
    return (
        bool(config.output_attentions if output_attentions is None else output_attentions),
        bool(config.output_hidden_states if output_hidden_states is None else output_hidden_states),
    )


def as_encoder_output(encoder_outputs: tuple[Any, ...] | BaseModelOutput) -> BaseModelOutput:
    """Name the fields of encoder outputs that are given as a tuple."""
    if isinstance(encoder_outputs, BaseModelOutput):
        return encoder_outputs
    return CapsuleEncoderOutput(*encoder_outputs[:3])  # its state, hidden states and attentions


def join_stacks(
    encoded: BaseModelOutput, decoded: CapsuleDecoderOutput, output_routing_weights: bool
) -> CapsuleSeq2SeqModelOutput:
    """Return the outputs of encoder and decoder as one model's output."""
    routing_weights: RoutingWeights | None = None
    if output_routing_weights:
        routing_weights = (getattr(encoded, "routing_weights", None) or {}) | (decoded.routing_weights or {})
    return CapsuleSeq2SeqModelOutput(
        last_hidden_state=decoded.last_hidden_state,
        **cache_field(decoded.cache),
        decoder_hidden_states=decoded.hidden_states,
        decoder_attentions=decoded.attentions,
        cross_attentions=decoded.cross_attentions,
        encoder_last_hidden_state=encoded.last_hidden_state,
        encoder_hidden_states=encoded.hidden_states,
        encoder_attentions=encoded.attentions,
        routing_weights=routing_weights,
        guided_capsules=decoded.guided_capsules,
        unguided_state=decoded.unguided_state,
    )


# outputs of a base model that a generation model does not return
BASE_MODEL_ONLY = frozenset({"last_hidden_state", "guided_capsules", "unguided_state"})


def translation_output(
    outputs: CapsuleSeq2SeqModelOutput,
    logits: torch.Tensor,
    losses: CrossEntropy | None,
    bow_loss: torch.Tensor | None = None,
    bca_loss: torch.Tensor | None = None,
) -> CapsuleSeq2SeqLMOutput:
    """Return a base model's outputs with logits [B, T, V] and losses; `loss` is what a training minimises."""
    loss = nll_loss = None
    if losses is not None:
        loss = losses.loss
        if bow_loss is not None or bca_loss is not None:
            loss = loss + sum(part for part in (bow_loss, bca_loss) if part is not None)
        nll_loss = losses.nll_loss
    values: dict[str, Any] = {name: value for name, value in outputs.items() if name not in BASE_MODEL_ONLY}
    return CapsuleSeq2SeqLMOutput(
        loss=loss, logits=logits, nll_loss=nll_loss, bow_loss=bow_loss, bca_loss=bca_loss, **values
    )
