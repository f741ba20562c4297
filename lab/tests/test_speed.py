"""Timing in turns, by engine and by sentence length: what is timed, and its tables."""

import argparse
import json
import time

import pytest
import torch

from hf_capsule_mt.evaluation import read_result, write_result
from lab import engine_speed, trained_engines
from lab.engine_speed import CELLS, measure_engines
from lab.timing import (
    peak_memory,
    time_in_turns,
)
from lab.trained_engines import measure_trained
from tests.golden.make import EXPECTED, FOLDER


def test_runs_take_turns():
    order = []
    timings = time_in_turns(
        {"a": lambda: order.append("a"), "b": lambda: (order.append("b"), time.sleep(0.02))}, repeats=3, warmup=1
    )
    assert order == ["a", "b"] * 4
    assert timings["b"].runs == 3
    assert timings["b"].minimum >= 0.02
    assert timings["a"].median < timings["b"].median


def test_peak_memory():
    def run():
        first = torch.ones(1000, 1000)
        second = first + 1
        del first
        third = second + 1
        return third.sum()

    assert 8e6 <= peak_memory(run, "cpu") < 8.1e6


def test_every_engine_is_measured(monkeypatch):
    monkeypatch.setattr(engine_speed, "ENGINES", {"native, plain": ("stock", False)})
    result = measure_engines(argparse.Namespace(size="tiny", repeats=1))
    assert result["milliseconds"].keys() == CELLS.keys()
    for taken in result["milliseconds"].values():
        assert taken.keys() == {engine_speed.STOCK, "native, plain"}
        assert min(taken.values()) > 0


def arguments_of(folder):
    return argparse.Namespace(
        checkpoints=[str(FOLDER / "capsule_marian")],
        input=folder / "input",
        references=folder / "references",
        sentences=4,
        batch_sizes=[1, 3],
        num_beams=[1, 2],
        threads=[1],
        forced=6,
        shortlist=None,
        repeats=1,
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    pairs = json.loads((FOLDER / "capsule_marian" / EXPECTED).read_text(encoding="utf-8"))["pairs"][:5]
    for key, name in (("source", "input"), ("target", "references")):
        (folder / name).write_text("".join(f"{pair[key]}\n" for pair in pairs), encoding="utf-8")
    path = write_result(folder / "result.json", measure_trained(arguments_of(folder)))
    return read_result(path), folder


@pytest.mark.slow
def test_cells_and_scores(result):
    ((_, cells),) = result[0]["checkpoints"].items()
    assert result[0]["sentences"] == 4
    assert [(cell["ends"], cell["batch"], cell["beams"]) for cell in cells[:4]] == [
        ("real ends", 1, 1),
        ("real ends", 1, 2),
        ("real ends", 3, 1),
        ("real ends", 3, 2),
    ]
    for cell in cells:
        stock = cell["engines"][trained_engines.STOCK]
        exact = cell["engines"]["native float32"]
        assert stock["tokens"] == exact["tokens"]
        assert stock["same"] == exact["same"] == 4
        if cell["ends"] == "real ends":
            assert stock["bleu"] == exact["bleu"]
            assert 0 <= stock["chrf"] <= 100
        else:
            assert stock["tokens"] == 4 * 6
            assert "bleu" not in stock
        assert all(timing["minimum"] > 0 for timing in stock["seconds"].values())
