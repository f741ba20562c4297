"""Layer aggregation: what tells its methods apart (properties 26 and 27), and its memory."""

import pytest
import torch

from hf_capsule_mt import CapsuleMarianConfig
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
