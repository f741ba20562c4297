"""What all classes of all families share, and the forward pass of their base models: an encoder and a decoder.

Legend: B batch, S source positions, T target positions, d model width. In every mask `True` keeps.
"""

import os
import re
from importlib import import_module
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import can_return_tuple

from hf_capsule_mt.configuration.common import TOKEN_IDS
from hf_capsule_mt.modeling.cache_names import takes_both_cache_names
from hf_capsule_mt.modeling.checkpoint_files import damaged_file, refuse_unusable
from hf_capsule_mt.modeling.keywords import ForwardKwargs, refuses_misspelt
from hf_capsule_mt.modeling.losses import type_of
from hf_capsule_mt.modeling.outputs import (
    CapsuleDecoderOutput,
    CapsuleSeq2SeqModelOutput,
    as_encoder_output,
    join_stacks,
)
from hf_capsule_mt.modeling.padding import padding_mask_or_none
from hf_capsule_mt.routing.common import may_read_values


def _refuse_few_bits(name_or_path: Any, subfolder: str) -> None:
    """Refuse a folder whose only weights are those that `capsule-mt convert --to int8` or `--to small` has written."""
    if name_or_path is None or not os.path.isdir(folder := os.path.join(name_or_path, subfolder)):
        return
    files = os.listdir(folder)
    has_weights = any(re.fullmatch(r"(pytorch_)?model.*\.(safetensors|bin)(\.index\.json)?", name) for name in files)
    for kind in ("int8", "small"):
        if f"{kind}.safetensors" in files and not has_weights:
            raise OSError(
                f"{os.fspath(name_or_path)} is a checkpoint that `capsule-mt convert --to {kind}` has written, with "
                f"the weights in {kind}.safetensors, which transformers does not read: to translate, use "
                f"`capsule_mt.Translator.from_pretrained({os.fspath(name_or_path)!r}, int8=True)`; to train or to "
                "generate with transformers, load the checkpoint that it was converted from"
            )


