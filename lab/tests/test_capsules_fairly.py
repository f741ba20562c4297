"""Capsules against pooling: what the grid chooses, what the table says, and that the command ends."""

import argparse
import gzip
import json
import re
from pathlib import Path

import pytest

from lab import capsules_fairly
from lab.capsules_fairly import (
    DECODING,
    DIVERGED,
    FILE,
    LONGER,
    SEEDS,
    TUNING_SEED,
    Fairly,
    chosen,
    grid,
    mixed_pairs,
    table,
)
from lab.paper_tables import RUNS
from lab.records import Records
from lab.reproduce import Reproduction, TrainingError


def tuned(records: Records, method: str, scores: list[float], data: object = "a text") -> None:
    for name, score in zip(grid(method), scores, strict=False):
        used = {"capsules_in_use": [8.0, 6.54]} if method == "capsules" else {}
        tuned_like = {"validation": score, "validation_loss": 2.0, "data": data} | used
        records.keep(FILE, {"run": name, "seed": TUNING_SEED, **tuned_like})


def test_both_have_the_same_grid():
    def fields(method: str) -> list[tuple[float, float]]:
        return [(RUNS[name].model["dropout"], RUNS[name].training["learning_rate"]) for name in grid(method)]

    assert fields("capsules") == fields("pooling") == fields("wide")
    assert len(set(fields("capsules"))) == 4
    assert TUNING_SEED not in SEEDS


def test_the_table(tmp_path):
    records = Records(tmp_path)
    assert table(records) == ""
    tuned(records, "pooling", [20.0, 21.0, 19.0, 18.0])
    tuned(records, "capsules", [20.0, 21.0, 19.0])
    runs = records.runs(FILE)
    assert chosen(runs, "capsules") is None
    assert (chosen(runs, "pooling"), chosen(runs, "wide")) == ("fair_pooling_1_4", "fair_wide_1_4")
    tuned(records, "capsules", [20.0, 21.0, 19.0, 22.0])
    assert chosen(records.runs(FILE), "capsules") == "fair_capsules_2_4"
    final = {"fair_pooling_1_4": (30.0, 25.0), "fair_capsules_2_4": (30.5, 24.0), "fair_wide_1_4": (30.4, 25.0)}
    for seed in SEEDS:
        for name, (score, long) in final.items():
            spread = 0.01 * seed * ("capsules" in name)
            bleu = {key: {"bleu": {"score": value + spread}} for key, value in (("scores", score), ("joined", long))}
            data = {"data": "another text" if seed == 4 and "wide" in name else "a text"}
            records.keep(FILE, {"run": name, "seed": seed, **bleu, **data})
    shown = table(records)
    assert "| Pooling | 0.1 | 0.004 | 21.00 | 2.000 |" in shown
    assert "| CapsNMT | 0.2 | 0.004 | 22.00 | 2.000 | 6.5 |" in shown
    assert re.search(r"both distilled \| \+0\.54 \[.*n = 5 \| -0\.96 \[.*n = 5 \| 0\.000 \|  \| helps \|", shown)
    assert "as many parameters | +0.14" in shown
    assert "| 4 of 5 seeds are trained |" in shown, "of the fourth the control learnt from another text"


def test_a_grid_of_several_texts_chooses_nothing(tmp_path):
    records = Records(tmp_path)
    tuned(records, "pooling", [20.0, 21.0, 19.0])
    (name,) = grid("pooling")[3:]
    records.keep(FILE, {"run": name, "seed": TUNING_SEED, "validation": 30.0, "data": "another text"})
    assert chosen(records.runs(FILE), "pooling") is None


LINES = [f"A man {'very ' * 10}old.", f"A dog {'very ' * 10}old.", "A cow without a stop", "A cat."]


