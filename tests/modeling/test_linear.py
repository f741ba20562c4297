"""The linear map that is fast when a CPU translates."""

import torch
from torch import nn

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel
from hf_capsule_mt.modeling.linear import FastLinear, fits_onednn
from tests.modeling.test_capsule_marian import SIZES, SPECIAL


def test_same_numbers_with_and_without_gradients():
    for rows, bias in ((1, True), (5, False), (300, True)):
        linear = FastLinear(512, 300, bias=bias)
        for hidden in (torch.randn(rows, 512), torch.randn(rows, 3, 512), torch.randn(512, rows).t()):
            expected = linear(hidden)
            assert expected.requires_grad
            with torch.no_grad():
                assert fits_onednn(hidden, linear.weight)
                torch.testing.assert_close(linear(hidden), expected, atol=1e-5, rtol=1e-5)


def test_sees_new_weights_at_once():
    linear, hidden = FastLinear(512, 512), torch.randn(2, 512)
    with torch.no_grad():
        assert fits_onednn(hidden, linear.weight)
        linear(hidden)
        linear.weight.data.mul_(2)
        torch.testing.assert_close(
            linear(hidden), nn.functional.linear(hidden, linear.weight, linear.bias), atol=1e-5, rtol=1e-5
        )


def test_where_it_is_used(monkeypatch):
    linear, hidden = FastLinear(512, 512), torch.randn(2, 512)
    assert fits_onednn(hidden, linear.weight)
    assert not fits_onednn(hidden.double(), linear.weight)
    assert not fits_onednn(hidden.bfloat16(), linear.weight)
    assert not fits_onednn(hidden[:0], linear.weight)
    assert not fits_onednn(hidden, linear.weight.t())
    assert not fits_onednn(hidden[:, :8], FastLinear(8, 4).weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not fits_onednn(hidden, linear.weight)

    calls = []
    monkeypatch.setattr("hf_capsule_mt.modeling.linear.ONEDNN_LINEAR", lambda *args: calls.append(args) or hidden)
    linear(hidden)
    assert not calls  # gradients are wanted
    with torch.no_grad():
        linear(hidden)
        assert len(calls) == 1
        monkeypatch.setattr(FastLinear, "enabled", False)
        linear(hidden)
        assert len(calls) == 1


def test_plain_marian_takes_marians_kernels():
    plain = CapsuleMarianMTModel(CapsuleMarianConfig(**SIZES, **SPECIAL))
    assert not any(isinstance(module, FastLinear) for module in plain.modules())
    capsules = CapsuleMarianMTModel(CapsuleMarianConfig(**SIZES, **SPECIAL, layer_aggregation="linear"))
    assert all(isinstance(module, FastLinear) for module in capsules.modules() if isinstance(module, nn.Linear))
