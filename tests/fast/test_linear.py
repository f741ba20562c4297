"""Products of a few rows: float32 with the numbers of PyTorch's, int8 close to them, each row by itself."""

import copy
import math
import os
import pickle
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
from hf_capsule_mt.fast import int8, undo_fast_linears, use_fast_linears
from hf_capsule_mt.fast import linear as linear_module
from hf_capsule_mt.fast.int8 import Int8Weight, largest_exact_weight
from hf_capsule_mt.fast.linear import WITH_FAST_BLAS, WITH_SLOW_BLAS, fits_onednn
from tests.modeling.test_capsule_marian import SPECIAL


@pytest.fixture(params=[WITH_FAST_BLAS, WITH_SLOW_BLAS], ids=["fast BLAS", "slow BLAS"])
def ways(request, monkeypatch):
    """Whatever the processor is, both ways of choosing a product are taken."""
    monkeypatch.setattr(linear_module, "thresholds", lambda: request.param)
    return request.param


def fast_linear(in_features, out_features, bias=True):
    return use_fast_linears(nn.Linear(in_features, out_features, bias=bias))


def test_same_numbers_with_and_without_gradients(ways):
    for rows, bias, out_features in (
        (1, True, 300),
        (1, False, 307),
        (1, True, 301),
        (5, False, 300),
        (5, True, 4200),
        (300, True, 300),
    ):
        linear = fast_linear(512, out_features, bias=bias)
        for hidden in (torch.randn(rows, 512), torch.randn(rows, 3, 512), torch.randn(512, rows).t()):
            expected = linear(hidden)
            assert expected.requires_grad
            with torch.no_grad():
                assert fits_onednn(hidden, linear.weight)
                torch.testing.assert_close(linear(hidden), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_sees_new_weights_at_once(rows, ways):
    linear, hidden = fast_linear(512, 1024), torch.randn(rows, 512)

    def scale_data():
        linear.weight.data.mul_(2)

    def change_one_number():
        linear.weight[3, 5] += 1

    def load():
        linear.load_state_dict({name: torch.randn_like(value) for name, value in linear.state_dict().items()})

    def replace():
        linear.weight = nn.Parameter(torch.randn(1024, 512))

    with torch.no_grad():
        assert fits_onednn(hidden, linear.weight)
        for change in (scale_data, change_one_number, load, replace):
            linear(hidden)
            change()
            torch.testing.assert_close(
                linear(hidden), nn.functional.linear(hidden, linear.weight, linear.bias), atol=1e-4, rtol=1e-5
            )


def test_packed_weights_are_kept_and_stay_at_home(ways):
    linear, hidden = fast_linear(512, 1024), torch.randn(5, 512)
    with torch.no_grad():
        expected = linear(hidden)
        packed = linear.packed.of(linear.weight)
        assert linear.packed.of(linear.weight) is packed
        assert set(linear.state_dict()) == {"weight", "bias"}
        for copied in (copy.deepcopy(linear), pickle.loads(pickle.dumps(linear))):
            assert copied.packed is not linear.packed
            torch.testing.assert_close(copied(hidden), expected)
    with torch.inference_mode():
        made_in_inference = fast_linear(512, 512)
        torch.testing.assert_close(
            made_in_inference(hidden),
            nn.functional.linear(hidden, made_in_inference.weight, made_in_inference.bias),
            atol=1e-5,
            rtol=1e-5,
        )


def test_where_it_is_used():
    linear, hidden = fast_linear(512, 512), torch.randn(2, 512)
    assert fits_onednn(hidden, linear.weight)
    assert not fits_onednn(hidden.double(), linear.weight)
    assert not fits_onednn(hidden.bfloat16(), linear.weight)
    assert not fits_onednn(hidden[:0], linear.weight)
    assert not fits_onednn(hidden, linear.weight.t())
    assert not fits_onednn(hidden[:, :8], fast_linear(8, 4).weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not fits_onednn(hidden, linear.weight)


def test_which_product_is_taken(monkeypatch, ways):
    def name_of_product(rows, out_features, transform=use_fast_linears):
        calls = []
        linear, hidden = transform(fast_linear(512, out_features)), torch.randn(rows, 512)
        instead = linear(hidden).detach()
        with monkeypatch.context() as patched, torch.no_grad():
            patched.setattr(linear_module, "ONEDNN_LINEAR", lambda *args: calls.append("oneDNN") or instead)
            patched.setattr(linear_module, "_linear_of_one_row", lambda *args: calls.append("split") or instead)
            torch.testing.assert_close(linear(hidden), instead)
        return calls[0] if calls else "BLAS"

    is_fast = ways is WITH_FAST_BLAS
    assert name_of_product(1, 512) == ("BLAS" if is_fast else "split")
    assert name_of_product(5, 512) == ("BLAS" if is_fast else "oneDNN")
    assert name_of_product(2, 512) == ("BLAS" if is_fast else "oneDNN")
    assert name_of_product(20, 512) == ("BLAS" if is_fast else "oneDNN")
    assert name_of_product(2, 4096) == ("BLAS" if is_fast else "oneDNN")
    assert name_of_product(5, 1024) == name_of_product(3, 4096) == name_of_product(20, 4096) == "oneDNN"
    assert name_of_product(5, 4096, undo_fast_linears) == name_of_product(1, 512, undo_fast_linears) == "BLAS"


def test_no_product_but_the_blas_with_gradients(monkeypatch, ways):
    monkeypatch.setattr(linear_module, "ONEDNN_LINEAR", None)
    monkeypatch.setattr(linear_module, "_linear_of_one_row", None)
    for rows in (1, 5):
        assert fast_linear(512, 4096)(torch.randn(rows, 512)).requires_grad


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
