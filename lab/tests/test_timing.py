"""Timing and memory: runs in turns, peaks that are counted, floors that keep the matrix products."""

import time

import pytest
import torch

from hf_capsule_mt import CapsuleMarianMTModel
from hf_capsule_mt.modeling.router import Router
from lab.timing import peak_memory, routing_replaced_by_mean, steady_clock, time_in_turns
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