class CapsulePreTrainedModel(PreTrainedModel):
    """Base of all classes: what transformers asks of each."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _can_compile_fullgraph = True

    def __init__(self, config: Any) -> None:
        config.validate()  # a field may have been set since the configuration was made
        super().__init__(config)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any, *args: Any, output_loading_info: bool = False, **kwargs: Any
    ) -> Any:
        """Load as transformers does, but refuse a damaged file, missing tensors and numbers that are not finite.

        Tensors may be missing that the saved configuration does not describe, or that the saved class lacks. With
        `output_loading_info=True`, the caller decides about tensors.
        """
        subfolder = kwargs.get("subfolder") or ""
        if "state_dict" not in kwargs:
            _refuse_few_bits(pretrained_model_name_or_path, subfolder)
        settings = {**kwargs, "output_loading_info": True}
        loaded: Any
        try:
            loaded = super().from_pretrained(pretrained_model_name_or_path, *args, **settings)
        except (ImportError, TypeError):
            raise
        except Exception as error:  # the libraries raise many kinds, without the name of the file
            damage = damaged_file(pretrained_model_name_or_path, kwargs)
            if damage is None or not cls._has_config(pretrained_model_name_or_path, kwargs):
                raise
            raise OSError(f"{damage[0]}: damaged, or cut off: {damage[1]}") from error
        if output_loading_info:
            return loaded
        model, info = loaded
        refuse_unusable(model, info["missing_keys"], pretrained_model_name_or_path, kwargs)
        return model

    @classmethod
    def _has_config(cls, name_or_path: Any, settings: dict[str, Any]) -> bool:
        """Return whether the configuration can be read, with the fields among the keywords of `from_pretrained`."""
        settings = settings | {"return_unused_kwargs": True}
        config = settings.pop("config", None)
        try:
            if not isinstance(config, PreTrainedConfig):
                cast(Any, cls.config_class).from_pretrained(config or name_or_path, **settings)
        except Exception:  # each library raises its own
            return False
        return True

    def _upload_modified_files(self, working_dir: Any, *args: Any, **kwargs: Any) -> Any:
        """Push with the code that the model needs where the package is not installed.

        Private, as `push_to_hub` and `save_pretrained(push_to_hub=True)` meet here alone, once all files are written.
        """
        import_module(f"{__name__.partition('.')[0]}.hub.exporting").add_code(self, working_dir)
        return super()._upload_modified_files(working_dir, *args, **kwargs)

    def get_position_embeddings(self) -> Any:
        raise NotImplementedError(self._why_no_positions("get_position_embeddings"))

    def resize_position_embeddings(self, new_num_position_embeddings: int) -> None:
        raise NotImplementedError(self._why_no_positions("resize_position_embeddings"))

    def _why_no_positions(self, method: str) -> str:
        return (
            f"`{method}`: {type(self).__name__} does not have position embeddings; its recurrent layers take "
            "sequences of any length"
        )


def base_layer_of(module: nn.Module) -> Any:
    """Return a module without the layers that PEFT puts around it: an adapter, or a copy that it trains."""
    for name in ("base_layer", "original_module"):
        module = getattr(module, name, module)
    return module


class Stack(CapsulePreTrainedModel):
    """Base of the encoders and the decoders."""

    embed_tokens: nn.Embedding

    @property
    def num_tokens(self) -> int:
        """How many token ids have an embedding, whatever layer of PEFT's is around it."""
        return base_layer_of(self.embed_tokens).num_embeddings

    def embeddings_of(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Return the embeddings [B, T, e] of token ids [B, T], or those that are given in their place."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(
                f"{type(self).__name__} needs exactly one of `input_ids` and `inputs_embeds`: for a decoder, these "
                "are the model's `decoder_input_ids` and `decoder_inputs_embeds`, and `labels` can take their place"
            )
        self.check_inputs(input_ids, inputs_embeds)
        return self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds

    def check_inputs(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> None:
        """Refuse what cannot be embedded. On a GPU ids are not looked at: that would wait for it."""
        if inputs_embeds is None:
            if not isinstance(input_ids, torch.Tensor) or input_ids.dtype not in (torch.int64, torch.int32):
                raise TypeError(
                    f"`input_ids` of {type(self).__name__} must be a tensor of dtype int64 or int32, got "
                    f"{type_of(input_ids)}"
                )
            if input_ids.dim() != 2:
                hint = ": for one sentence, give `input_ids[None]`" if input_ids.dim() == 1 else ""
                raise ValueError(
                    f"`input_ids` of {type(self).__name__} must be [batch, tokens], got {list(input_ids.shape)}{hint}"
                )
            size = self.num_tokens
            if may_read_values(input_ids) and len(unknown := input_ids[(input_ids < 0) | (input_ids >= size)]):
                raise IndexError(
                    f"`input_ids` of {type(self).__name__} must be token ids from 0 to {size - 1}, got "
                    f"{unknown[:5].tolist()}"
                )
            return
        width = base_layer_of(self.embed_tokens).embedding_dim
        if inputs_embeds.dim() != 3 or inputs_embeds.shape[-1] != width:
            raise ValueError(
                f"`inputs_embeds` of {type(self).__name__} must be [batch, tokens, {width}], got "
                f"{list(inputs_embeds.shape)}"
            )

    def checked_mask(self, name: str, mask: torch.Tensor | None, hidden: torch.Tensor) -> torch.Tensor | None:
        """Check a padding mask [B, T] of states [B, T, d]; return it as bools, `None` if it is known to keep all."""
        if mask is not None and mask.shape != hidden.shape[:2]:
            raise ValueError(
                f"`{name}` of {type(self).__name__} must be {list(hidden.shape[:2])}, got {list(mask.shape)}"
            )
        return padding_mask_or_none(mask)

    def check_has_words(self, hidden: torch.Tensor) -> None:
        """Refuse a source [B, S, d] without a word, for which a decoder would invent a translation."""
        if hidden.shape[1] == 0:
            raise ValueError(f"the source is empty: it has the shape {list(hidden.shape[:2])}")

    def source_mask(self, attention_mask: torch.Tensor | None, hidden: torch.Tensor) -> torch.Tensor | None:
        """Check the padding mask [B, S] of a source, of which every row needs a word."""
        self.check_has_words(hidden)
        mask = self.checked_mask("attention_mask", attention_mask, hidden)
        if mask is not None and may_read_values(mask) and not bool(mask.any(dim=1).all()):
            rows = (~mask.any(dim=1)).nonzero().flatten().tolist()
            raise ValueError(f"the source is all padding in row(s) {rows} of `attention_mask`")
        return mask

    def target_mask(self, attention_mask: torch.Tensor | None, hidden: torch.Tensor) -> torch.Tensor | None:
        """Check the padding mask of a target, [B, T] or [B, past + T]; return that of its new words, or `None`."""
        length = hidden.shape[1]
        if length == 0:
            raise ValueError(f"{type(self).__name__} got sequences of no tokens, shape {list(hidden.shape)}")
        return self.checked_mask(
            "attention_mask", None if attention_mask is None else attention_mask[:, -length:], hidden
        )


# Weights that are those of `shared` if there is one vocabulary: in a base model, and in a generation model around it
TIED_TO_SHARED = {
    "decoder.embed_tokens.weight": "shared.weight",
    "encoder.embed_tokens.weight": "shared.weight",
}
ALL_TIED_TO_SHARED = {
    "lm_head.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
    "model.encoder.embed_tokens.weight": "model.shared.weight",
}


def has_one_vocabulary(config: Any) -> bool:
    """Return whether source and target have one vocabulary, as in every family that does not ask."""
    return getattr(config, "share_encoder_decoder_embeddings", True)


class EncoderDecoderModel(CapsulePreTrainedModel):
    """Base of the base models: an `encoder` and a `decoder`, without the projection to the vocabulary."""

    config: Any
    encoder: Any
    decoder: Any
    shared: nn.Embedding  # of families that may have one vocabulary or two, if it is one

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
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_routing_weights: bool = False,
        output_guided_capsules: bool = False,
        **kwargs: Unpack[ForwardKwargs],
    ) -> CapsuleSeq2SeqModelOutput:
        """Encode source ids [B, S], decode target ids [B, T] and return the decoder's states [B, T, d].

        Args:
            attention_mask: [B, S], and `decoder_attention_mask` [B, past + T]: True or 1 keeps a token.
            encoder_outputs: of the same source; the encoder is then not run.
            cache: the cache of the tokens before `decoder_input_ids`.
            output_routing_weights: return the assignment probabilities of each routing that runs, by iteration.
            output_guided_capsules: return the capsules of PAST and FUTURE, and the states before they are added.
        """
        if encoder_outputs is None:
            source = input_ids if inputs_embeds is None else inputs_embeds
            if attention_mask is not None and source is not None and attention_mask.shape == source.shape[:2]:
                attention_mask = padding_mask_or_none(attention_mask)  # looked at once a sentence, here
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

    # ---- embeddings
    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        value = cast(nn.Embedding, value)
        self.encoder.embed_tokens = value
        if has_one_vocabulary(self.config):
            self.decoder.embed_tokens = value
            if hasattr(self, "shared"):
                self.shared = value

    def get_decoder_input_embeddings(self) -> nn.Embedding:
        self._check_separate_vocabularies("get_decoder_input_embeddings", "get_input_embeddings")
        return self.decoder.embed_tokens

    def set_decoder_input_embeddings(self, value: nn.Embedding) -> None:
        self._check_separate_vocabularies("set_decoder_input_embeddings", "set_input_embeddings")
        self.decoder.embed_tokens = value

    def _resize_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        # private: the public method resizes one matrix, and a model may have three: shared, and one for each side
        self._check_special_tokens("resize_token_embeddings", new_num_tokens, pad_to_multiple_of)

        def resize(embeddings: nn.Embedding) -> nn.Embedding:
            return self._get_resized_embeddings(embeddings, new_num_tokens, pad_to_multiple_of, mean_resizing)

        if has_one_vocabulary(self.config) and not self.config.tie_word_embeddings:  # each has a matrix of its own
            if hasattr(self, "shared"):
                self.shared = resize(self.shared)
            for stack in (self.encoder, self.decoder):
                stack.embed_tokens = resize(stack.embed_tokens)
        else:
            self.set_input_embeddings(resize(self.encoder.embed_tokens))
        if hasattr(self, "shared"):
            self.config.decoder_vocab_size = self.encoder.embed_tokens.num_embeddings
        return self.encoder.embed_tokens

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Resize the embeddings of a separate target vocabulary."""
        self._check_separate_vocabularies("resize_decoder_token_embeddings", "resize_token_embeddings")
        self._check_special_tokens("resize_decoder_token_embeddings", new_num_tokens)
        self.decoder.embed_tokens = self._get_resized_embeddings(self.decoder.embed_tokens, new_num_tokens)
        self.config.decoder_vocab_size = self.decoder.embed_tokens.num_embeddings
        return self.decoder.embed_tokens

    def _check_special_tokens(self, method: str, new_num_tokens: int | None, multiple: int | None = None) -> None:
        """Refuse a size that excludes special tokens of the configuration, which could then not be loaded again."""
        if new_num_tokens is None:
            return
        size = new_num_tokens + -new_num_tokens % (multiple or 1)
        resizes_target = method == "resize_decoder_token_embeddings"
        source_size = self.encoder.num_tokens if resizes_target else size
        target_size = size if resizes_target or has_one_vocabulary(self.config) else self.decoder.num_tokens
        excluded: dict[str, int] = {}
        for name in TOKEN_IDS:
            limit = target_size if name == "decoder_start_token_id" else max(source_size, target_size)
            value = getattr(self.config, name, None)
            highest = max(value, default=None) if isinstance(value, list) else value
            if highest is not None and highest >= limit:
                excluded[name] = highest
        if excluded:
            tokens = ", ".join(f"`{name}` ({token})" for name, token in excluded.items())
            raise ValueError(
                f"`{method}` to {size} tokens would exclude {tokens}: keep at least {max(excluded.values()) + 1} "
                "tokens, or set other ids in the configuration first"
            )

    def _check_separate_vocabularies(self, method: str, instead: str) -> None:
        if has_one_vocabulary(self.config):
            raise ValueError(f"`{method}` needs `share_encoder_decoder_embeddings=False`, use `{instead}`")
