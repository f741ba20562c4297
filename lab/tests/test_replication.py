"""A widened model translates as before, and its new units learn."""

import torch
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt.training.models import build_config
from lab.replication import widen

IDS = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": None}
SIZES = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}


def build_model():
    fields = {"model_type": "capsule_marian", "encoder_attention_heads": 2, "decoder_attention_heads": 2, **SIZES}
    return AutoModelForSeq2SeqLM.from_config(build_config(fields, {"vocab_size": 30, **IDS})).eval()


def test_a_widened_model_computes_the_same_and_trains_its_new_units():
    narrow, source = build_model(), torch.arange(2, 12).view(2, 5)
    weight = narrow.state_dict()["model.encoder.layers.0.fc1.weight"].clone()
    wide = widen(narrow, 40, seed=1)
    assert not wide.training
    num_added = sum(p.numel() for p in wide.parameters()) - sum(p.numel() for p in narrow.parameters())
    assert num_added == 4 * 16 * (2 * 16 + 1)  # 4 layers, 16 new units each, with both maps and a bias
    logits = [model(input_ids=source, decoder_input_ids=source).logits for model in (narrow, wide)]
    torch.testing.assert_close(*logits)
    assert torch.equal(wide.state_dict()["model.encoder.layers.0.fc1.weight"][:24], weight)
    logits[1].square().sum().backward()
    assert wide.model.encoder.layers[0].fc2.weight.grad[:, 24:].abs().max() > 0
