"""Timing in turns: peaks that are counted, floors that keep the matrix products, and the tables of speeds."""

import argparse
import copy
import time

import pytest
import torch

from hf_capsule_mt import CapsuleMarianMTModel
from hf_capsule_mt.modeling.router import Router
from lab import engine_speed
from lab.engine_speed import CELLS, CTRANSLATE2, STOCK, measure_engines, render_engines
from lab.speed import milliseconds_in_turns
from lab.throughput import SYSTEMS, measure
from lab.timing import peak_memory, routing_replaced_by_mean, steady_clock, time_in_turns
from tests.fixtures.tiny import tiny_model, tiny_tokenizer
from tests.modeling import test_capsule_marian  # the class itself, imported, would be collected here once more


def test_runs_take_turns():
    order = []
    timings = time_in_turns(
        {"a": lambda: order.append("a"), "b": lambda: (order.append("b"), time.sleep(0.02))}, repeats=3, warmup=1
    )
    assert order == ["a", "b"] * 4
    assert timings["b"].runs == 3
    assert timings["b"].minimum >= 0.02
    assert timings["a"].median < timings["b"].median


def test_waiting_counts_only_where_threads_or_a_device_work(monkeypatch):
    for threads, device, waits in ((1, "cpu", False), (2, "cpu", True), (1, "cuda", True)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        clock = steady_clock(device)
        timing = time_in_turns({"sleep": lambda: time.sleep(0.02)}, repeats=1, warmup=0, clock=clock)["sleep"]
        assert (timing.median >= 0.02) == waits


def test_peak_memory():
    def run():
        first = torch.ones(1000, 1000)
        second = first + 1
        del first
        third = second + 1
        return third.sum()

    assert 8e6 <= peak_memory(run, "cpu") < 8.1e6


@pytest.mark.parametrize("mix", ["dynamic routing", "everything"])
def test_the_floor_keeps_every_gradient(mix):
    checks = test_capsule_marian.TestCapsuleMarian()
    model: CapsuleMarianMTModel = checks.model(test_capsule_marian.MIXES[mix], tie_word_embeddings=True)
    route = Router.route
    batch, labels = checks.source(checks.batch()), checks.labels()
    with routing_replaced_by_mean():
        assert Router.route is not route
        model(**batch, labels=labels).loss.backward()
    assert Router.route is route
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not name.endswith(("beta_a", "beta_u")):
            assert parameter.grad is not None, name


def test_throughput_is_measured_for_all():
    result = measure(rounds=1, steps=4, sentences=60, batch_size=4, width=16, layers=1)
    assert set(result) == set(SYSTEMS)
    assert all(speed["median"] > 0 for speed in result.values())


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


def test_every_engine_is_measured(monkeypatch):
    monkeypatch.setattr(engine_speed, "ENGINES", {"PyTorch, plain": ("stock", "torch", False)})
    result = measure_engines(argparse.Namespace(size="tiny", repeats=1))
    assert result["milliseconds"].keys() == CELLS.keys()
    for taken in result["milliseconds"].values():
        assert taken.keys() == {STOCK, "PyTorch, plain"}
        assert min(taken.values()) > 0


def test_ratios():
    milliseconds = {"one": {STOCK: 100.0, "ours": 20.0, CTRANSLATE2: 50.0}}
    lines = render_engines({"milliseconds": milliseconds}).splitlines()
    assert lines[2:] == [f"| {STOCK} | 1.0 |", "| ours | 5.0 (2.50) |", f"| {CTRANSLATE2} | 2.0 |"]
