"""Relative speeds: of a model beside itself, and that measuring changes nothing."""

import copy

import torch

from hf_capsule_mt.analysis.speed import milliseconds_per_sentence, relative_speeds
from tests.fixtures.tiny import tiny_model, tiny_tokenizer


def test_speeds_are_measured_and_the_weights_stay():
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, layer_aggregation="em_routing")
    before = copy.deepcopy(model.state_dict())
    other = copy.deepcopy(model)
    lines = ["The man sees the house.", "Who sings?"]
    speeds = relative_speeds(model, other, tokenizer, tokenizer, lines, lines, repeats=3, new_tokens=5)
    assert set(speeds) == {"train_speed", "decode_speed"}
    assert all(0.2 < speed < 5 for speed in speeds.values())
    assert milliseconds_per_sentence(model, tokenizer, lines, num_beams=2) > 0
    for name, weights in model.state_dict().items():
        torch.testing.assert_close(weights, before[name], rtol=0, atol=0)
