"""The tasks of depth aggregation: every method is a recipe of its task, and the table sorts itself."""

import argparse
from pathlib import Path

import pytest

from hf_capsule_mt.training import load_recipe
from lab.depth import TASKS, contrasts, file_of, reproduction_of, table
from lab.paper_tables import RUNS
from lab.records import Records


@pytest.mark.parametrize("name", TASKS)
def test_every_method_is_a_recipe_of_its_task(name):
    task = TASKS[name]
    arguments = argparse.Namespace(
        task=name, seeds=None, cpu=True, data_dir=None, work=Path("outputs"), results=Path("lab/results"), budget=1
    )
    reproduction = reproduction_of(arguments)
    for run in task.methods:
        recipe = load_recipe(reproduction.recipe(RUNS[run].recipe), reproduction.overrides(RUNS[run], 1))
        assert recipe.training["use_cpu"] is True  # or the Trainer refuses bfloat16
        assert recipe.model["encoder_layers"] == int(task.changes["model.encoder_layers"])
        assert recipe.model.get("layer_aggregation", "none") == (
            run.removesuffix("_everywhere") if run != "plain" else "none"
        )
        assert recipe.model.get("depth_connections", False) == run.endswith("_everywhere")
    assert {run for pair in task.contrasts for run in pair} <= set(task.methods)


def keep(records, scores):
    for run, values in scores.items():
        for seed, score in zip(TASKS["deep"].seeds, values, strict=False):
            record = {"run": run, "seed": seed, "scores": {"bleu": {"score": score}}, "parameters": 1000}
            records.keep(file_of("deep"), record)


def test_the_table_sorts_itself_and_says_what_is_missing(tmp_path):
    records = Records(tmp_path)
    assert "No model has been trained yet." in table(records, "deep")
    keep(records, {"plain": [1.0, 60.0, 62.0], "dense_everywhere": [70.0, 71.0, 72.0], "dense": [40.0]})
    text = table(records, "deep")
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:4] == ["dense sum before every layer", "the top layer alone", "dense sum"]
    assert "| learns 2 of 3 |  | 1.00 / 60.00 / 62.00 |" in text
    assert "| learns 1 of 1 |  | 40.00 |" in text
    assert "contrasts" not in text  # a model that does not translate is no baseline
    assert "Not yet trained: depth attention before every layer; depth attention, with a residual; EM routing" in text


def test_methods_that_all_learn_have_gains(tmp_path):
    records = Records(tmp_path)
    keep(records, {"plain": [60.0, 61.0, 62.0], "dense_everywhere": [70.0, 72.0, 72.0], "dense": [61.0, 61.0, 63.0]})
    text = table(records, "deep")
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:4] == ["dense sum before every layer", "dense sum", "the top layer alone"]
    assert "| 71.33 | +10.33 [" in text


def test_contrasts_are_those_of_blocks_and_are_corrected():
    """Two arms in blocks are the paired t-test: gains of 1.2, 0.9 and 0.9 have t = 10 and p = 0.00985."""
    scores = {"plain": {1: 50.0, 2: 40.0, 3: 30.0}, "dense_everywhere": {1: 51.2, 2: 40.9, 3: 30.9}}
    ((pair, estimate),) = contrasts(TASKS["deep"], scores).items()
    assert pair == ("dense_everywhere", "plain")
    assert estimate.mean == pytest.approx(1.0)
    assert estimate.high - estimate.mean == pytest.approx(4.302653 * 0.1)
    assert estimate.p == pytest.approx(3 * 0.0098525, rel=1e-3)  # Holm, of three contrasts
    assert contrasts(TASKS["deep"], {"plain": scores["plain"], "dense_everywhere": {1: 51.2}}) == {}