def test_long_sentences_are_chosen_and_translated_apart(tmp_path, monkeypatch):
    calls = []

    def translate(sources, *, split_sentences, batch_size, **settings):
        assert not split_sentences
        calls.append((len(sources), len(sources[0].split()), settings))
        return [{"translation_text": source} for source in sources]

    monkeypatch.setattr(capsules_fairly, "pipeline", lambda *_, **__: translate)
    monkeypatch.setattr(Fairly, "validated", lambda self, name, seed: {"run": name, "seed": seed, "changes": {}})
    monkeypatch.setattr(Fairly, "pairs", lambda self, part: (LINES, LINES))
    arguments = {"setting": "multi30k", "study": FILE, "seeds": [2], "changes": []}
    fairly = Fairly(argparse.Namespace(**arguments, work=tmp_path, results=tmp_path, budget=1))
    folder = fairly.folder("fair_pooling_1_4", 2)
    folder.mkdir(parents=True)
    (folder / "data.json").write_text(json.dumps({"data.train": {"texts": "abc"}}))
    fairly.score("fair_pooling_1_4", 2)
    assert [(number, words) for number, words, _ in calls] == [(4, 13)] * 7 + [(1, 26)] * 7
    assert [settings for *_, settings in calls[:6]] == [settings for *_, settings in calls[7:13]] == DECODING
    record = fairly.records.run(FILE, "fair_pooling_1_4", 2)
    assert record["data"] == {"texts": "abc"}
    assert record["joined were"]["length_ratio"] == 1.0
    assert record["joined"]["bleu"]["score"] == pytest.approx(100)


def test_the_long_sentences_to_learn(tmp_path, monkeypatch):
    pairs = [{"index": n, "translation": {"en": line, "de": line.upper()}} for n, line in enumerate(LINES)]
    (tmp_path / "part-00000.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in reversed(pairs)))
    arguments = {"setting": "multi30k", "study": FILE, "seeds": [2], "changes": []}
    fairly = Fairly(argparse.Namespace(**arguments, work=tmp_path, results=tmp_path, budget=1))
    _, path = fairly.distilled_texts(tmp_path)
    (line,) = Path(path).read_text().splitlines()
    found = json.loads(line)["translation"]
    assert found == {"en": f"{LINES[0]} {LINES[1]}", "de": f"{LINES[0]} {LINES[1]}".upper()}


def test_pairs_on_several_texts_are_named():
    runs = {"one": {2: {"data": "a"}, 3: {"data": "a"}}, "other": {2: {"data": "b"}}}
    (message,) = mixed_pairs(runs, ["one", "other"])
    assert message.startswith("Seed 2 ")


def test_a_diverged_run_of_the_grid_is_the_worst(tmp_path, monkeypatch):
    def diverges(self, name, seed):
        self.folder(name, seed).with_suffix(".log").write_text("FloatingPointError: " + DIVERGED)
        raise TrainingError("train.py failed")

    monkeypatch.setattr(Reproduction, "train", diverges)
    arguments = {"setting": "multi30k", "study": FILE, "seeds": [TUNING_SEED], "changes": []}
    fairly = Fairly(argparse.Namespace(**arguments, work=tmp_path, results=tmp_path, budget=1))
    tuned(fairly.records, "pooling", [20.0, 21.0, 19.0], {"texts": "abc"})
    name = grid("pooling")[3]
    for seed in (TUNING_SEED, 2):
        fairly.folder(name, seed).mkdir(parents=True)
        (fairly.folder(name, seed) / "data.json").write_text(json.dumps({"data.train": {"texts": "abc"}}))
    assert fairly.train_and_score([name]) == []
    assert chosen(fairly.records.runs(FILE), "pooling") == "fair_pooling_1_4"
    assert "| 0.00 | inf |" in table(fairly.records)
    with pytest.raises(TrainingError):
        fairly.train(name, 2)


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
    monkeypatch.setattr(capsules_fairly, "LONG", range(4, 60))
    monkeypatch.setattr(
        capsules_fairly, "DECODING", [{"length_penalty": 1.0, "no_repeat_ngram_size": size} for size in (0, 3)]
    )
    monkeypatch.setattr(capsules_fairly, "TUNING", {"training.max_steps": 2})
    monkeypatch.setattr(capsules_fairly, "OF_TEACHER", {"training.max_steps": 2, "model.d_model": 32})
    monkeypatch.setattr("sys.argv", ["lab.capsules_fairly", "--data-dir", ".", "--seeds", "2", "--cpu"])
    assert capsules_fairly.main() == 0
    runs = Records("lab/results").runs(FILE)
    assert len(runs) == 8 + 1, "the grid of both, and the control"
    final = runs[chosen(runs, "capsules")][2]
    assert final["steps"] == 3
    assert len(final["scores were"]["validation"]) == len(final["joined were"]["validation"]) == 2
    assert final["joined"]["bleu"]["score"] >= 0
    assert runs[chosen(runs, "pooling")][2]["data"] == final["data"]
    assert Path("outputs/reproduce/capsules_fairly/plain-seed4/train_result.json").exists()
