import argparse

from lab import engine_speed
from lab.engine_speed import CELLS, CTRANSLATE2, STOCK, measure_engines, render_engines


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
