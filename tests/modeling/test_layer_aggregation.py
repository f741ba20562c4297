"""Layer aggregation: what tells its methods apart (properties 26 and 27), where it starts, and its memory."""

import copy

import pytest
import torch

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel
from hf_capsule_mt.configuration.configuration_capsule_marian import METHODS_WITH_MAPS
from hf_capsule_mt.modeling.capsule_maps import PerCapsuleLinear, ScaledLinear
from hf_capsule_mt.modeling.layer_aggregation import (
    DynamicCombination,
    LinearCombination,
    build_layer_aggregation,
)

WIDTH, LAYERS = 12, 3


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


def starting(num_layers=LAYERS, noise=0.0, **settings):
    """A model with an aggregation in its encoder."""
    config = CapsuleMarianConfig(
        vocab_size=30,
        d_model=WIDTH,
        encoder_layers=num_layers,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
        init_std=noise,
        layer_aggregation_side="encoder",
        **{f"layer_aggregation_{key}" if key != "method" else "layer_aggregation": settings[key] for key in settings},
    )
    torch.manual_seed(0)
    return CapsuleMarianMTModel(config).eval()


def started(method, *args, **settings):
    return starting(*args, method=method, **settings).model.encoder.layer_aggregation


def layers(num_layers=LAYERS):
    """As a post-norm stack gives them."""
    return [torch.nn.functional.layer_norm(torch.randn(2, 5, WIDTH), (WIDTH,)) for _ in range(num_layers)]


@pytest.mark.parametrize("num_layers", [1, 3, 6])
@pytest.mark.parametrize("update_scale", [1.0, 0.1])
@pytest.mark.parametrize("method", METHODS_WITH_MAPS)
def test_a_start_at_the_top_is_the_top_layer(method, update_scale, num_layers):
    states = layers(num_layers)
    module = started(method, num_layers, start="top", update_scale=update_scale, num_capsules=3)
    if method == "dynamic_routing":  # squashes each capsule, and keeps its direction
        capsules, top = (tensor.unflatten(-1, (3, -1)) for tensor in (module.aggregate(states, False)[0], states[-1]))
        cosines = torch.cosine_similarity(capsules, top, dim=-1)
        torch.testing.assert_close(cosines, torch.ones_like(cosines))
    else:
        torch.testing.assert_close(module(states)[0], states[-1], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("num_layers", [1, 3, 6])
@pytest.mark.parametrize("update_scale", [1.0, 0.1])
@pytest.mark.parametrize("method", ["linear", "dynamic_combination"])
def test_a_start_at_the_layers_is_their_mean(method, update_scale, num_layers):
    states = layers(num_layers)
    module = started(method, num_layers, start="layers", update_scale=update_scale)
    mean = torch.stack(states).mean(dim=0)
    torch.testing.assert_close(module.aggregate(states, False)[0], mean, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("inputs", ["all", "own"])
@pytest.mark.parametrize("update_scale", [1.0, 0.1])
@pytest.mark.parametrize("method", ["dynamic_routing", "em_routing"])
def test_a_start_at_the_layers_routes_the_layers(method, update_scale, inputs):
    states = layers()
    settings = {"start": "layers", "update_scale": update_scale, "num_capsules": 4}
    module = started(method, capsule_input=inputs, vote_input=inputs, **settings)
    votes = torch.stack(states, dim=-2).unflatten(-1, (4, -1))
    activation = torch.full((2, 5, LAYERS, 4), 0.5) if method == "em_routing" else None
    expected = module.route(votes, input_activation=activation).capsules.flatten(-2)
    torch.testing.assert_close(module.aggregate(states, False)[0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("start", ["random", "layers", "top"])
@pytest.mark.parametrize("method", METHODS_WITH_MAPS)
def test_every_start_has_the_noise_of_a_random_one(method, start):
    """And an update scale does not change it."""
    exact, noisy = (started(method, noise=noise, start=start) for noise in (0.0, 0.02))
    slow = started(method, noise=0.02, start=start, update_scale=0.1)
    for name, weight in noisy.named_parameters():
        if name.endswith("weight") and "norm" not in name:
            for started_weight in (weight, slow.get_parameter(name) * 0.1):
                noise = started_weight - exact.get_parameter(name)
                assert noise.std().item() == pytest.approx(0.02, rel=0.15)
                assert noise.abs().max() < 0.1


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("slow", [ScaledLinear(6, 4, update_scale=0.1), PerCapsuleLinear(3, 2, 4, update_scale=0.1)])
def test_an_update_scale_is_a_rate(slow, optimiser):
    """A step moves the map as a step of a tenth of the rate moves a map that holds W itself."""
    torch.manual_seed(0)
    slow = copy.deepcopy(slow).double()
    slow.reset_parameters(0.3)
    torch.nn.init.normal_(slow.bias)
    plain = copy.deepcopy(slow)
    plain.update_scale = 1.0
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.mul_(0.1)
    optimisers = optimiser(slow.parameters(), lr=0.1), optimiser(plain.parameters(), lr=0.01)
    for _ in range(5):
        inputs, target = torch.randn(7, 6, dtype=torch.double), torch.randn(1, dtype=torch.double)
        results = [module(inputs) for module in (slow, plain)]
        torch.testing.assert_close(*results)
        for one, result in zip(optimisers, results, strict=True):
            one.zero_grad()
            (result - target).square().sum().backward()
        for ours, theirs in zip(slow.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)
        for one in optimisers:
            one.step()
    with torch.no_grad():
        torch.testing.assert_close(slow(inputs), plain(inputs))


def test_a_start_leaves_trained_maps_alone(tmp_path):
    model = starting(noise=0.02, method="em_routing", start="top", update_scale=0.1)
    with torch.no_grad():
        for parameter in model.model.encoder.layer_aggregation.parameters():
            parameter.normal_()
    model.save_pretrained(tmp_path)
    for copied in (CapsuleMarianMTModel.from_pretrained(tmp_path), CapsuleMarianMTModel.from_marian(model)):
        assert copied.config.layer_aggregation_start == "top"
        for name, parameter in model.named_parameters():
            assert torch.equal(copied.get_parameter(name), parameter), name
    with pytest.raises(ValueError, match=r"`layer_aggregation_update_scale` 1.0 differs from the model's 0.1"):
        CapsuleMarianMTModel.from_marian(model, layer_aggregation_update_scale=1.0)
