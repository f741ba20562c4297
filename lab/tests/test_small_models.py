"""The comparison of a small checkpoint with int8: held-out pairs alone are translated, by both."""

import json
import sys

import pytest

from lab import small_models
from tests.fixtures.students import write_student

WORDS = ["the", "old", "man", "buys", "a", "red", "hat", "and", "reads", "the", "book"]


def test_a_student(tmp_path, monkeypatch):
    lines = [" ".join(WORDS[index % 5 : index % 5 + 3 + index % 4]) for index in range(40)]
    for name in ("sources", "references"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    files = [str(tmp_path / name) for name in ("sources", "references")]
    student, output = write_student(tmp_path / "student"), tmp_path / "output"
    command = [str(student), "--flores", *files, "--tatoeba", *files, "--max-loss", "0.2", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["small_models", *command])
    small_models.main()
    results = json.loads((output / "results.json").read_text())
    assert results["loss"] <= 0.2
    assert results["bytes"]["small"] == (output / "small" / "small.safetensors").stat().st_size
    assert results["corpora"].keys() == {"flores", "tatoeba"}
    for result in results["corpora"].values():
        assert result["sentences"] == 20
        assert 0 <= result["p"] <= 1
    with pytest.raises(ValueError, match="output: exists; name a new folder"):
        small_models.main()


def test_no_held_out_pair_calibrates():
    pairs = {corpus: [(f"{corpus} {index}", "") for index in range(3000)] for corpus in small_models.NUM_CALIBRATED}
    text = small_models.calibration_text(pairs)
    held_out = {source for corpus in pairs for source, _ in pairs[corpus][1::2]}
    assert len(set(text)) == 500
    assert held_out.isdisjoint(text)
