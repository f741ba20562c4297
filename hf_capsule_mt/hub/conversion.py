"""Capsule Marian without capsules as other software's models: transformers' Marian, and CTranslate2."""

import copy
import json
import os
import tempfile
from pathlib import Path
from typing import Any, cast

import torch
from transformers import MarianConfig, MarianMTModel, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.modeling import CapsuleMarianMTModel

# each switch of `CapsuleMarianConfig` and its value for a model that is Marian's
OFF: dict[str, Any] = {
    "layer_aggregation": "none",
    "head_aggregation": "concat",
    "guided_routing": "none",
    "decoder_self": "attention",
    "marian_positions": False,
}
NEVER = -1e9  # a logit of a word that is never produced


def to_marian(model: PreTrainedModel) -> MarianMTModel:
    """Return transformers' `MarianMTModel` with the weights of a Capsule Marian whose switches are all off."""
    if isinstance(model, MarianMTModel):
        return model
    if not isinstance(model, CapsuleMarianMTModel):
        raise ValueError(f"only a CapsuleMarianMTModel can become a MarianMTModel, got a {type(model).__name__}")
    switched_on = {name: value for name, off in OFF.items() if (value := getattr(model.config, name)) != off}
    if switched_on:
        named = ", ".join(f"{name}={json.dumps(value)}" for name, value in switched_on.items())
        wanted = ", ".join(f"{name}={json.dumps(OFF[name])}" for name in switched_on)
        raise ValueError(f"transformers' Marian has no place for this model: it has {named}; only {wanted} converts")
    known = MarianConfig().to_dict()
    values = {name: value for name, value in model.config.to_dict().items() if name in known}
    config = MarianConfig(**{**values, "model_type": "marian", "architectures": ["MarianMTModel"]})
    if model.config.coverage_calibration is not None:
        config.coverage_calibration = model.config.coverage_calibration
    marian: Any = MarianMTModel(config)
    marian.to(model.dtype)
    marian.load_state_dict(model.state_dict())
    marian.generation_config = copy.deepcopy(model.generation_config)
    marian.eval()
    return cast(MarianMTModel, marian)


def convert_to_ctranslate2(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str | os.PathLike[str], *, int8: bool = False
) -> Path:
    """Write a Capsule Marian whose switches are off for CTranslate2; needs the library `ctranslate2`.

    Translate with the tokens of this tokenizer: `translate_batch([tokenizer.convert_ids_to_tokens(ids)])`.

    Args:
        int8: store the matrices in int8.
    """
    from ctranslate2.converters import TransformersConverter
    from ctranslate2.converters.transformers import BartLoader

    marian: Any = copy.deepcopy(model) if isinstance(model, MarianMTModel) else to_marian(model)  # it is changed below
    if not marian.config.share_encoder_decoder_embeddings:
        raise ValueError("`share_encoder_decoder_embeddings` is False, but only a joint vocabulary converts")
    start = marian.config.decoder_start_token_id
    with torch.no_grad():
        marian.final_logits_bias[0, marian.config.pad_token_id] = NEVER

    class Loader(BartLoader):
        """CTranslate2's own takes the last word for padding, and starts from zero instead of that word."""

        @property
        def architecture_name(self) -> str:
            return "MarianMTModel"

        def get_model_spec(self, given: Any) -> Any:
            given.config.normalize_before = given.config.normalize_embedding = False
            return super().get_model_spec(given)

        def set_config(self, config: Any, given: Any, words: Any) -> None:
            config.eos_token, config.unk_token = words.eos_token, words.unk_token
            config.decoder_start_token = words.convert_ids_to_tokens(start)

    class Converter(TransformersConverter):
        def _load(self) -> Any:
            with torch.no_grad():
                return Loader()(marian, tokenizer)

    with tempfile.TemporaryDirectory() as nowhere:
        Converter(nowhere).convert(str(folder), quantization="int8" if int8 else None, force=True)
    tokenizer.save_pretrained(folder)
    return Path(folder)
