"""The graphs behind the ONNX files, run by PyTorch: their tensors are a whole cache, for every family and seam."""

import pytest
import torch

from hf_capsule_mt.hub.onnx_graphs import EncoderGraph, FirstStepGraph, NextStepGraph
from tests.decoding.models import NAMES, batch, build

ALL = [name for name in NAMES if name != "stock"]


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_steps_equal_one_pass(name):
    model, source = build(name).double(), batch()  # in single, EM routing makes of another order of additions 3e-4
    tokens = torch.randint(1, 200, (4, 5))
    expected = model(**source, decoder_input_ids=tokens, use_cache=False).logits
    mask = source["attention_mask"]
    states = EncoderGraph(model)(**source)
    logits, entries = FirstStepGraph(model)(mask, tokens[:, :2], states)
    torch.testing.assert_close(logits, expected[:, :2], atol=2e-4, rtol=1e-4)
    for position in range(2, 5):
        logits, changed = NextStepGraph(model)(mask, tokens[:, position : position + 1], entries)
        torch.testing.assert_close(logits[:, 0], expected[:, position], atol=2e-4, rtol=1e-4)
        entries |= changed
