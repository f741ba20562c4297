"""Tiny random models of every family and seam."""

from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel, PreTrainedModel

from hf_capsule_mt import (
    CapsNMTConfig,
    CapsNMTForConditionalGeneration,
    CapsuleMarianMTModel,
    CapsuleRNMTConfig,
    CapsuleRNMTForConditionalGeneration,
)
from hf_capsule_mt.decoding.fast import FastTranslator

VOCABULARY, PAD, END = 211, 210, 0
SPECIAL = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": PAD}
MARIAN = {
    "plain": {},
    "em": {"layer_aggregation": "em_routing"},
    "em_of_8": {"layer_aggregation": "em_routing", "layer_aggregation_num_capsules": 8},
    "em_scalar": {"layer_aggregation": "em_routing", "em_input_activation": "scalar"},
    "em_own": {
        "layer_aggregation": "em_routing",
        "layer_aggregation_capsule_input": "own",
        "layer_aggregation_vote_input": "own",
        "layer_aggregation_residual": True,
    },
    "dynamic": {"layer_aggregation": "dynamic_routing", "layer_aggregation_num_capsules": 8},
    "linear": {"layer_aggregation": "linear", "layer_aggregation_side": "encoder"},
    "combination": {"layer_aggregation": "dynamic_combination", "layer_aggregation_side": "decoder"},
    "heads": {
        "head_aggregation": "em_routing",
        "head_aggregation_sites": ["encoder_self", "decoder_self", "cross"],
    },
    "simple_heads": {"head_aggregation": "simple_routing", "head_aggregation_activation": "tanh"},
    "guided": {"guided_routing": "guided", "guided_capsule_dim": 20, "guided_ffn_dim": 24},
    "guided_once": {"guided_routing": "guided", "guided_capsule_dim": 12, "guided_num_iterations": 1},
}
CAPSNMT = {
    "capsules": {},
    "shared": {"share_iteration_weights": True, "position_aware": False, "separable_scoring": False},
    "pooling": {"aggregation": "pooling"},
    "hybrid": {"source_attention": True, "separable_scoring": False},
    "narrow": {"embedding_size": 20, "normalize_capsules": True},
}
RNMT = {
    "rnmt": {},
    "rnmt_guided": {"guided_routing": "guided", "guided_capsule_dim": 20, "decoder_layers": 3},
    "rnmt_narrow": {"embedding_size": 20},
}
NAMES = ["stock", *MARIAN, *CAPSNMT, *RNMT, "combined", "ssru", "ssru_combined"]
MARIAN["combined"] = MARIAN["em"] | MARIAN["heads"] | MARIAN["guided"]
MARIAN["ssru"] = {"decoder_self": "ssru", "marian_positions": True}
MARIAN["ssru_combined"] = MARIAN["em"] | MARIAN["simple_heads"] | MARIAN["guided"] | MARIAN["ssru"]


def build(name: str) -> PreTrainedModel:
    torch.manual_seed(NAMES.index(name))
    model: PreTrainedModel
    if name in CAPSNMT:
        sizes = {"hidden_size": 36, "encoder_layers": 2, "decoder_layers": 2}
        model = CapsNMTForConditionalGeneration(
            CapsNMTConfig(vocab_size=VOCABULARY, **sizes, **SPECIAL, **CAPSNMT[name])
        )
    elif name in RNMT:
        model = CapsuleRNMTForConditionalGeneration(
            CapsuleRNMTConfig(vocab_size=VOCABULARY, hidden_size=36, **SPECIAL, **RNMT[name])
        )
    else:
        model = MarianMTModel(
            MarianConfig(
                vocab_size=VOCABULARY,
                d_model=40,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=50,
                decoder_ffn_dim=50,
                max_position_embeddings=60,
                activation_function="swish" if name == "stock" else "relu",
                scale_embedding=True,
                forced_eos_token_id=None,
                **SPECIAL,
            )
        )
        if name != "stock":
            model = CapsuleMarianMTModel.from_marian(model, **MARIAN[name])
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
            elif parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.generation_config.max_length = None
    model.generation_config.max_new_tokens = 14
    model.generation_config.forced_eos_token_id = None
    model.generation_config.bad_words_ids = [[PAD]]
    return model.eval()


SOURCES = [[5, 6, 7, 8, END], [9, END], [11, 12, 13, 14, 15, 16, 17, 18, END], [20, 21, 22, END]]


def batch(sources: list[list[int]] = SOURCES) -> dict[str, torch.Tensor]:
    longest = max(map(len, sources))
    input_ids = torch.tensor([source + [PAD] * (longest - len(source)) for source in sources])
    lengths = torch.tensor([len(source) for source in sources])
    return {"input_ids": input_ids, "attention_mask": (torch.arange(longest) < lengths[:, None]).long()}


def strictly(model: PreTrainedModel, *, int8: bool = True, **settings: Any) -> FastTranslator:
    """`to_fast`, with an error where `generate()` would take over."""
    return FastTranslator(model, int8=int8, strict=True, **settings)
