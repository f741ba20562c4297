"""Tiny random models of every family and seam: those of `tests.mixes` that have a fast form."""

from typing import Any

import torch
import transformers
from transformers import MarianConfig, MarianMTModel, PreTrainedModel

from hf_capsule_mt import (
    CapsNMTConfig,
    CapsNMTForConditionalGeneration,
    CapsuleMarianMTModel,
    CapsuleRNMTConfig,
    CapsuleRNMTForConditionalGeneration,
)
from hf_capsule_mt.decoding.fast import FastTranslator
from tests.mixes import CAPSNMT, FAST, MARIAN, RNMT

VOCABULARY, PAD, END = 211, 210, 0
SPECIAL = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": PAD}
# relatives of BART by model type: their classes of transformers, without "Config" and "ForConditionalGeneration"
BART_FAMILIES = {
    "m2m_100": "M2M100",
    "mbart": "MBart",
    "bart": "Bart",
    "pegasus": "Pegasus",
    "blenderbot": "Blenderbot",
}
NAMES = ["stock", *FAST, *BART_FAMILIES]
SIZES = {
    "d_model": 40,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 50,
    "decoder_ffn_dim": 50,
    "max_position_embeddings": 60,
    "scale_embedding": True,
    "forced_eos_token_id": None,
}


def build(name: str) -> PreTrainedModel:
    torch.manual_seed(NAMES.index(name))
    model: PreTrainedModel
    if name in CAPSNMT:
        sizes = {"hidden_size": 36, "embedding_size": 20, "encoder_layers": 2, "decoder_layers": 2}
        settings = {"vocab_size": VOCABULARY, **sizes, **SPECIAL, **CAPSNMT[name]}
        model = CapsNMTForConditionalGeneration(CapsNMTConfig(**settings))
    elif name in RNMT:
        settings = {"vocab_size": VOCABULARY, "hidden_size": 36, **SPECIAL, **RNMT[name]}
        model = CapsuleRNMTForConditionalGeneration(CapsuleRNMTConfig(**settings))
    elif name in BART_FAMILIES:
        model = build_bart(name)
    else:
        activation = "swish" if name == "stock" else "relu"
        model = MarianMTModel(MarianConfig(vocab_size=VOCABULARY, activation_function=activation, **SIZES, **SPECIAL))
        if name != "stock":
            model = CapsuleMarianMTModel.from_marian(model, **MARIAN[name])
    std = 0.3 if name in CAPSNMT else 0.2  # the densities of EM routing amplify what is rounded, the more the sharper
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=std)
            elif parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.generation_config.max_length = None
    model.generation_config.max_new_tokens = 14
    model.generation_config.forced_eos_token_id = None
    model.generation_config.bad_words_ids = [[model.config.pad_token_id]]
    return model.eval()


def build_bart(model_type: str, **settings: Any) -> PreTrainedModel:
    """Return a model of a relative of BART with the weights that transformers gives it."""
    name = BART_FAMILIES[model_type]
    config, model = getattr(transformers, f"{name}Config"), getattr(transformers, f"{name}ForConditionalGeneration")
    # as every released checkpoint has them: M2M100 counts no position for its padding token
    special = {**SPECIAL, "pad_token_id": 1, "decoder_start_token_id": 2, "forced_bos_token_id": None}
    special["encoder_no_repeat_ngram_size"] = 0  # which Blenderbot sets, and the engine does not take
    built: PreTrainedModel = model(config(**{"vocab_size": VOCABULARY, **SIZES, **special, **settings}))
    return built


SOURCES = [[5, 6, 7, 8, END], [9, END], [11, 12, 13, 14, 15, 16, 17, 18, END], [20, 21, 22, END]]


def batch(sources: list[list[int]] = SOURCES) -> dict[str, torch.Tensor]:
    longest = max(map(len, sources))
    input_ids = torch.tensor([source + [PAD] * (longest - len(source)) for source in sources])
    lengths = torch.tensor([len(source) for source in sources])
    return {"input_ids": input_ids, "attention_mask": (torch.arange(longest) < lengths[:, None]).long()}


def strictly(model: PreTrainedModel, *, int8: bool = True, **settings: Any) -> FastTranslator:
    """`to_fast`, with an error where `generate()` would take over."""
    return FastTranslator(model, int8=int8, strict=True, **settings)
