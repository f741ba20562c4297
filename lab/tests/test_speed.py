"""Speeds: of models beside each other, and that measuring changes nothing."""

import copy

import torch

from lab.speed import milliseconds_in_turns
from tests.fixtures.tiny import tiny_model, tiny_tokenizer


def test_speeds_are_measured_and_the_weights_stay():
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, layer_aggregation="em_routing")
    before = copy.deepcopy(model.state_dict())
    models = {"one": model, "other": copy.deepcopy(model)}
    lines = ["The man sees the house.", "Who sings?"]
    turns = []
    found = milliseconds_in_turns(models, tokenizer, lines, lines, 3, new_tokens=5, progress=lambda: turns.append(1))
    assert len(turns) == len(models) * (3 + 1) * 3
    assert list(found) == ["one", "other"]
    for what in ("train", "decode", "sentence"):
        assert 0.2 < found["one"][what] / found["other"][what] < 5
    for name, weights in model.state_dict().items():
        torch.testing.assert_close(weights, before[name], rtol=0, atol=0)


def test_more_words_take_longer():
    tokenizer = tiny_tokenizer()
    models = {"model": tiny_model(tokenizer)}
    short, long = "Who sings?", "The man sees the house and the woman sees the old house."
    of_short, of_long = (milliseconds_in_turns(models, tokenizer, [short], [line], 3) for line in (short, long))
    assert of_long["model"]["sentence"] > 1.5 * of_short["model"]["sentence"]
