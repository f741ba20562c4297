"""What the generation models of all families share: decoder inputs from labels, `generate()` with routing weights."""

import copy
from typing import Any, cast

import torch
from torch import nn
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.utils import ModelOutput

from hf_capsule_mt.modeling.cache_names import rename_cache
from hf_capsule_mt.modeling.losses import decoder_inputs_from_labels


def generation_settings(model: PreTrainedModel, given: GenerationConfig | None) -> GenerationConfig:
    """Return the generation config that `generate()` uses: the given one, completed by the model's own."""
    settings = copy.deepcopy(GenerationConfig() if given is None else given)
    own = model.generation_config.to_dict()
    settings.update(**own, defaults_only=True, allow_custom_entries=True)
    return settings


def generation_setting(model: PreTrainedModel, given: GenerationConfig | None, name: str) -> Any:
    """Return one field of these settings, without making all of them."""
    value = getattr(given, name, None)
    return getattr(model.generation_config, name, None) if value is None else value


class TranslationModel(PreTrainedModel, GenerationMixin):
    """Base of the generation models: a base `model` and its projection `lm_head` to the vocabulary."""

    model: PreTrainedModel
    lm_head: nn.Linear
    accepts_loss_kwargs = True  # the Trainer's `num_items_in_batch`

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm_head = cast(nn.Linear, new_embeddings)

    def _prepare_decoder_input_ids_for_generation(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Also drop a source mask that masks nothing: asked here, once a sentence, and at no step."""
        prepared: Any = super()._prepare_decoder_input_ids_for_generation(*args, **kwargs)  # type: ignore[misc]
        input_ids, model_kwargs = prepared
        mask = model_kwargs.get("attention_mask")
        if mask is not None and bool(mask.all()):
            model_kwargs["attention_mask"] = None
        return input_ids, model_kwargs

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Shift labels [B, T] right by one, after the start token: the tokens that predict them."""
        return decoder_inputs_from_labels(labels, self.config)

    @torch.no_grad()
    def generate(
        self,
        inputs: torch.Tensor | None = None,
        *args: Any,
        output_routing_weights: bool = False,
        **kwargs: Any,
    ) -> ModelOutput | torch.Tensor:
        """Generate as in transformers; with `output_routing_weights=True` the result has a field `routing_weights`.

        It needs `return_dict_in_generate=True`. `routing_weights` is a dictionary like that of the model's output. A
        decoder's weights have one position for each token of `sequences` but the last, and one row for each returned
        sequence; so have an encoder's.

        The weights are those of one forward pass over the returned sequences, which computes at each position what the
        decoding step computed there. They follow the winning beam, sampling and speculative decoding by themselves,
        and decoding keeps its speed.
        """
        rename_cache(kwargs)
        output = super().generate(inputs, *args, **kwargs)
        if not output_routing_weights:
            return output
        if not isinstance(output, ModelOutput):
            raise ValueError("`output_routing_weights=True` needs `return_dict_in_generate=True` to return them in")
        if inputs is not None:
            kwargs[self.main_input_name] = inputs
        output["routing_weights"] = self._force_routing_weights(output["sequences"], kwargs)
        return output

    def _force_routing_weights(self, sequences: torch.Tensor, generate_kwargs: dict[str, Any]) -> Any:
        """Return the routing weights of a forward pass that is forced to produce `sequences` [B * returned, T]."""
        names = ("input_ids", "inputs_embeds", "attention_mask", "encoder_outputs")
        source = {name: generate_kwargs[name] for name in names if generate_kwargs.get(name) is not None}
        pad_token_id = self.config.pad_token_id
        if "input_ids" in source and "attention_mask" not in source and pad_token_id is not None:
            source["attention_mask"] = source["input_ids"].ne(pad_token_id).long()  # as `generate` does
        source = {name: _repeat_rows(value, len(sequences)) for name, value in source.items()}
        return self(
            **source, decoder_input_ids=sequences[:, :-1], use_cache=False, output_routing_weights=True
        ).routing_weights


def _repeat_rows(value: Any, num_rows: int) -> Any:
    """Repeat each row of a tensor, or of the tensors of an encoder's output, for the sequences returned for it."""
    if isinstance(value, torch.Tensor):
        return value.repeat_interleave(num_rows // len(value), dim=0)
    if isinstance(value, ModelOutput):
        return type(value)(**{key: _repeat_rows(item, num_rows) for key, item in value.items()})
    return value
