"""The encoder and the decoding step of a translation model as graphs of tensors, which ONNX can hold.

A graph has no cache object, so the tensors of the cache are its inputs and outputs. Their names are those of Hugging
Face's exports: `past_key_values.0.decoder.key` goes in and `present.0.decoder.key` comes out. "decoder" tensors change
at every step, "encoder" tensors are made once for each sentence. A recurrent layer has its state (h, c) in the place
of keys and values, an SSRU keys alone. What else a decoder keeps for each sentence takes the "encoder" places of the
first layers without any.

Legend: B batch, S source positions, T target positions, P past target positions, d model width.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import nn
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from hf_capsule_mt.hub.exporting import TranslationModel
from hf_capsule_mt.modeling import CapsNMTForConditionalGeneration, CapsuleMarianMTModel
from hf_capsule_mt.modeling.past_future_guidance import SOURCE_NAMES
from hf_capsule_mt.modeling.recurrent_cache import RecurrentCache
from hf_capsule_mt.modeling.sentence_cache import GuidedCache

PAIR = ("key", "value")
# the states of the source, which an additive attention reads beside its keys
SOURCE_STATES = "source_states"
Entries = dict[str, torch.Tensor]


def constant_names(model: TranslationModel) -> dict[str, str]:
    """Return what the decoder keeps for each sentence beside keys and values, and the name of each in a graph."""
    config = model.config
    first = 0
    if isinstance(model, CapsuleMarianMTModel):
        first, constants = config.decoder_layers, []
    elif isinstance(model, CapsNMTForConditionalGeneration):
        constants = ["keys", SOURCE_STATES, "source"] if config.source_attention else ["source"]
    else:
        constants = ["source_keys", SOURCE_STATES]
    if getattr(config, "guided_routing", "none") != "none":
        constants += SOURCE_NAMES
    return {name: f"{first + place // 2}.encoder.{PAIR[place % 2]}" for place, name in enumerate(constants)}


def num_cache_layers(model: TranslationModel) -> int:
    """Return how many layers the names of the cache count."""
    last = [int(name.partition(".")[0]) for name in constant_names(model).values()]
    return max([model.config.decoder_layers - 1, *last]) + 1


def cache_entries(model: TranslationModel, cache: Any, states: torch.Tensor) -> Entries:
    """Return the tensors of a cache, by their names in a graph without its prefix. `states` are the encoder's."""
    entries: Entries = {}
    if isinstance(cache, EncoderDecoderCache):
        halves = (("decoder", cache.self_attention_cache), ("encoder", cache.cross_attention_cache))
        for side, half in halves:
            for number, layer in enumerate(cast(Any, half).layers):
                pair = zip(PAIR, (layer.keys, layer.values), strict=True)
                entries |= {f"{number}.{side}.{name}": tensor for name, tensor in pair if tensor.shape[-1]}
    else:
        for number, state in enumerate(cast(RecurrentCache, cache).states or ()):
            entries |= {f"{number}.decoder.{name}": tensor for name, tensor in zip(PAIR, state, strict=False)}
    for constant, name in constant_names(model).items():
        entries[name] = states if constant == SOURCE_STATES else cache.constants[constant]
    return entries


def restore_cache(model: TranslationModel, entries: Mapping[str, torch.Tensor], mask: torch.Tensor) -> Any:
    """Return the cache of which `cache_entries` took the tensors; `mask` [B, S] is the source's."""
    config = model.config
    cache: Any
    constants = {constant: entries[name] for constant, name in constant_names(model).items()}
    if isinstance(model, CapsuleMarianMTModel):
        halves = []
        for side in ("decoder", "encoder"):
            half = DynamicCache()
            for number in range(config.decoder_layers):
                keys = entries[f"{number}.{side}.key"]
                half.update(keys, entries.get(f"{number}.{side}.value", keys[..., :0]), number)
            halves.append(half)
        cache = GuidedCache(*halves) if constants else EncoderDecoderCache(*halves)
    else:
        cache = model.new_cache()
        names = [[f"{number}.decoder.{name}" for name in PAIR] for number in range(config.decoder_layers)]
        cache.append([tuple(entries[name] for name in of_layer if name in entries) for of_layer in names])
        if SOURCE_STATES in constants:
            constants["mask"] = mask.bool()
    if constants:
        cache.constants = constants
    return cache


class EncoderGraph(nn.Module):
    """Token ids and mask [B, S] -> the encoder's states [B, S, d]."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model.get_encoder()(input_ids, attention_mask=attention_mask).last_hidden_state


class FirstStepGraph(nn.Module):
    """The decoder without a cache: the logits [B, T, V] of token ids [B, T], and all tensors of the cache."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, encoder_attention_mask: torch.Tensor, input_ids: torch.Tensor, encoder_hidden_states: torch.Tensor
    ) -> tuple[torch.Tensor, Entries]:
        output = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=encoder_hidden_states),
            attention_mask=encoder_attention_mask,
            decoder_input_ids=input_ids,
            use_cache=True,
        )
        return output.logits, cache_entries(self.model, output.cache, encoder_hidden_states)


class NextStepGraph(nn.Module):
    """The decoder after P tokens: the logits [B, 1, V] of one more, and those tensors of the cache that change."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, encoder_attention_mask: torch.Tensor, input_ids: torch.Tensor, past: Entries
    ) -> tuple[torch.Tensor, Entries]:
        names = constant_names(self.model)
        if SOURCE_STATES in names:
            states = past[names[SOURCE_STATES]]
        else:  # everything that is made of them is in the cache
            states = torch.zeros((*encoder_attention_mask.shape, _width(self.model)), dtype=self.model.dtype)
        output = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=encoder_attention_mask,
            decoder_input_ids=input_ids,
            cache=restore_cache(self.model, past, encoder_attention_mask),
            use_cache=True,
        )
        entries = cache_entries(self.model, output.cache, states)
        return output.logits, {name: tensor for name, tensor in entries.items() if ".decoder." in name}


def _width(model: TranslationModel) -> int:
    config = model.config
    return config.d_model if isinstance(model, CapsuleMarianMTModel) else config.hidden_size
