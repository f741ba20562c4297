"""Result files say who made them."""

import json
import re

from hf_capsule_mt.evaluation import read_result, write_result


def test_a_result_carries_its_circumstances(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["scripts/benchmark.py", "--size", "tiny one"])
    path = write_result(tmp_path / "folder" / "result.json", {"score": 1.5})
    result = read_result(path)
    assert result["score"] == 1.5
    assert result["command"] == "python scripts/benchmark.py --size 'tiny one'"
    assert {"torch", "transformers", "python"} <= set(result["software"])
    assert result["hardware"]["cpu"]
    assert result["commit"] is None or re.fullmatch(r"[0-9a-f]{40}\+?", result["commit"])
    assert [file.name for file in path.parent.iterdir()] == ["result.json"]
    json.loads(path.read_text())
