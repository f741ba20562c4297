"""Training the rows of the papers' tables, comparing them, and going on where a call stopped."""

import argparse
import shutil
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from capsule_mt.text.lock import lock_output
from hf_capsule_mt.training import load_recipe
from lab.paper_tables import RUNS
from lab.records import Records
from lab.report import tables
from lab.reproduce import Reproduction


@pytest.mark.parametrize("setting", ["embedded", "multi30k", "tatoeba"])
@pytest.mark.parametrize("data_dir", [None, "data/somewhere"])
def test_every_run_is_a_recipe_of_every_setting(setting, data_dir):
    arguments = argparse.Namespace(
        setting=setting, study=None, data_dir=data_dir, work=Path("outputs/reproduce"), results=Path("lab/results"),
        changes=[("training.max_steps", "7")], budget=1,
    )  # fmt: skip
    reproduction = Reproduction(arguments)
    for name, run in RUNS.items():
        recipe = load_recipe(reproduction.recipe(run.recipe), reproduction.overrides(run, 1))
        assert recipe.training["max_steps"] == 7
        for field, value in run.model.items():
            assert recipe.model[field] == value, name
        if run.scale:
            plain = load_recipe(reproduction.recipe(run.recipe))
            assert all(recipe.model[field] == factor * plain.model[field] for field, factor in run.scale.items())
        if run.init_from:
            assert recipe.init_from == f"outputs/reproduce/{setting}/{run.init_from}-seed1"
        if run.distilled:
            folder = f"./outputs/reproduce/{setting}/distilled-by-{run.distilled}-seed1"  # whatever the data_dir is
            assert recipe.data["train"] == {"jsonl": f"{folder}/part-*.jsonl"}


@pytest.mark.parametrize(
    ("setting", "left_out"), [("embedded", set()), ("multi30k", {"--data.test", "--data.validation"})]
)
def test_no_test_sentence_is_trained_on(setting, left_out, tmp_path, monkeypatch):
    """The embedded corpus draws the train part from what the others leave, so the training has to name them."""
    commands = []
    monkeypatch.setattr(Reproduction, "call", lambda self, command, log: commands.append(command))
    changes = [("training.eval_strategy", '"no"')]
    arguments = argparse.Namespace(
        setting=setting, study=None, data_dir="data", work=tmp_path, results=tmp_path, budget=1, changes=changes
    )
    Reproduction(arguments).train("plain", 1)
    (command,) = commands
    assert {word for word, value in pairwise(command) if value == "null"} == left_out


def test_two_calls_share_the_work(tmp_path, monkeypatch, capsys):
    """The first pass finds `plain` with another call, which then leaves it untrained."""
    trained = []

    class Sharing(Reproduction):
        def train(self, name, seed):
            trained.append(name)
            return self.call(["-c", "print('trained')"], self.folder(name, seed).with_suffix(".log"))

        def score(self, name, seed):
            self.records.keep(self.file, {"run": name, "seed": seed, "comparisons": {}})

    shared = Sharing(
        argparse.Namespace(
            setting="embedded", study=None, seeds=[1], work=tmp_path / "work", results=tmp_path, budget=1
        )
    )
    log = shared.folder("plain", 1).with_suffix(".log")
    with ExitStack() as other:
        other.enter_context(lock_output(log))
        monkeypatch.setattr("lab.reproduce.time.sleep", lambda seconds: other.close())
        assert shared.train_and_score(["plain", "linear"]) == []
    assert trained == ["plain", "linear", "plain"]
    assert log.read_text() == "trained\n"
    assert shared.records.runs("embedded").keys() == {"plain", "linear"}
    assert capsys.readouterr().out == "Other calls train plain, seed 1\n"


def test_a_signal_stops_the_training_and_starts_no_other(tmp_path):
    calls = []

    class Signalled(Reproduction):
        def train(self, name, seed):
            calls.append(name)
            log = self.folder(name, seed).with_suffix(".log")
            program = "import os, signal, time; time.sleep(1); os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"
            return self.call(["-c", program], log)

    arguments = {"setting": "embedded", "study": None, "seeds": [1], "work": tmp_path, "results": tmp_path}
    started = time.monotonic()
    assert Signalled(argparse.Namespace(**arguments, budget=9)).train_and_score(["plain", "linear"]) == []
    assert calls == ["plain"]
    assert time.monotonic() - started < 30, "the training outlived the signal"


def test_wrong_input(command):
    with pytest.raises(SystemExit, match="no such folder: nofolder"):
        command("report", "--results nofolder --report out --page page.md")
    with pytest.raises(SystemExit, match=r"needs tables of headline, .*; got \[\]"):
        command("reproduce", "")


