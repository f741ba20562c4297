"""What the generation models of all families share: the forward pass with its losses, and `generate()`.

Legend: B batch, S source positions, T target positions, d model width, V vocabulary.
"""

import copy
from typing import Any, cast

import torch
from torch import nn
from torch.utils._pytree import tree_map_only
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, can_return_tuple

from hf_capsule_mt.modeling.cache_names import takes_both_cache_names
from hf_capsule_mt.modeling.encoder_decoder import EncoderDecoderModel, has_one_vocabulary
from hf_capsule_mt.modeling.keywords import ForwardKwargs, refuses_misspelt
from hf_capsule_mt.modeling.losses import check_labels, check_labels_given, cross_entropy
from hf_capsule_mt.modeling.outputs import CapsuleSeq2SeqLMOutput, CapsuleSeq2SeqModelOutput, translation_output
from hf_capsule_mt.modeling.summed_losses import IGNORE_INDEX


def generation_settings(model: PreTrainedModel, config: GenerationConfig | None) -> GenerationConfig:
    """Return the generation config that `generate()` uses: the given one, completed by the model's own."""
    settings = copy.deepcopy(GenerationConfig() if config is None else config)
    values = model.generation_config.to_dict()
    settings.update(**values, defaults_only=True, allow_custom_entries=True)
    return settings


