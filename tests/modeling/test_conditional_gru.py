"""The conditional GRU: in training a backward pass of its own, which must be that of the plain loop."""

import pytest
import torch

from hf_capsule_mt.modeling import conditional_gru
from hf_capsule_mt.modeling.conditional_gru import ConditionalGRU
from tests.modeling.model_checks import randomize


def inputs(dtype, size=1.0):
    """Words [B, T, in], a first state [B, d], source states [B, S, d] and their mask."""
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 1]]).bool()
    tensors = [size * torch.randn(3, 4, 7), torch.randn(3, 6).tanh(), size * torch.randn(3, 5, 6)]
    return [tensor.to(dtype).requires_grad_() for tensor in tensors], mask


def results(gru, plain, words, state, source, mask):
    """Outputs, and the gradients of a random function of all of them, of inputs and parameters."""
    keys = gru.attention.project_keys(source)
    if plain:
        from_words = torch.nn.functional.linear(words.transpose(0, 1), gru.word_gru.weight_ih, gru.word_gru.bias_ih)
        outputs = gru.plain(from_words, state, source, keys, mask)
    else:
        outputs = gru(words, state, source, keys, mask)
    torch.manual_seed(1)
    total = sum((output * torch.randn(output.shape, dtype=output.dtype)).sum() for output in outputs)
    return [*outputs, *torch.autograd.grad(total, [words, state, source, *gru.parameters()])]


@pytest.mark.parametrize("separable", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_own_backward_pass_equals_that_of_the_plain_loop(separable, masked, monkeypatch):
    if not separable:
        monkeypatch.setattr(conditional_gru, "LARGEST_SEPARABLE_SCORE", 0.0)
    gru = randomize(ConditionalGRU(7, 6)).double()
    tensors, mask = inputs(torch.float64)
    expected, actual = (results(gru, plain, *tensors, mask if masked else None) for plain in (True, False))
    for one, other in zip(expected, actual, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("size", [1.0, 15.0, 1000.0])
def test_large_numbers_stay_good_numbers(size):
    # both against the same in double precision: how far float32 is off where everything saturates depends on the CPU
    gru = randomize(ConditionalGRU(7, 6))
    tensors, mask = inputs(torch.float32, size)
    plain, actual = (results(gru, way, *tensors, mask) for way in (True, False))
    exact = results(gru.double(), True, *(tensor.detach().double().requires_grad_() for tensor in tensors), mask)
    for truth, one, other in zip(exact, plain, actual, strict=True):
        assert other.isfinite().all()
        scale = truth.abs().amax().clamp(min=1)
        error, plain_error = ((truth - found).abs().amax() / scale for found in (other, one))
        assert error <= 4 * plain_error + 2e-5


def test_the_last_state_of_a_first_half_begins_the_second():
    gru = randomize(ConditionalGRU(7, 6))
    (words, state, source), mask = inputs(torch.float32)
    keys = gru.attention.project_keys(source)
    whole = gru(words, state, source, keys, mask)
    begun = gru(words[:, :2], state, source, keys, mask)
    rest = gru(words[:, 2:], begun.states[:, -1], source, keys, mask)
    for all_of_it, first, second in zip(whole, begun, rest, strict=True):
        torch.testing.assert_close(torch.cat([first, second], dim=1), all_of_it, atol=1e-6, rtol=1e-5)


def test_memory_in_training_has_no_room_for_all_pairs_of_positions():
    """What the backward pass keeps grows with T + S, not with T times S of a state's width."""
    gru, width, length = ConditionalGRU(8, 32), 32, 40
    words, state, source = torch.randn(2, length, 8), torch.zeros(2, width), torch.randn(2, length, width)
    kept = []

    def pack(tensor):
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        gru(words, state, source, gru.attention.project_keys(source), None)
    assert max(kept) < 2 * length * length * width
    assert max(kept) == max(2 * (length + 1) * width, 2 * length * length)