@pytest.mark.slow
def test_reproduce_trains_resumes_and_renders(command, capsys):
    tiny = " ".join(
        f"--set {name} {value}"
        for name, value in {
            "training.max_steps": 4, "training.eval_steps": 100, "training.save_steps": 2, "model.d_model": 32,
            "model.encoder_ffn_dim": 32, "model.decoder_ffn_dim": 32, "data.train": '{"embedded":200}',
            "data.test": '{"embedded":10}', "data.validation": '{"embedded":4}', "generation.max_new_tokens": 8,
        }.items()
    )  # fmt: skip
    tiny += " --turns 1"
    command("reproduce", f"dou1 --runs plain em_routing --budget 10 {tiny}")
    records = Records("lab/results")
    file = records.path("embedded")
    result = records.run("embedded", "em_routing", 1)
    assert result["recipe"]["model"]["layer_aggregation"] == "em_routing"
    assert result["changes"]["training.max_steps"] == "4"
    assert set(result["comparisons"]) == {"plain"}
    # what is scored is not in what was trained on: the embedded corpus is disjoint if all sizes are the same
    trained = yaml.safe_load(Path("outputs/reproduce/embedded/em_routing-seed1/recipe.yaml").read_text())
    assert trained["data"] == {"train": {"embedded": 200}, "validation": {"embedded": 4}, "test": {"embedded": 10}}
    assert set(records.named("embedded")["speeds"]["models"]) == {"plain", "em_routing"}
    assert len(records.translations("embedded")["em_routing", 1]) == result["sentences"] == 10
    before = file.read_bytes()
    command("reproduce", f"dou1 --runs plain em_routing --budget 10 {tiny}")
    assert file.read_bytes() == before
    document = tables(records)
    assert "| EM routing | 0." in document
    assert "Table 1: layer aggregation, WMT14 English-German (`dou1`)" not in document  # its rows are the headline's
    # without the checkpoints, the translations are enough for the scores
    compared = result["comparisons"].pop("plain")
    records.keep("embedded", result)
    shutil.rmtree("outputs")
    command("reproduce", f"dou1 --runs plain em_routing --budget 10 {tiny}")
    again = records.run("embedded", "em_routing", 1)["comparisons"]["plain"]
    assert again == compared
    # a comparison is not kept with what a baseline was before it was trained again, nor what seeds say with it
    over_seeds = {"seeds": [1, 2], "difference": 99.0, "p_bootstrap": 0.5}
    result["comparisons"]["plain"] = {**compared, "baseline_score": compared["baseline_score"] + 1}
    records.keep("embedded", result)
    for name in ("plain", "em_routing"):  # a second seed that says the same
        records.keep("embedded", records.run("embedded", name, 1) | {"seed": 2})
        records.keep_translations("embedded", name, 2, records.translations("embedded")[name, 1])
    second = result | {"seed": 2, "comparisons": {"plain": {**compared, "over_seeds": over_seeds}}}
    records.keep("embedded", second)
    command("reproduce", f"dou1 --runs plain em_routing --seeds 1 2 --budget 10 {tiny}")
    assert records.run("embedded", "em_routing", 1)["comparisons"]["plain"] == compared
    together = records.run("embedded", "em_routing", 2)["comparisons"]["plain"]["over_seeds"]
    assert together["seeds"] == [1, 2]
    assert together["difference"] == pytest.approx(compared["difference"])
    # a run that starts from another trains that once more
    command("reproduce", f"tried --runs em_routing_warm --budget 10 {tiny}")
    warm = records.run("embedded", "em_routing_warm", 1)
    assert Path(warm["recipe"]["init_from"], "train_result.json").exists()
    assert warm["recipe"]["data"]["test"] == {"embedded": 10}
    # the speeds of a row need no training, and are kept beside those that were there; equal models share theirs
    command("reproduce", f"dou1 --runs linear --speeds {tiny}")
    assert list(records.named("embedded")["speeds"]["models"]) == ["plain", "linear", "em_routing"]
    # a training that diverges is named, and the others go on
    with pytest.raises(SystemExit) as stopped:
        command(
            "reproduce", f"dou1 --runs linear dynamic_combination --budget 10 {tiny} --set training.learning_rate 1e30"
        )
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    for name in ("linear", "dynamic_combination"):
        assert f"{name}, seed 1: train.py failed with code 1" in said
        assert "the training has diverged" in Path(f"outputs/reproduce/embedded/{name}-seed1.log").read_text()
    # one that others need is tried for the first of them alone
    shutil.rmtree("outputs")
    runs = "plain_warm dynamic_routing_warm"
    with pytest.raises(SystemExit):
        command("reproduce", f"tried --runs {runs} --budget 10 {tiny} --set training.learning_rate 1e30")
    said = capsys.readouterr().err
    for name in runs.split():
        assert f"{name}, seed 1: train.py failed with code 1: see outputs/reproduce/embedded/plain-seed1.log" in said
    assert Path("outputs/reproduce/embedded/plain-seed1.log").read_text().count("the training has diverged") == 1
