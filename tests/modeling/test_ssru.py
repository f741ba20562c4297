"""The SSRU: its scan against a plain loop, its gates at their ends, its masks, its state in every cache."""

import math

import pytest
import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticCache, StaticLayer

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel
from hf_capsule_mt.modeling.ssru import SSRU, linear_recurrence
from tests.modeling.model_checks import randomize
from tests.modeling.test_capsule_marian import SIZES, SPECIAL

WIDTH = 16
SWITCHES = {"decoder_self": "ssru", "marian_positions": True}


def config(**settings):
    return CapsuleMarianConfig(**{**SIZES, **SPECIAL, **SWITCHES, **settings})


@pytest.fixture
def ssru():
    torch.manual_seed(1)
    return randomize(SSRU(config(), 0)).double()


def by_hand(ssru, inputs, keep=None):
    """Equations of `SSRU`, one number at a time: inputs [T][d] -> h [T][d]."""
    gate, bias, matrix = (
        tensor.tolist() for tensor in (ssru.forget_gate.weight, ssru.forget_gate.bias, ssru.input_map.weight)
    )
    state, outputs = [0.0] * len(bias), []
    for position, row in enumerate(inputs):
        if keep is None or keep[position]:
            for n in range(len(bias)):
                forget = 1 / (1 + math.exp(-bias[n] - sum(w * x for w, x in zip(gate[n], row, strict=True))))
                state[n] = forget * state[n] + (1 - forget) * sum(w * x for w, x in zip(matrix[n], row, strict=True))
        outputs.append([max(value, 0.0) for value in state])
    return outputs


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 8, 9, 33])
def test_a_sentence_equals_the_equations(ssru, length):
    inputs = torch.randn(2, length, WIDTH, dtype=torch.float64)
    output, attentions, routing_weights = ssru(inputs)
    expected = torch.tensor([by_hand(ssru, row) for row in inputs.tolist()], dtype=torch.float64)
    torch.testing.assert_close(output, expected, atol=1e-12, rtol=1e-12)
    assert attentions is routing_weights is None


def test_a_masked_token_leaves_the_state_as_it_is(ssru):
    inputs = torch.randn(2, 6, WIDTH, dtype=torch.float64)
    keep = torch.tensor([[True, False, True, True, False, False], [False, False, True, True, True, True]])
    poisoned = torch.where(keep[..., None], inputs, 1e30)
    output, _, _ = ssru(poisoned, keep)
    expected = [by_hand(ssru, row, row_mask) for row, row_mask in zip(inputs.tolist(), keep.tolist(), strict=True)]
    torch.testing.assert_close(output, torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=1e-12)


def test_gates_at_their_ends(ssru):
    inputs = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    ssru.forget_gate.weight.data.zero_()
    ssru.forget_gate.bias.data.fill_(-1000.0)  # f = 0: every position alone
    torch.testing.assert_close(ssru(inputs)[0], ssru.input_map(inputs).relu())
    ssru.forget_gate.bias.data.fill_(1000.0)  # f = 1: nothing comes in
    assert (ssru(inputs)[0] == 0).all()


@pytest.mark.parametrize("forget", [0.0, 1.0, "random"])
def test_gradients_of_the_scan(forget):
    gates = torch.rand(1, 5, 2, dtype=torch.float64) if forget == "random" else torch.full((1, 5, 2), forget).double()
    updates = torch.randn(1, 5, 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(linear_recurrence, (gates.requires_grad_(), updates.requires_grad_()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_cache_keeps_states_in_float32_at_least(dtype):
    model = randomize(CapsuleMarianMTModel(config())).eval().to(dtype)
    tokens = torch.tensor([[5, 6, 7, 8]])
    cache = model(tokens, decoder_input_ids=tokens).cache
    assert {layer.keys.dtype for layer in cache.self_attention_cache.layers} == {torch.float32}


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_a_cropped_cache_forgets(static):
    """Assisted decoding drops tokens that were guessed wrong, all of them if need be."""
    if static and not hasattr(StaticLayer, "crop"):
        pytest.skip("static caches of transformers 5.15 cannot be cropped")
    model = randomize(CapsuleMarianMTModel(config())).eval()
    source, tokens = torch.tensor([[5, 6, 7]]), torch.tensor([[3, 9, 8, 7, 6]])
    expected = model(source, decoder_input_ids=tokens[:, :3], use_cache=False).logits
    layer_cache = StaticCache(config=model.config, max_cache_len=12) if static else DynamicCache()
    cache = EncoderDecoderCache(layer_cache, DynamicCache())
    for length in (2, 0):
        model(source, decoder_input_ids=tokens[:, int(cache.get_seq_length()) :], cache=cache)
        for layer in layer_cache.layers:
            layer.crop(length - 5)
        assert cache.get_seq_length() == length
        again = model(source, decoder_input_ids=tokens[:, length:3], cache=cache).logits
        torch.testing.assert_close(again, expected[:, length:], atol=1e-5, rtol=1e-5)
        for layer in layer_cache.layers:
            layer.crop(length - 3)


def test_masks_for_each_query_are_refused():
    model, tokens = CapsuleMarianMTModel(config()).eval(), torch.tensor([[5, 6, 7]])
    with pytest.raises(ValueError, match=r'`decoder_attention_mask` must be \[B, T\] with `decoder_self` "ssru"'):
        model(tokens, decoder_input_ids=tokens, decoder_attention_mask=torch.ones(1, 1, 3, 3, dtype=torch.bool))
