"""The matrices that routings read from linear layers, plain and quantised."""

import pytest
import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic

from hf_capsule_mt.modeling.matrices import matrix_of, vector_of
from tests.decoding.models import batch, build


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_quantised_layer_gives_its_numbers():
    plain = nn.Sequential(nn.Linear(4, 3))
    (quantised,) = quantize_dynamic(plain, {nn.Linear}, dtype=torch.qint8)
    assert callable(quantised.weight)
    torch.testing.assert_close(matrix_of(quantised), plain[0].weight.data, atol=0.02, rtol=0.02)
    torch.testing.assert_close(vector_of(quantised), plain[0].bias.data)


class ScaledFloat8(nn.Linear):
    """A linear layer whose weight is stored in 8 bits beside its scale, as transformers' `FP8Linear` has it."""

    def __init__(self, plain, scale):
        super().__init__(plain.in_features, plain.out_features)
        self.bias, self.scale = plain.bias, scale
        self.weight = nn.Parameter((plain.weight / scale).to(torch.float8_e4m3fn), requires_grad=False)

    def forward(self, inputs):
        return nn.functional.linear(inputs, self.weight.to(inputs.dtype) * self.scale, self.bias)


def test_a_layer_in_float8_gives_its_numbers_times_their_scale():
    plain = nn.Linear(4, 3)
    torch.testing.assert_close(matrix_of(ScaledFloat8(plain, 2**-6)), plain.weight.data, atol=0.05, rtol=0.1)


class Adapted(nn.Module):
    """A linear layer with a low-rank part beside it, as peft's LoRA has it: `weight` is that of the layer alone."""

    def __init__(self, base):
        super().__init__()
        self.base, self.down = base.requires_grad_(False), nn.Linear(base.in_features, 2, bias=False)
        self.up, self.in_features = nn.Linear(2, base.out_features, bias=False), base.in_features

    weight, bias = property(lambda self: self.base.weight), property(lambda self: self.base.bias)

    def forward(self, inputs):
        return self.base(inputs) + self.up(self.down(inputs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_with_an_adapter_gives_both_and_learns(dtype):
    adapted = Adapted(nn.Linear(4, 3)).to(dtype)
    tolerance = {"atol": 2e-2, "rtol": 2e-2} if dtype == torch.bfloat16 else {"atol": 1e-6, "rtol": 1e-5}
    torch.testing.assert_close(
        matrix_of(adapted), adapted.base.weight + adapted.up.weight @ adapted.down.weight, **tolerance
    )
    matrix_of(adapted).sum().backward()
    assert adapted.up.weight.grad.abs().sum() > 0
    with torch.no_grad():
        assert not matrix_of(adapted).requires_grad


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("guided", ["query_projection", "vote_projection", "capsule_projection", "score"]),
        ("rnmt", ["query_projection", "score"]),
        ("capsules", ["inner_scoring", "outer_scoring"]),
    ],
)
def test_adapters_of_layers_whose_matrix_is_read_learn(name, layers):
    model, source = build(name), batch()
    for module in list(model.modules()):
        for layer, child in list(module.named_children()):
            if layer in layers and isinstance(child, nn.Linear):
                setattr(module, layer, Adapted(child))
    adapters = [module for module in model.modules() if isinstance(module, Adapted)]
    assert len(adapters) >= len(layers)
    model(**source, labels=torch.randint(1, 200, (4, 5))).loss.backward()
    assert all(adapter.up.weight.grad.abs().sum() > 0 for adapter in adapters)


def test_given_embeddings_beside_an_adapter_of_the_embeddings():
    model, source = build("rnmt"), batch()
    embeddings = model.get_input_embeddings()
    expected = model(**source, labels=source["input_ids"]).loss
    wrapper = nn.Module()
    wrapper.base_layer, wrapper.forward = embeddings, embeddings.forward
    model.model.encoder.embed_tokens = wrapper
    given = {"inputs_embeds": embeddings(source["input_ids"]), "attention_mask": source["attention_mask"]}
    torch.testing.assert_close(model(**given, labels=source["input_ids"]).loss, expected)
