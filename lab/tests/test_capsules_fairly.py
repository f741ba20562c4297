"""Capsules against pooling: what the grid chooses, what the table says, and that the command ends."""

import argparse
import gzip
import re
from pathlib import Path

import pytest

from lab import capsules_fairly
from lab.capsules_fairly import FILE, LONGER, SEEDS, TUNING_SEED, Fairly, chosen, grid, table
from lab.paper_tables import RUNS
from lab.records import Records
from lab.replication import PLANS


def tuned(records: Records, method: str, losses: list[float]) -> None:
    for name, loss in zip(grid(method), losses, strict=False):
        records.keep(FILE, {"run": name, "seed": TUNING_SEED, "validation_loss": loss})


def test_both_have_the_same_grid():
    def fields(method: str) -> list[tuple[float, float]]:
        return [(RUNS[name].model["dropout"], RUNS[name].training["learning_rate"]) for name in grid(method)]

    assert fields("capsules") == fields("pooling") == fields("wide")
    assert len(set(fields("capsules"))) == 4
    assert TUNING_SEED not in SEEDS
    assert capsules_fairly.TEACHER_SEED in PLANS["replication"].seeds


def test_the_table(tmp_path):
    records = Records(tmp_path)
    assert table(records) == ""
    tuned(records, "pooling", [2.0, 1.9, 2.1, 2.2])
    tuned(records, "capsules", [2.0, 1.9, 2.1])
    runs = records.runs(FILE)
    assert chosen(runs, "capsules") is None
    assert (chosen(runs, "pooling"), chosen(runs, "wide")) == ("fair_pooling_2_2", "fair_wide_2_2")
    tuned(records, "capsules", [2.0, 1.9, 2.1, 1.8])
    assert chosen(records.runs(FILE), "capsules") == "fair_capsules_3_2"
    for seed in SEEDS:
        for name, score, far in (("fair_pooling_2_2", 30.0, 25.0), ("fair_capsules_3_2", 30.5, 24.0)):
            bleu = {key: {"bleu": {"score": value + 0.01 * seed * ("caps" in name)}} for key, value in
                    (("scores", score), ("joined", far))}  # fmt: skip
            records.keep(FILE, {"run": name, "seed": seed, **bleu})
    shown = table(records)
    assert "| Pooling | 0.2 | 0.002 | 1.900 |" in shown
    assert re.search(r"\| \+0\.54 \[.*n = 5 \| -0\.96 \[.*n = 5 \| 0\.000 \| helps \|", shown)
    assert "control" not in shown, "it has not been trained"


def test_joined_sentences_stay_whole(tmp_path, monkeypatch):
    calls = []

    def translate(sources, **settings):
        calls.append((sources, settings.get("split_sentences", True)))
        return [{"translation_text": source} for source in sources]

    lines = ["A man.", "A dog.", "A cow.", "A cat."]
    monkeypatch.setattr(capsules_fairly, "pipeline", lambda *_, **__: translate)
    monkeypatch.setattr(capsules_fairly, "read_result", lambda path: {"parameters": 1, "steps": 1})
    monkeypatch.setattr(Fairly, "pairs", lambda self, part: (lines, lines))
    arguments = {"setting": "multi30k", "study": FILE, "seeds": [2], "changes": []}
    folders = {"work": tmp_path, "results": tmp_path}
    Fairly(argparse.Namespace(**arguments, **folders, budget=1)).score("fair_pooling_2_2", 2)
    assert calls[-2:] == [(lines, True), (["A man. A dog.", "A cow. A cat."], False)]


@pytest.mark.slow
def test_the_command(command, monkeypatch):
    for name, old in {"train": "train", "val": "test", "test_2016_flickr": "test"}.items():
        for side in ("en", "de"):
            lines = Path(f"{old}.{side}").read_text().splitlines(keepends=True)[:40]
            Path(f"{name}.{side}.gz").write_bytes(gzip.compress("".join(lines).encode()))
    tiny = {"training.max_steps": "2", "training.bf16": "false", "tokenizer.vocab_size": "300"}
    tiny |= {"training.use_cpu": "true", "training.save_steps": "1", "data.max_length": "200"}
    # a teacher of two steps says nothing, at length
    long = {"data.max_length": "2000", "training.max_tokens_per_batch": "4000"}
    monkeypatch.setattr(capsules_fairly, "CHANGES", capsules_fairly.CHANGES | tiny | long)
    short = {"training.max_steps": 3, "training.save_steps": 1, "training.average_last": 2}
    assert short.keys() == LONGER.keys()
    monkeypatch.setattr(capsules_fairly, "LONGER", short)
    monkeypatch.setattr(
        capsules_fairly, "DECODING", [{"length_penalty": 1.0, "no_repeat_ngram_size": size} for size in (0, 3)]
    )
    plan = PLANS["replication"].changes
    for field, value in (tiny | {"training.average_last": "0", "training.eval_strategy": '"no"', "data.test": "null",
                                 "data.validation": "null", "model.d_model": "32"}).items():  # fmt: skip
        monkeypatch.setitem(plan, field, value)
    monkeypatch.setattr("sys.argv", ["lab.capsules_fairly", "--data-dir", ".", "--seeds", "2", "--cpu"])
    assert capsules_fairly.main() == 0
    runs = Records("lab/results").runs(FILE)
    assert len(runs) == 8 + 1, "the grid of both, and the control"
    final = runs[chosen(runs, "capsules")][2]
    assert final["steps"] == 3
    assert len(final["validation"]) == 2
    assert final["joined"]["bleu"]["score"] >= 0
    assert Path("outputs/reproduce/replication/plain-seed4/train_result.json").exists()
