"""Capsule Marian without capsules as a model of CTranslate2, to measure the engine beside it."""

import copy
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import MarianMTModel, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.hub.conversion import to_marian

NEVER = -1e9  # a logit of a word that is never produced


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
        """Loads a Marian. CTranslate2's own loader pads with the last word, but starts from zero instead of it."""

        @property
        def architecture_name(self) -> str:
            return "MarianMTModel"

        def get_model_spec(self, source_model: Any) -> Any:
            source_model.config.normalize_before = source_model.config.normalize_embedding = False
            return super().get_model_spec(source_model)

        def set_config(self, config: Any, source_model: Any, words: Any) -> None:
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