class TranslationModel(PreTrainedModel, GenerationMixin):
    """Base of the generation models: a base `model` and its projection `lm_head` to the vocabulary."""

    model: EncoderDecoderModel
    lm_head: nn.Linear
    guided_losses: Any  # `GuidedLosses` or None; not every family has the attribute
    accepts_loss_kwargs = True  # the Trainer's `num_items_in_batch`

    def logits_of(self, states: torch.Tensor) -> torch.Tensor:
        """Return the logits [B, T, V] of the decoder's states [B, T, d]."""
        raise NotImplementedError

    @can_return_tuple
    @refuses_misspelt
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
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_routing_weights: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[ForwardKwargs],
    ) -> CapsuleSeq2SeqLMOutput:
        """Encode source ids [B, S], decode target ids [B, T] and return logits [B, T, V].

        Args:
            labels: [B, T], -100 where there is no target. With them comes `loss`: the cross entropy, summed over the
                targets and divided by their number, and guided losses. In training mode `config.label_smoothing`
                smooths it, but not `nll_loss`.
            num_items_in_batch: divide the losses by this instead. The Trainer gives the number of targets in all
                batches, on all processes, that make one step.
            output_routing_weights: return the assignment probabilities of each routing that runs, by iteration.
        """
        has_guided_losses = self.guided_losses is not None
        check_labels_given(labels, num_items_in_batch, has_guided_losses)
        if labels is not None:
            check_labels(labels, self.model.decoder.num_tokens)
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs: CapsuleSeq2SeqModelOutput = self.model(
            input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            output_routing_weights=output_routing_weights,
            output_guided_capsules=labels is not None and has_guided_losses,
            return_dict=True,
        )
        logits = self.logits_of(cast(torch.Tensor, outputs.last_hidden_state))  # [B, T, V]
        if labels is None:
            return translation_output(outputs, logits, None)
        smoothing = self.config.label_smoothing if self.training else 0.0
        losses = cross_entropy(logits, labels, label_smoothing=smoothing, num_items_in_batch=num_items_in_batch)
        if hasattr(self, "_loss_function"):  # where transformers' setter of `loss_function` puts another
            loss = self._loss_function(
                logits=logits, labels=labels, vocab_size=logits.shape[-1], num_items_in_batch=num_items_in_batch
            )
            losses = losses._replace(loss=loss)
        if self.guided_losses is None:
            return translation_output(outputs, logits, losses)
        guided_losses = self.guided_losses(
            outputs.guided_capsules, outputs.unguided_state, labels, self.lm_head.weight, num_items_in_batch
        )
        return translation_output(outputs, logits, losses, *guided_losses)

    def _resize_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        # private: the public method only reads the size and ties, and would leave an output projection of its own
        embeddings = self.model._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if has_one_vocabulary(self.config) and not self.config.tie_word_embeddings:
            self.lm_head = self._get_resized_lm_head(self.lm_head, embeddings.num_embeddings)
        return embeddings

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Resize the embeddings, and the output projection, of a separate target vocabulary."""
        embeddings = self.model.resize_decoder_token_embeddings(new_num_tokens)
        if not self.config.tie_word_embeddings:
            self.lm_head = self._get_resized_lm_head(self.lm_head, new_num_tokens)
        self.tie_weights()
        self.lm_head.out_features = new_num_tokens
        return embeddings

    def _prepare_decoder_input_ids_for_generation(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Also drop a source mask that masks nothing: looked at here, once a sentence, and not at every step.

        Private, as the public hooks of `generate()` run before the mask is made, or at every step.
        """
        prepared: Any = super()._prepare_decoder_input_ids_for_generation(*args, **kwargs)  # type: ignore[misc]
        input_ids, model_kwargs = prepared
        mask = model_kwargs.get("attention_mask")
        if mask is not None and bool(mask.all()):
            model_kwargs["attention_mask"] = None
        return input_ids, model_kwargs

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Shift labels [B, T] right by one, after the start token: the tokens that predict them."""
        config = self.config
        if config.pad_token_id is None or config.decoder_start_token_id is None:
            raise ValueError(
                "labels need `pad_token_id` and `decoder_start_token_id` in the configuration, which has "
                f"{config.pad_token_id} and {config.decoder_start_token_id}"
            )
        shifted = labels.roll(1, dims=-1)
        shifted[:, 0] = config.decoder_start_token_id
        return shifted.masked_fill(shifted == IGNORE_INDEX, config.pad_token_id)

    @takes_both_cache_names
    @torch.no_grad()
    def generate(
        self,
        inputs: torch.Tensor | None = None,
        *args: Any,
        output_routing_weights: bool = False,
        **kwargs: Any,
    ) -> ModelOutput | torch.Tensor:
        """Generate as in transformers; with `output_routing_weights=True` the result has a field `routing_weights`.

        It needs `return_dict_in_generate=True`. `routing_weights` is a dictionary as in the model's output. A
        decoder's weights have one position for each token of `sequences` but the last. All have one row for each
        returned sequence.

        The weights are those of one forward pass over the returned sequences, which computes at each position what the
        decoding step computed there. They follow the winning beam, sampling and speculative decoding by themselves,
        and decoding keeps its speed. Given `encoder_outputs` must carry the encoder's.
        """
        refuse_paged(kwargs)
        source = kwargs | {"encoder_outputs": copy.copy(kwargs.get("encoder_outputs"))}  # its rows will be repeated
        output = super().generate(inputs, *args, **kwargs)
        if not output_routing_weights:
            return output
        if not isinstance(output, ModelOutput):
            raise ValueError("`output_routing_weights=True` needs `return_dict_in_generate=True` to return them in")
        if inputs is not None:
            source[self.main_input_name] = inputs
        output["routing_weights"] = self._force_routing_weights(output["sequences"], source)
        return output

    def _prepare_cache_for_generation(self, generation_config: GenerationConfig, *args: Any, **kwargs: Any) -> Any:
        """Refuse a cache that does not work, before transformers fails with another error.

        Private: `generate()` completes the settings inside, from those of the model, so nothing before knows them.
        """
        name = generation_config.cache_implementation or ""
        if name == "quantized":
            raise ValueError(_cache_advice(name))
        if name.startswith("offloaded") and not torch.cuda.is_available():
            raise ValueError(
                f'`cache_implementation` "{name}" moves the cache between a GPU and the CPU, and there is no GPU: '
                "leave it out"
            )
        return super()._prepare_cache_for_generation(generation_config, *args, **kwargs)  # type: ignore[misc]

    def _get_logits_processor(self, generation_config: GenerationConfig, *args: Any, **kwargs: Any) -> Any:
        """Refuse forced tokens outside the vocabulary, and classifier-free guidance.

        For guidance, transformers calls the model without `decoder_input_ids`. Private, as the cache's is.
        """
        size = self.model.decoder.num_tokens
        for name in ("forced_bos_token_id", "forced_eos_token_id"):
            tokens = getattr(generation_config, name)
            for token in tokens if isinstance(tokens, (list, tuple)) else [tokens]:
                if token is not None and not (isinstance(token, int) and 0 <= token < size):
                    raise ValueError(f"`{name}` must be a token id from 0 to {size - 1}, got {tokens!r}")
        if generation_config.guidance_scale not in (None, 1):
            raise ValueError(
                f"`guidance_scale` must be 1.0 or left out, got {generation_config.guidance_scale}: transformers "
                "computes guidance only for models without an encoder"
            )
        return super()._get_logits_processor(generation_config, *args, **kwargs)  # type: ignore[misc]

    def _force_routing_weights(self, sequences: torch.Tensor, generate_kwargs: dict[str, Any]) -> Any:
        """Return the routing weights of a forward pass that is forced to produce `sequences` [B * returned, T]."""
        names = ("input_ids", "inputs_embeds", "attention_mask", "encoder_outputs", "decoder_attention_mask")
        inputs = {name: generate_kwargs.get(name) for name in names}
        target = sequences[:, :-1]
        if (mask := inputs["decoder_attention_mask"]) is not None:  # of a prompt, which may lack the start token
            start = int(generate_kwargs.get("decoder_input_ids", target)[0, 0] != target[0, 0])
            padding = (start, target.shape[1] - start - mask.shape[1])
            inputs["decoder_attention_mask"] = nn.functional.pad(mask, padding, value=1)
        inputs = tree_map_only(
            torch.Tensor, lambda rows: rows.repeat_interleave(len(target) // len(rows), dim=0), inputs
        )
        return self(**inputs, decoder_input_ids=target, use_cache=False, output_routing_weights=True).routing_weights


def refuse_paged(generate_kwargs: dict[str, Any]) -> None:
    """Refuse a cache with which transformers would log an error, and return the source."""
    if generate_kwargs.get("cache_implementation") == "paged":
        raise ValueError(_cache_advice("paged"))


def _cache_advice(name: str) -> str:
    return (
        f'`cache_implementation` "{name}" is only for models without an encoder; leave it out, or use "static" to '
        "compile the decoding step"
    )
