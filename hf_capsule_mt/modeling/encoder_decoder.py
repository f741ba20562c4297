"""What all classes of all families share, and the forward pass of their base models: an encoder and a decoder.

Legend: B batch, S source positions, T target positions, d model width. In every mask `True` keeps.
"""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import can_return_tuple

from hf_capsule_mt.modeling.cache_names import takes_both_cache_names
from hf_capsule_mt.modeling.outputs import (
    CapsuleDecoderOutput,
    CapsuleSeq2SeqModelOutput,
    as_encoder_output,
    join_stacks,
)
from hf_capsule_mt.modeling.padding import padding_mask_or_none


class CapsulePreTrainedModel(PreTrainedModel):
    """Base of all classes: what transformers asks of each."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _can_compile_fullgraph = True

    def __init__(self, config: Any) -> None:
        config.validate()  # a field may have been set since the configuration was made
        super().__init__(config)

    @property
    def dummy_inputs(self) -> dict[str, torch.Tensor]:
        input_ids = torch.tensor([[3, 6, 10, 4, 2], [5, 8, 12, 2, 2]], device=self.device)
        return {"input_ids": input_ids, "decoder_input_ids": input_ids}


class Stack(CapsulePreTrainedModel):
    """Base of the encoders and the decoders."""

    embed_tokens: nn.Embedding

    def embeddings_of(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Return the embeddings [B, T, e] of token ids [B, T], or those that are given in their place."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(f"{type(self).__name__} needs exactly one of `input_ids` and `inputs_embeds`")
        return self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds


class EncoderDecoderModel(CapsulePreTrainedModel):
    """Base of the base models: an `encoder` and a `decoder`, without the projection to the vocabulary."""

    encoder: Any
    decoder: Any

    @can_return_tuple
    @takes_both_cache_names
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: tuple[torch.Tensor, ...] | BaseModelOutput | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_routing_weights: bool = False,
        output_guided_capsules: bool = False,
    ) -> CapsuleSeq2SeqModelOutput:
        """Encode source ids [B, S], decode target ids [B, T] and return the decoder's states [B, T, d].

        Args:
            attention_mask: [B, S], and `decoder_attention_mask` [B, T]: True or 1 keeps a token.
            encoder_outputs: of the same source; the encoder is then not run.
            cache: the cache of the tokens before `decoder_input_ids`.
            output_routing_weights: return the assignment probabilities of every routing at every iteration.
            output_guided_capsules: return the capsules of PAST and FUTURE, and the states before they are added.
        """
        if encoder_outputs is None:
            source = input_ids if inputs_embeds is None else inputs_embeds
            if attention_mask is not None and source is not None and attention_mask.shape == source.shape[:2]:
                attention_mask = padding_mask_or_none(attention_mask)  # asked here, once a sentence, and nowhere else
            encoded: BaseModelOutput = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                output_attentions=output_attentions,
                output_hidden_states=output_hidden_states,
                output_routing_weights=output_routing_weights,
                return_dict=True,
            )
        else:
            encoded = self.completed(as_encoder_output(encoder_outputs), attention_mask, output_routing_weights)
        decoded: CapsuleDecoderOutput = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
            **self.for_decoder(encoded, output_routing_weights, output_guided_capsules),
        )
        return join_stacks(encoded, decoded, output_routing_weights)

    def completed(
        self, encoded: BaseModelOutput, attention_mask: torch.Tensor | None, output_routing_weights: bool
    ) -> BaseModelOutput:
        """Add what the decoder needs to encoder outputs that were given."""
        return encoded

    def for_decoder(
        self, encoded: BaseModelOutput, output_routing_weights: bool, output_guided_capsules: bool
    ) -> dict[str, Any]:
        """Return the arguments that this family's decoder takes beside the common ones."""
        return {
            "output_routing_weights": output_routing_weights,
            "output_guided_capsules": output_guided_capsules,
        }
