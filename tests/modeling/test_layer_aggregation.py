"""Layer aggregation: what tells its methods apart (properties 26 and 27), and its memory."""

import weakref

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import MarianConfig, MarianMTModel

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel
from hf_capsule_mt.modeling import matrices
from hf_capsule_mt.modeling.layer_aggregation import (
    DynamicCombination,
    LinearCombination,
    TopLayer,
    build_layer_aggregation,
)
from hf_capsule_mt.routing import common

WIDTH, LAYERS = 12, 3
BASE = {
    "vocab_size": 8000, "d_model": 512, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
    "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048,
    "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "activation_function": "relu",
}  # fmt: skip


def build(method, **settings):
    config = CapsuleMarianConfig(
        d_model=WIDTH,
        encoder_layers=LAYERS,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        layer_aggregation=method,
        **{f"layer_aggregation_{key}": value for key, value in settings.items()},
    )
    module = build_layer_aggregation(config, LAYERS, enabled=True).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


def outputs(batch=(2, 5)):
    return [torch.randn(*batch, WIDTH) for _ in range(LAYERS)]


def test_off_is_the_top_layer():
    config = CapsuleMarianConfig(d_model=WIDTH, encoder_attention_heads=2, decoder_attention_heads=2)
    module = build_layer_aggregation(config, LAYERS, enabled=False)
    assert isinstance(module, TopLayer)
    assert not list(module.parameters())
    states = outputs()
    assert module(states)[0] is states[-1]


@pytest.mark.parametrize("activation", ["scalar", "vector"])
def test_em_routing_in_half_precision_has_finite_gradients(activation):
    """Activations that float16 takes for zero or one are usual."""
    config = CapsuleMarianConfig(
        d_model=WIDTH,
        encoder_layers=LAYERS,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        layer_aggregation="em_routing",
        em_input_activation=activation,
    )
    module = build_layer_aggregation(config, LAYERS, enabled=True).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    bias = next(one for name, one in module.input_activation.named_parameters() if name.endswith("bias"))
    bias.data.uniform_(-16, 16)
    module = module.half()
    states, _ = module([one.half() for one in outputs()])
    (100 * states.float().square().sum()).backward()
    assert states.dtype == torch.float16
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize("method", ["dynamic_routing", "em_routing"])
@pytest.mark.parametrize("capsule_input", ["all", "own"])
@pytest.mark.parametrize("vote_input", ["all", "own"])
def test_every_number_of_capsules_that_divides_the_width(method, capsule_input, vote_input):
    for num_capsules in (1, 2, 3, 4, 6, 12, None):
        module = build(method, num_capsules=num_capsules, capsule_input=capsule_input, vote_input=vote_input)
        result, weights = module(outputs(), output_routing_weights=True)
        assert result.shape == (2, 5, WIDTH)
        assert [iteration.shape for iteration in weights] == [(2, 5, LAYERS, num_capsules or WIDTH)] * 3


def test_linear_combination_is_linear_and_static():
    module: LinearCombination = build("linear")
    torch.nn.init.zeros_(module.fc1.bias)
    torch.nn.init.zeros_(module.fc2.bias)
    first, second = outputs(), outputs()
    mixed = [2 * a - 3 * b for a, b in zip(first, second, strict=True)]
    aggregate = lambda states: module.aggregate(states, False)[0]  # noqa: E731
    torch.testing.assert_close(aggregate(mixed), 2 * aggregate(first) - 3 * aggregate(second), atol=1e-4, rtol=1e-4)


def test_dynamic_combination_with_equal_weights_is_the_sum():
    module: DynamicCombination = build("dynamic_combination")
    torch.nn.init.zeros_(module.fc2.weight)
    torch.nn.init.ones_(module.fc2.bias)
    states = outputs()
    torch.testing.assert_close(module.aggregate(states, False)[0], sum(states))


@pytest.mark.parametrize("method", ["dynamic_routing", "em_routing"])
def test_own_inputs_keep_the_layers_apart(method):
    # with capsules and votes made of their own layer, the votes of layer 0 do not change with layer 1
    module = build(method, capsule_input="own", vote_input="own")
    states = outputs()
    changed = [states[0], states[1] + 1, states[2]]
    votes = [
        module.votes(module.input_capsules(torch.cat(layers, dim=-1))).unflatten(-1, (LAYERS, WIDTH))
        for layers in (states, changed)
    ]
    assert torch.equal(votes[0][..., [0, 2], :], votes[1][..., [0, 2], :])
    assert not torch.allclose(votes[0][..., 1, :], votes[1][..., 1, :])


def test_a_residual_starts_at_the_top_layer():
    for method in ("linear", "dynamic_combination", "dynamic_routing", "em_routing"):
        module = build(method, residual=True)
        module.layer_norm.reset_parameters()
        states = outputs()
        assert torch.equal(module(states)[0], states[-1])


class PeakMemory(TorchDispatchMode):
    """The largest number of bytes that tensors made inside hold at once."""

    def __init__(self, held):
        super().__init__()
        self.sizes = {tensor.untyped_storage()._cdata: 0 for tensor in held}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            storage = tensor.untyped_storage() if isinstance(tensor, torch.Tensor) else None
            if storage is not None and storage._cdata not in self.sizes:
                self.sizes[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self.free, storage._cdata)
        self.peak = max(self.peak, self.now)
        return result

    def free(self, storage):
        self.now -= self.sizes.pop(storage)


@pytest.mark.parametrize(
    ("method", "dtype"),
    [
        ("em_routing", torch.float32),
        pytest.param("em_routing", torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("dynamic_routing", torch.float32, marks=pytest.mark.slow),
    ],
)
def test_memory_of_a_training_step(method, dtype, monkeypatch):
    """At most 15 % more than Marian's, at base size, by fake tensors on the paths of an accelerator."""
    monkeypatch.setattr(common, "HOST", "another device")
    monkeypatch.setattr(matrices, "is_plain", lambda linear: True)  # a fake parameter has another type
    monkeypatch.setattr(  # as on a GPU, which keeps a byte for each number and not a factor
        torch.nn.functional, "dropout", lambda input, p, training: torch.native_dropout(input, p, training)[0]
    )
    # layerdrop of Marian in transformers 5.15 compares a tensor, which a fake one has no value for
    monkeypatch.setattr(torch, "rand", lambda *size, **settings: 0.5)
    peaks = []
    with FakeTensorMode():
        for model in (
            MarianMTModel(MarianConfig(**BASE)),
            CapsuleMarianMTModel(CapsuleMarianConfig(**BASE, layer_aggregation=method)),
        ):
            for parameter in model.train().parameters():
                parameter.grad = torch.zeros_like(parameter)
            words = torch.randint(2, 8000, (256, 32))
            with PeakMemory([words, *model.parameters(), *(one.grad for one in model.parameters())]) as memory:
                with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                    loss = model(input_ids=words, labels=words).loss
                loss.backward()
            peaks.append(memory.peak)
    assert peaks[1] <= 1.15 * peaks[0]
