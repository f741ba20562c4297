"""Engines on a trained checkpoint: what is timed, the scores beside it, the tables and the picture."""

import argparse
import json

import pytest

from hf_capsule_mt.evaluation import read_result, write_result
from lab.trained_engines import STOCK, draw_trained, measure_trained, render_trained
from tests.golden.make import EXPECTED, FOLDER


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    pairs = json.loads((FOLDER / "capsnmt" / EXPECTED).read_text(encoding="utf-8"))["pairs"][:5]
    for key, name in (("source", "input"), ("target", "references")):
        (folder / name).write_text("".join(f"{pair[key]}\n" for pair in pairs), encoding="utf-8")
    arguments = argparse.Namespace(
        checkpoints=[str(FOLDER / "capsnmt")],
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
    path = write_result(folder / "result.json", measure_trained(arguments))
    return read_result(path), folder


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
        stock = cell["engines"][STOCK]
        exact = cell["engines"]["PyTorch float32"]
        assert stock["tokens"] == exact["tokens"]
        assert stock["same"] == exact["same"] == 4
        if cell["ends"] == "real ends":
            assert stock["bleu"] == exact["bleu"]
            assert 0 <= stock["chrf"] <= 100
        else:
            assert stock["tokens"] == 4 * 6
            assert "bleu" not in stock
        assert all(timing["minimum"] > 0 for timing in stock["seconds"].values())


def test_tables_and_picture(result):
    measured, folder = result
    text = render_trained(measured)
    assert "## capsnmt, real ends, 1 thread" in text
    assert "## capsnmt, forced to 6 tokens, 1 thread" in text
    assert text.count(f"| {STOCK} |") == 4
    pytest.importorskip("matplotlib")
    assert draw_trained(measured, folder / "picture.png").stat().st_size > 1000
