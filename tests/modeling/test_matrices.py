"""The matrices that routings read from linear layers, plain and quantised."""

import pytest
import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic

from hf_capsule_mt.modeling.matrices import matrix_of, vector_of
from tests.fast.models import batch, build


def test_a_plain_layer_gives_its_own_parameter():
    linear = nn.Linear(4, 3)
    assert matrix_of(linear) is linear.weight
    assert vector_of(linear) is linear.bias


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_quantised_layer_gives_its_numbers():
    plain = nn.Sequential(nn.Linear(4, 3))
    (quantised,) = quantize_dynamic(plain, {nn.Linear}, dtype=torch.qint8)
    assert callable(quantised.weight)
    torch.testing.assert_close(matrix_of(quantised), plain[0].weight.data, atol=0.02, rtol=0.02)
    torch.testing.assert_close(vector_of(quantised), plain[0].bias.data)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["plain", "guided", "rnmt_guided", "capsules"])
@torch.no_grad()
def test_torchs_dynamic_quantisation_takes_every_family(name):
    model, source = build(name), batch()
    tokens = torch.randint(1, 200, (4, 5))
    expected = model(**source, decoder_input_ids=tokens).logits
    quantised = quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert not any(type(module) is nn.Linear for module in quantised.modules())
    error = (quantised(**source, decoder_input_ids=tokens).logits - expected).norm() / expected.norm()
    assert error < 0.25
