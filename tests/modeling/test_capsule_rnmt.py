"""RNMT: all that every model must do, in every mix of settings, and what is its own."""

import pytest
import torch

from hf_capsule_mt import CapsuleRNMTConfig, CapsuleRNMTForConditionalGeneration, CapsuleRNMTModel
from tests.modeling.model_checks import TOLERANCE, Family, ModelChecks

SIZES = {
    "vocab_size": 31,
    "hidden_size": 16,
    "embedding_size": 12,
    "encoder_layers": 2,
    "decoder_layers": 2,
}

MIXES = {
    "plain": {},
    "one layer, one width": {"encoder_layers": 1, "decoder_layers": 1, "embedding_size": 16},
}


class TestCapsuleRNMT(ModelChecks):
    family = Family(
        CapsuleRNMTConfig,
        CapsuleRNMTModel,
        CapsuleRNMTForConditionalGeneration,
        SIZES,
        has_attentions=False,
        has_static_cache=False,
        pads_left=True,
        hidden_size_field="hidden_size",
    )
    mixes = MIXES

    def expected_routings(self, mix):
        return set()
