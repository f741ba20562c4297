"""The transform: any model, there and back, and nothing changes but what computes the products."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration
from hf_capsule_mt.fast import takes_fast, undo_fast_linears, use_fast_linears
from hf_capsule_mt.fast.linear import PackedWeight
from tests.fast.test_linear import MODELS


def products_of(model):
    return [value for module in model.modules() for value in vars(module).values() if isinstance(value, PackedWeight)]


@pytest.mark.parametrize("name", MODELS)
def test_there_and_back(name):
    model = MODELS[name]().eval()
    classes = [type(module) for module in model.modules()]
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    input_ids = torch.randint(4, 1000, (2, 9))
    settings = {"max_new_tokens": 6, "min_new_tokens": 6, "num_beams": 3, "do_sample": False}
    settings |= {"return_dict_in_generate": True, "output_logits": True}
    expected = model.generate(input_ids, **settings)
    assert not products_of(model)

    assert use_fast_linears(model) is model
    assert len(products_of(model)) >= len(linears)
    assert all(isinstance(module, nn.Linear) for module in linears)
    output = model.generate(input_ids, **settings)
    assert any(product._packed is not None for product in products_of(model))
    assert torch.equal(output.sequences, expected.sequences)
    torch.testing.assert_close(torch.stack(output.logits), torch.stack(expected.logits), atol=1e-3, rtol=1e-3)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(copied.generate(input_ids, **settings).sequences, expected.sequences)
    labels = input_ids.clone()
    loss = model(input_ids, labels=labels).loss  # with gradients

    assert undo_fast_linears(model) is model
    assert not products_of(model)
    assert [type(module) for module in model.modules()] == classes
    assert torch.equal(model(input_ids, labels=labels).loss, loss)
    assert list(model.state_dict()) == list(weights)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    again = model.generate(input_ids, **settings)
    assert torch.equal(torch.stack(again.logits), torch.stack(expected.logits))


def test_int8_and_float32_take_turns():
    linear, hidden = nn.Linear(512, 1024), torch.randn(4, 512)
    with torch.no_grad():
        fast = use_fast_linears(linear)(hidden)
        int8 = use_fast_linears(linear, int8=True)(hidden)
        assert 1e-4 < float((int8 - fast).norm() / fast.norm()) < 0.03
        assert torch.equal(use_fast_linears(linear)(hidden), fast)


def test_nothing_is_detected_at_import():
    code = (
        "import pathlib\n"
        "read, seen = pathlib.Path.open, []\n"
        "pathlib.Path.open = lambda self, *args, **kwargs: (seen.append(str(self)), read(self, *args, **kwargs))[1]\n"
        "import hf_capsule_mt.fast.linear as linear\n"
        "assert '/proc/cpuinfo' not in seen and linear.thresholds.cache_info().currsize == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_capsnmt_with_scaled_scores_has_no_fast_form():
    config = CapsNMTConfig(vocab_size=11, hidden_size=8, score_scale=0.5)
    assert not takes_fast(CapsNMTForConditionalGeneration(config))
