"""Int8 products: close to those of float32, the same for a row whatever stands beside it."""

import copy
import math
import os
import subprocess
import sys
import time

import pytest
import torch
from torch import nn
from transformers import MarianConfig, MarianMTModel

from hf_capsule_mt import (
    CapsNMTConfig,
    CapsNMTForConditionalGeneration,
    CapsuleMarianConfig,
    CapsuleMarianMTModel,
    CapsuleRNMTConfig,
    CapsuleRNMTForConditionalGeneration,
)
from hf_capsule_mt.fast import int8, use_fast_linears
from hf_capsule_mt.fast.int8 import Int8Weight, largest_exact_weight
from tests.modeling.test_capsule_marian import SPECIAL

MARIAN = {
    "vocab_size": 1100,
    "d_model": 512,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    **SPECIAL,
}
RECURRENT = {"vocab_size": 1100, "hidden_size": 512, **SPECIAL}
MODELS = {
    "transformers' Marian": lambda: MarianMTModel(MarianConfig(**MARIAN)),
    "guided": lambda: CapsuleMarianMTModel(CapsuleMarianConfig(**MARIAN, guided_routing="guided")),
    "routed": lambda: CapsuleMarianMTModel(
        CapsuleMarianConfig(**MARIAN, layer_aggregation="em_routing", layer_aggregation_num_capsules=64)
    ),
    "CapsNMT": lambda: CapsNMTForConditionalGeneration(CapsNMTConfig(**RECURRENT)),
    "RNMT": lambda: CapsuleRNMTForConditionalGeneration(CapsuleRNMTConfig(**RECURRENT)),
}


def uses_int8(model):
    return any(isinstance(value, Int8Weight) for module in model.modules() for value in vars(module).values())


def use_int8(model):
    return use_fast_linears(model, int8=True)


def relative_error(values, expected):
    return float((values - expected).norm() / expected.norm())


@pytest.mark.parametrize("bias", [True, False])
def test_products(bias):
    weight, hidden = torch.randn(1024, 512), torch.randn(3, 7, 512) * torch.rand(3, 7, 1).exp()
    weight[5], hidden[1, 2] = 0, 0
    bias = torch.randn(1024) if bias else None
    largest = largest_exact_weight()
    product = Int8Weight(largest).product(hidden, weight, bias)
    expected = nn.functional.linear(hidden, weight, bias)
    # each side is rounded to a 127th (or 63rd) of its largest of 512 normal numbers, which is some 3.2
    rounding = 3.2 / math.sqrt(12) * math.hypot(1 / 127, 1 / largest)
    assert relative_error(product, expected) == pytest.approx(rounding, rel=0.1)
    torch.testing.assert_close(product[1, 2], expected[1, 2])  # the row of zeros
    torch.testing.assert_close(product[..., 5], expected[..., 5])
    assert torch.equal(Int8Weight(largest).product(hidden[2:, :1], weight, bias), product[2:, :1])


def test_integers_are_exact():
    largest = largest_exact_weight()
    weight = torch.randint(-largest, largest + 1, (600, 512)).float()
    hidden = torch.randint(-127, 128, (5, 512)).float()
    weight[:, 0], hidden[:, 0] = largest, 127
    torch.testing.assert_close(Int8Weight(largest).product(hidden, weight, None), hidden @ weight.t())


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    model = MODELS[name]().eval()
    input_ids, target = torch.randint(4, 1000, (4, 18)), torch.randint(4, 1000, (4, 6))
    mask = torch.ones_like(input_ids)
    with torch.no_grad():
        expected = model(input_ids, attention_mask=mask, decoder_input_ids=target).logits
        assert not uses_int8(model)
        names = set(model.state_dict())
        assert use_int8(model) is model
        assert uses_int8(model)
        logits = model(input_ids, attention_mask=mask, decoder_input_ids=target).logits
    # what EM routing divides by is small in a model that was never trained
    assert 1e-4 < relative_error(logits, expected) < (0.15 if name == "routed" else 0.03)
    assert set(model.state_dict()) == names
    settings = {"max_new_tokens": 5, "min_new_tokens": 5, "num_beams": 3, "do_sample": False}
    together = model.generate(input_ids, attention_mask=mask, **settings)
    alone = model.generate(input_ids[2:3], attention_mask=mask[2:3], **settings)
    assert torch.equal(together[2:3], alone)
    assert model(input_ids, attention_mask=mask, decoder_input_ids=target).logits.requires_grad  # as float32


def test_copies_follow_the_weights():
    model = use_int8(MODELS["transformers' Marian"]()).eval()
    hidden = torch.randn(4, 512)
    layer = model.model.decoder.layers[0].fc1
    with torch.no_grad():
        before = layer(hidden)
        layer.weight.mul_(2)
        assert relative_error(layer(hidden) - layer.bias, 2 * (before - layer.bias)) < 1e-5
        assert torch.equal(copy.deepcopy(model).model.decoder.layers[0].fc1(hidden), layer(hidden))


def test_small_matrices_stay():
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 1024))
    assert uses_int8(use_int8(model)[1])
    assert not uses_int8(model[0])


def test_errors(monkeypatch):
    with pytest.raises(ValueError, match=r"int8 is for float32 models on a CPU, got torch\.bfloat16 on cpu"):
        use_int8(nn.Linear(512, 1024).bfloat16())
    with pytest.raises(ValueError, match=r"int8 is for float32 models on a CPU, got torch\.float32 on meta"):
        use_int8(nn.Linear(512, 1024, device="meta"))
    monkeypatch.setattr(int8, "ONEDNN_INT8", None)
    with pytest.raises(RuntimeError, match="int8 needs PyTorch with oneDNN"):
        use_int8(nn.Linear(512, 1024))


def test_processors_whose_products_overflow(monkeypatch):
    product = int8.ONEDNN_INT8

    def overflows_beyond(largest):
        def overflowing(*arguments):
            scales, output = arguments[4], product(*arguments)
            return output.clamp(max=400) if scales.max() < 1 / (largest + 0.5) / 127 else output

        return overflowing

    monkeypatch.setattr(int8, "ONEDNN_INT8", overflows_beyond(63))
    linear = use_int8(nn.Linear(512, 1024))
    assert copy.deepcopy(linear).packed.largest == linear.packed.largest == 63
    hidden = torch.randn(4, 512)
    expected = linear(hidden)
    with torch.no_grad():
        assert relative_error(linear(hidden), expected) < 0.02
    monkeypatch.setattr(int8, "ONEDNN_INT8", overflows_beyond(62))
    with pytest.raises(RuntimeError, match="int8 products are wrong on this processor"):
        use_int8(nn.Linear(512, 1024))


def test_not_slower_than_float32():
    """Without a kernel for its operands, oneDNN falls back to a reference product a hundred times slower."""
    plain = nn.Linear(1024, 4096)
    fast = use_int8(copy.deepcopy(plain))
    for rows in (1, 5, 64):
        hidden, seconds = torch.randn(rows, 1024), {plain: [], fast: []}
        with torch.no_grad():
            fast(hidden)
            for linear in [plain, fast] * 20:
                begin = time.process_time()
                linear(hidden)
                seconds[linear].append(time.process_time() - begin)
        assert min(seconds[fast]) < 2 * min(seconds[plain])


def test_on_a_lesser_processor():
    if "ONEDNN_MAX_CPU_ISA" in os.environ:
        pytest.skip("the processor is a capped one already")
    capped = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    result = subprocess.run(command, env=capped, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stdout[-3000:]
