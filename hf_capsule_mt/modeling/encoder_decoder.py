"""The way of a batch through an encoder, a decoder, the projection to the vocabulary and the losses, for all families.

Legend: B batch, S source positions, T target positions, d width of a state, V vocabulary.
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import can_return_tuple

from hf_capsule_mt.modeling.guided_losses import GuidedLosses, GuidedLossParts
from hf_capsule_mt.modeling.losses import cross_entropy, decoder_inputs_from_labels, refuse_lost_labels
from hf_capsule_mt.modeling.outputs import CapsuleEncoderOutput, CapsuleSeq2SeqLMOutput, CapsuleSeq2SeqModelOutput


class EncoderDecoderPass:
    """Mixin before `PreTrainedModel`, for a base model of an `encoder` and a `decoder`: its `forward`."""

    encoder: Any
    decoder: Any

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: tuple[torch.Tensor, ...] | BaseModelOutput | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_routing_weights: bool = False,
        output_guided_capsules: bool = False,
    ) -> CapsuleSeq2SeqModelOutput:
        """Source ids [B, S] and target ids [B, T] -> decoder states [B, T, d].

        With `output_guided_capsules`, the capsules of PAST and FUTURE and the states before they are added come, too.
        """
        shown = {
            "output_attentions": output_attentions,
            "output_hidden_states": output_hidden_states,
            "output_routing_weights": output_routing_weights,
        }
        encoded: Any = encoder_outputs
        if encoded is None:
            encoded = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                return_dict=True,
                **shown,
            )
        elif not isinstance(encoded, BaseModelOutput):
            names = ("last_hidden_state", "hidden_states", "attentions")
            encoded = CapsuleEncoderOutput(**dict(zip(names, encoded, strict=False)))
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_guided_capsules=output_guided_capsules,
            return_dict=True,
            **shown,
        )
        routing_weights = None
        if output_routing_weights:
            routing_weights = (getattr(encoded, "routing_weights", None) or {}) | decoder_outputs.routing_weights
        return CapsuleSeq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
            routing_weights=routing_weights,
            guided_capsules=decoder_outputs.guided_capsules,
            unguided_state=decoder_outputs.unguided_state,
        )


class TranslationPass:
    """Mixin before `PreTrainedModel`, for a generation model of a base `model` and an `lm_head`: its `forward`.

    A family says in `logits_of` how its states become logits.
    """

    config: Any
    model: Any
    lm_head: nn.Linear
    guided_losses: GuidedLosses | None
    accepts_loss_kwargs = True  # the Trainer's `num_items_in_batch`

    def logits_of(self, states: torch.Tensor) -> torch.Tensor:
        """States of the decoder [B, T, d] -> logits [B, T, V]."""
        return self.lm_head(states)

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head = new_embeddings

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Labels [B, T] -> the tokens that predict them: moved by one, after the start token."""
        return decoder_inputs_from_labels(labels, self.config)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: tuple[torch.Tensor, ...] | BaseModelOutput | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_routing_weights: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> CapsuleSeq2SeqLMOutput:
        """Source ids [B, S] and target ids [B, T] -> logits [B, T, V].

        Args:
            labels: [B, T], -100 where there is no target. With them comes `loss`: the cross entropy, smoothed by
                `config.label_smoothing`, summed over the targets and divided by their number, plus the losses of
                `guided_routing`. Its parts come as `nll_loss`, `bow_loss` and `bca_loss`.
            num_items_in_batch: what to divide by instead: the Trainer gives the number of targets in all batches, on
                all processes, that make one step.
            output_routing_weights: return the assignment probabilities of every routing at every iteration.
        """
        refuse_lost_labels(labels, num_items_in_batch)
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        is_guided = labels is not None and self.guided_losses is not None
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            output_routing_weights=output_routing_weights,
            return_dict=True,
            **({"output_guided_capsules": True} if is_guided else {}),
        )
        logits = self.logits_of(outputs.last_hidden_state)  # [B, T, V]
        loss = nll_loss = None
        guided_losses = GuidedLossParts(None, None)
        if labels is not None:
            if labels.shape != logits.shape[:2]:
                raise ValueError(
                    f"`labels` of shape {list(labels.shape)} do not fit the {list(logits.shape[:2])} positions that "
                    "the decoder was given"
                )
            nll_loss = cross_entropy(
                logits,
                labels,
                label_smoothing=self.config.label_smoothing,
                num_items_in_batch=num_items_in_batch,
            )
            if self.guided_losses is not None:
                guided_losses = self.guided_losses(
                    outputs.guided_capsules, outputs.unguided_state, labels, self.lm_head.weight, num_items_in_batch
                )
            loss = nll_loss + sum(part for part in guided_losses if part is not None)
        return CapsuleSeq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
            nll_loss=nll_loss,
            bow_loss=guided_losses.bow_loss,
            bca_loss=guided_losses.bca_loss,
            routing_weights=outputs.routing_weights,
        )
