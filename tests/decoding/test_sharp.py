"""Sharp weights, whose shares underflow: every routing, in every tier of the engine, against the model in float64."""

import copy

import pytest
import torch

from capsule_mt.engine.search import Readings, SearchOptions
from hf_capsule_mt import (
    CapsNMTConfig,
    CapsNMTForConditionalGeneration,
    CapsuleMarianConfig,
    CapsuleMarianMTModel,
    CapsuleRNMTConfig,
    CapsuleRNMTForConditionalGeneration,
)
from tests.decoding.models import END, PAD, SOURCES, SPECIAL, VOCABULARY, strictly
from tests.light.engine.conftest import TIERS, needs_engine
from tests.mixes import FAMILIES, FAST, MIXES

INIT_STD = 0.25
# of routings that amplify what is rounded, or whose seams do so together; each part is tested alone, too
INIT_STDS = {
    "combined": 0.1,
    "everything": 0.1,
    "ssru_combined": 0.15,
    "grn": 0.17,
    "mudd": 0.17,
    "dense_connections": 0.22,
    "dynamic": 0.22,
    "em": 0.22,
    "em_from_top": 0.15,
    "heads_own": 0.2,
}
MAX_TOLERANCE = 0.05
WIDTH = 128
TARGETS = [[50, 51, 52, 53, END], [60, END], [70, 71, 72, 73, 74, 75, END], [80, 81, 82, END]]
MARIAN_SIZES = {
    "d_model": WIDTH,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": WIDTH,
    "decoder_ffn_dim": WIDTH,
    "max_position_embeddings": 60,
    "scale_embedding": True,
}


def sharp_model(name):
    torch.manual_seed(0)
    family, init_std = FAMILIES[name], INIT_STDS.get(name, INIT_STD)
    settings = {"vocab_size": VOCABULARY, "init_std": init_std, **SPECIAL}
    if family == "capsule_marian":
        model = CapsuleMarianMTModel(CapsuleMarianConfig(**{**settings, **MARIAN_SIZES, **MIXES[family][name]}))
    elif family == "capsnmt":
        model = CapsNMTForConditionalGeneration(
            CapsNMTConfig(**{**settings, "hidden_size": WIDTH, **MIXES[family][name]})
        )
    else:
        model = CapsuleRNMTForConditionalGeneration(
            CapsuleRNMTConfig(**{**settings, "hidden_size": WIDTH, **MIXES[family][name]})
        )
    with torch.no_grad():
        for parameter in model.parameters():  # biases, and weights of layers that start as zeros, ones or identities
            if parameter.requires_grad and (parameter.dim() == 1 or parameter.std() == 0):
                parameter.add_(init_std * torch.randn_like(parameter))
    return model.eval()


@torch.no_grad()
def log_probs_of(model, source, target):
    """Log-probabilities [T, V] at the positions of a target."""
    inputs = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([[PAD, *target[:-1]]])}
    logits = model(**inputs, attention_mask=torch.ones_like(inputs["input_ids"]), use_cache=False).logits[0]
    return logits.double().log_softmax(dim=-1)


def forced(log_probs, target):
    return log_probs.gather(1, torch.tensor(target).unsqueeze(1)).squeeze(1)


def largest_difference(actual, expected):
    return float((torch.as_tensor(actual, dtype=torch.float64) - expected).abs().max())


@needs_engine
@pytest.mark.parametrize("name", FAST)
def test_sharp_weights_have_the_numbers_of_float64(name, monkeypatch):
    """In every tier, and tokens that the exact model would write, too.

    Routings amplify what is rounded, some more, some less, so the tolerance comes from what torch loses in float32.
    An expression that differs is off by 1e3 times as much.
    """
    model = sharp_model(name)
    exact = copy.deepcopy(model).double()
    expected = [log_probs_of(exact, *pair) for pair in zip(SOURCES, TARGETS, strict=True)]
    rounded = [log_probs_of(model, *pair) for pair in zip(SOURCES, TARGETS, strict=True)]
    lost = max(largest_difference(*pair) for pair in zip(rounded, expected, strict=True))
    tolerance = 20 * lost + 1e-4
    assert tolerance < MAX_TOLERANCE
    for tier in TIERS:
        monkeypatch.setenv("HF_CAPSULE_MT_TIER", tier)
        engine = strictly(model, int8=False)._engine
        assert engine.tier == tier
        results = engine.force(SOURCES, TARGETS, Readings(), start=PAD, end=END, pad=PAD)
        for result, log_probs, target in zip(results, expected, TARGETS, strict=True):
            assert largest_difference(list(result.log_probs), forced(log_probs, target)) < tolerance, tier
        options = SearchOptions(limits=[8] * len(SOURCES), suppress_tokens=[PAD])
        for source, result in zip(SOURCES, engine.search(SOURCES, options, start=PAD, end=END, pad=PAD), strict=True):
            tokens = result.tokens[0]
            log_probs = log_probs_of(exact, source, tokens)
            log_probs[:, PAD] = -torch.inf
            assert largest_difference(forced(log_probs, tokens), log_probs.amax(dim=-1)) < tolerance, tier
