"""The rows of the papers' tables, training them, and going on where a call stopped."""

import argparse
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from hf_capsule_mt.training import load_recipe
from lab.effects import METHODS, published
from lab.paper_tables import RUNS, TABLES
from lab.records import Records
from lab.replication import NO_RATE, PLANS, RUNNING_PLANS
from lab.reproduce import Reproduction, parse_arguments
from lab.tables import render_table


def reproduction_of(setting, data_dir, work, changes=(), **fields):
    folders = {"data_dir": data_dir, "work": Path(work), "results": Path(work)}
    return Reproduction(
        argparse.Namespace(setting=setting, study=None, budget=1, changes=changes, **folders, **fields)
    )


def test_every_row_is_a_run_that_exists():
    for key, table in TABLES.items():
        assert table.rows, key
        for row in table.rows:
            assert row.run is None or row.run in RUNS, (key, row)
            assert row.baseline is None or row.baseline in RUNS, (key, row)
            assert set(row.printed) <= set(table.columns)
    for run in RUNS.values():
        assert set(run.needs) <= set(RUNS)
    used = {row.run for table in TABLES.values() for row in table.rows} - {None}
    runs = {run for plan in RUNNING_PLANS for run in PLANS[plan].runs if not run.endswith(NO_RATE)}
    planned = {name for run in runs for name in (run, *RUNS[run].needs)}
    assert set(RUNS) == used | planned, "a run that no table uses, or the other way round"


def test_gains_are_differences_of_what_the_papers_print():
    printed = {method.run: published(method) for method in METHODS}
    assert printed["em_routing"] == pytest.approx(28.81 - 27.31)
    assert printed["capsnmt"] == pytest.approx(25.7 - 21.3)  # to pooling, not to the plain model
    assert printed["rnmt_gdr"] == pytest.approx(38.45 - 36.61)
    assert all(value is not None and value > 0 for value in printed.values()), "the papers claim gains"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [],
            "name the tables to train, as in `python -m lab.reproduce dou1 --budget 30`; the tables are headline",
        ),
        (["dou1", "duo2"], "no table is called 'duo2'; did you mean `dou2`?; the tables are headline, dou1"),
    ],
)
def test_tables_that_are_missing_or_mistyped(words, message, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["lab/reproduce.py", *words])
    with pytest.raises(SystemExit, match=r"^2$"):
        parse_arguments()
    assert f"python -m lab.reproduce: error: {message}" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["embedded", "multi30k", "tatoeba"])
@pytest.mark.parametrize("data_dir", [None, "data/somewhere"])
def test_every_run_is_a_recipe_of_every_setting(setting, data_dir):
    reproduction = reproduction_of(setting, data_dir, "outputs/reproduce", changes=[("training.max_steps", "7")])
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
    reproduction_of(setting, "data", tmp_path, changes=[("training.eval_strategy", '"no"')]).train("plain", 1)
    (command,) = commands
    assert {word for word, value in pairwise(command) if value == "null"} == left_out


@pytest.mark.parametrize(
    ("setting", "file", "source"),
    [("multi30k", "test_2016_flickr.de.gz", "github.com/multi30k/dataset"), ("tatoeba", "test.en.gz", "tatoeba.org")],
)
def test_missing_data_stops_a_call_before_its_first_run(setting, file, source, tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(Reproduction, "_is_taken", lambda self, name, seed, failed: trained.append(name))
    reproduction = reproduction_of(setting, str(tmp_path), tmp_path, seeds=[1, 2])
    with pytest.raises(FileNotFoundError, match=rf"the folder {tmp_path} lacks train\..*{source}.* by --data-dir"):
        reproduction.train_and_score(["plain", "em_routing"])
    assert trained == []
    recipe = load_recipe(f"{setting}/plain")
    files = [name for part in ("train", "test") for name in recipe.data[part]["text"]]
    for name in files:
        (tmp_path / name).touch()
    reproduction.train_and_score(["plain", "em_routing"])
    assert trained == ["plain", "em_routing"] * 2
    (tmp_path / file).unlink()
    with pytest.raises(FileNotFoundError, match=rf"lacks {file}: "):
        reproduction.train_and_score(["plain"])


@pytest.mark.slow
def test_reproduce_trains_resumes_and_renders(command):
    tiny = " ".join(
        f"--set {name} {value}"
        for name, value in {
            "training.max_steps": 4, "training.eval_steps": 2, "training.save_steps": 2, "training.logging_steps": 1,
            "model.d_model": 32, "model.encoder_ffn_dim": 32, "model.decoder_ffn_dim": 32,
            "generation.max_new_tokens": 8,
            "data.train": '{"embedded":200}', "data.test": '{"embedded":10}', "data.validation": '{"embedded":4}',
        }.items()
    )  # fmt: skip
    command("lab.reproduce", f"dou1 --runs plain em_routing --budget 10 {tiny}")
    records = Records("lab/results")
    file = records.path("embedded")
    result = records.run("embedded", "em_routing", 1)
    assert (result["recipe"]["model"]["layer_aggregation"], len(result["validation_bleu"])) == ("em_routing", 2)
    assert result["changes"]["training.max_steps"] == "4"
    assert 0 < result["most_frequent"] <= 1
    assert 3 < min(result["losses"]) <= max(result["losses"]) < 12
    # what is scored is not in what was trained on: the embedded corpus is disjoint if all sizes are the same
    trained = yaml.safe_load(Path("outputs/reproduce/embedded/em_routing-seed1/recipe.yaml").read_text())
    assert trained["data"] == {"train": {"embedded": 200}, "validation": {"embedded": 4}, "test": {"embedded": 10}}
    assert len(records.translations("embedded")["em_routing", 1]) == result["sentences"] == 10
    content = file.read_bytes()
    command("lab.reproduce", f"dou1 --runs plain em_routing --budget 10 {tiny}")
    assert file.read_bytes() == content
    table = render_table(TABLES["dou1"], records.runs("embedded"), {}, with_printed_bleu=False)
    assert "| + EM routing | 0." in table
    assert "| + linear combination |  |  |  | not run |" in table
    assert "28.81" not in table, "the corpus is not the paper's"
