"""`generate()` that returns routing weights."""

from typing import Any

import torch
from transformers.utils import ModelOutput


class RoutingWeightsInGeneration:
    """Mixin beside `GenerationMixin`: `generate(..., return_dict_in_generate=True, output_routing_weights=True)`.

    The weights are those of one pass over the returned sequences, which gives at each position what the decoding step
    of that position computed: decoding with and without a cache agree. So they follow the winning beam, sampling and
    speculative decoding by themselves, and decoding keeps its speed.
    """

    @torch.no_grad()
    def generate(self, inputs: torch.Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """As in transformers; with `output_routing_weights=True` the result has a field `routing_weights`.

        It is a dictionary like that of the model's output. A decoder's weights have one position for each token of
        `sequences` but the last, and one row for each returned sequence; so have an encoder's.
        """
        output_routing_weights = kwargs.pop("output_routing_weights", False)
        output = super().generate(inputs, *args, **kwargs)  # type: ignore[misc]
        if not output_routing_weights:
            return output
        if not isinstance(output, ModelOutput):
            raise ValueError("`output_routing_weights=True` needs `return_dict_in_generate=True` to return them in")
        if inputs is not None:
            kwargs[self.main_input_name] = inputs  # type: ignore[attr-defined]
        output["routing_weights"] = self._routing_weights_of(output["sequences"], kwargs)
        return output

    def _routing_weights_of(self, sequences: torch.Tensor, generate_kwargs: dict[str, Any]) -> Any:
        """The routing weights of a forward pass that is forced to produce `sequences` [B * returned, T]."""
        names = ("input_ids", "inputs_embeds", "attention_mask", "encoder_outputs")
        source = {name: generate_kwargs[name] for name in names if generate_kwargs.get(name) is not None}
        pad_token_id = self.config.pad_token_id  # type: ignore[attr-defined]
        if "input_ids" in source and "attention_mask" not in source and pad_token_id is not None:
            source["attention_mask"] = source["input_ids"].ne(pad_token_id).long()  # as `generate` does
        source = {name: _repeat_rows(value, len(sequences)) for name, value in source.items()}
        return self(  # type: ignore[operator]
            **source, decoder_input_ids=sequences[:, :-1], use_cache=False, output_routing_weights=True
        ).routing_weights


def _repeat_rows(value: Any, num_rows: int) -> Any:
    """Repeats each row of a tensor, or of the tensors of an encoder's output, for the sequences returned for it."""
    if isinstance(value, torch.Tensor):
        return value.repeat_interleave(num_rows // len(value), dim=0)
    if isinstance(value, ModelOutput):
        return type(value)(**{key: _repeat_rows(item, num_rows) for key, item in value.items()})
    return value
