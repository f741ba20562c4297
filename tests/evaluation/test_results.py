"""Result files say who made them."""

import json
import re
import sys
from importlib.machinery import ModuleSpec

from hf_capsule_mt.evaluation import read_result, write_result


def test_a_result_carries_its_circumstances(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["scripts/benchmark.py", "--size", "tiny one"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    path = write_result(tmp_path / "folder" / "result.json", {"score": 1.5})
    result = read_result(path)
    assert result["score"] == 1.5
    assert result["command"] == "python scripts/benchmark.py --size 'tiny one'"
    assert {"torch", "transformers", "python"} <= set(result["software"])
    assert result["hardware"]["cpu"]
    assert result["commit"] is None or re.fullmatch(r"[0-9a-f]{40}\+?", result["commit"])
    assert [file.name for file in path.parent.iterdir()] == ["result.json"]
    json.loads(path.read_text())


def test_the_command_of_a_module(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/hf_capsule_mt/training/throughput.py", "--rounds", "4"])
    spec = ModuleSpec("lab.throughput", None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    result = read_result(write_result(tmp_path / "result.json", {}))
    assert result["command"] == "python -m lab.throughput --rounds 4"


def test_the_command_of_the_program(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["capsule-mt evaluate", "--system", "a b"])
    assert read_result(write_result(tmp_path / "result.json", {}))["command"] == "capsule-mt evaluate --system 'a b'"
