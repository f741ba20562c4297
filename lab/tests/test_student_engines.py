"""Engines on students of Firefox take turns, native Bergamot in a process of its own."""

import argparse
import sys

import pytest

from lab.bergamot_worker import file_in
from lab.student_engines import BergamotProcess, measure_students, render_students
from tests.fixtures.students import write_student

# what the worker needs of the wheel: translates into capitals, and takes long for a text alone
BERGAMOT = """
from types import SimpleNamespace
ServiceConfig, ResponseOptions, VectorString = SimpleNamespace, SimpleNamespace, list
class Service:
    def __init__(self, config):
        assert config.cacheSize == 0
    def modelFromConfig(self, config):
        return config
    def translate(self, model, texts, options):
        assert "gemm-precision: int8shiftAlphaAll" in model
        for _ in range(2_000_000 if len(texts) == 1 else 0):
            pass
        return [SimpleNamespace(target=SimpleNamespace(text=text.upper())) for text in texts]
"""
TEXTS = ["the old man", "buys a hat", "the red hat"]


def test_bergamot_takes_turns(tmp_path, monkeypatch):
    (tmp_path / "bergamot.py").write_text(BERGAMOT)
    (tmp_path / "bergamot-0.4.5.dist-info").mkdir()
    (tmp_path / "bergamot-0.4.5.dist-info" / "METADATA").write_text("Name: bergamot\nVersion: 0.4.5\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    (tmp_path / "text").write_text("".join(f"{text}\n" for text in TEXTS))
    arguments = argparse.Namespace(
        students=[write_student(tmp_path / "student")], input=tmp_path / "text", sentences=3, batch_sizes=[1, 16],
        num_beams=[1, 2], repeats=1, bergamot=sys.executable,
    )  # fmt: skip
    result = measure_students(arguments)
    engines = result["students"]["student"]
    bergamot = engines["bergamot 0.4.5"]
    assert next(iter(engines)) == "bergamot 0.4.5"
    assert list(bergamot["sentences_per_second"]) == ["1, 1", "16, 1"]  # it has one beam
    assert bergamot["sentences_per_second"]["16, 1"] > 2 * bergamot["sentences_per_second"]["1, 1"]
    assert bergamot["same"] == len(TEXTS)
    assert list(engines["int8, shortlist"]["sentences_per_second"]) == ["1, 1", "16, 1", "1, 2", "16, 2"]
    shown = render_students(result | {"command": "c", "hardware": {"cpu": "a processor"}, "date": "2026-11-27"})
    assert "| bergamot 0.4.5 |" in shown


def test_bergamot_that_cannot_start_is_an_error(tmp_path):
    bergamot = BergamotProcess(sys.executable, tmp_path)
    with pytest.raises(RuntimeError, match="native Bergamot ended with exit code 1"):
        bergamot(TEXTS, 1, 1)
    bergamot.close()


def test_bergamot_needs_the_files_of_marian(tmp_path):
    (tmp_path / "int8.safetensors").touch()
    with pytest.raises(SystemExit, match=r"has no model\.\*\.bin: Bergamot reads Marian's files"):
        file_in(tmp_path, "model.*.bin")
