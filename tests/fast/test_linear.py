"""Float32 products of a few rows: the numbers of PyTorch's, and which product is taken."""

import copy
import pickle

import pytest
import torch
from torch import nn

from hf_capsule_mt.fast import linear as linear_module
from hf_capsule_mt.fast import undo_fast_linears, use_fast_linears
from hf_capsule_mt.fast.linear import WITH_FAST_BLAS, WITH_SLOW_BLAS, fits_onednn


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
