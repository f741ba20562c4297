"""Timing in turns, by engine and by sentence length: what is timed, and its tables."""

import argparse
import time

import torch

from lab import engine_speed, student_engines
from lab.engine_speed import CELLS, measure_engines
from lab.student_engines import measure_students
from lab.timing import (
    peak_memory,
    time_in_turns,
)
from tests.fixtures.students import write_student


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


def test_every_engine_is_measured_on_a_student(tmp_path, monkeypatch):
    (tmp_path / "text.en").write_text("the old man buys a red hat.\na hat\n\nthe man\n")
    student = write_student(tmp_path / "student")
    monkeypatch.setattr(student_engines, "OTHERS", ())
    settings = {"students": [student], "input": tmp_path / "text.en", "sentences": 3, "repeats": 1}
    measured = measure_students(argparse.Namespace(**settings, batch_sizes=[1, 2], num_beams=[1, 3]))
    engines = measured["students"]["student"]
    assert list(engines) == ["int8, shortlist", "int8, all tokens", "float32, shortlist"], "without a calibration"
    for engine in engines.values():
        assert list(engine["sentences_per_second"]) == ["1, 1", "2, 1", "1, 3", "2, 3"]
        assert min(engine["sentences_per_second"].values()) > 0
        assert 0 < engine["mib"] < 100
    assert engines["int8, shortlist"]["same"] == 3
