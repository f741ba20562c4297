"""The command that measures everything that wants a GPU."""

import json
import sys
from pathlib import Path

import pytest
import torch

from lab import gpu
from lab.gpu_table import SYSTEMS, render_table

TRAINING_PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["lab.gpu", *map(str, arguments)])
    gpu.main()


def result_of(folder):
    return json.loads((folder / "gpu.json").read_text(encoding="utf-8"))


def test_the_page_shows_the_table_without_numbers():
    assert render_table({}) in TRAINING_PAGE.read_text(encoding="utf-8")


def test_the_table_shows_ratios_to_stock():
    train = {f"{name} 32768 bfloat16": {"tokens_per_second": 1000.0} for name in SYSTEMS}
    train["em_routing 32768 bfloat16"] = {"tokens_per_second": 1500.0}
    kernels = {"em bfloat16 chunked": {"share_of_copy": 0.52}}
    table = render_table({"train": train, "kernels": kernels})
    assert "| stock | - | 1,000 | - | - |" in table
    assert "| em_routing | - | 1,500 (1.50) | - | - |" in table
    assert "| kernel of EM routing, share of copy bandwidth | 52% |" in table


def test_what_has_no_time_left_is_named(tmp_path, monkeypatch):
    run(monkeypatch, "--tiny", "--minutes", 0, "--output", tmp_path)
    assert result_of(tmp_path)["skipped"] == list(gpu.SECTIONS)


def test_an_error_ends_no_section(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "STATIC_SYSTEMS", ("stock", "no such system"))
    run(monkeypatch, "--tiny", "--sections", "static", "--output", tmp_path)
    result = result_of(tmp_path)
    assert list(result["static"]) == ["stock"]
    assert "KeyError" in result["errors"]["static no such system"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_runs(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, "--output", tmp_path / "none")
    assert "`--tiny`" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_line_runs(tmp_path, monkeypatch):
    run(monkeypatch, "--tiny", "--minutes", 120, "--output", tmp_path)
    result = result_of(tmp_path)
    assert result["errors"] == {}
    assert result["skipped"] == []
    assert result["tests"]["tests/gpu"]["passed"] > 0
    assert not any("failed" in counts or "error" in counts for counts in result["tests"].values())
    assert set(result["waits"]) == set(SYSTEMS)
    for section in ("kernels", "train", "decode", "static"):
        assert all(value > 0 for row in result[section].values() for value in row.values())
