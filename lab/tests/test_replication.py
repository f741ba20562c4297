"""The plan of the replication, and the table of its answer."""

import json

import pytest

from hf_capsule_mt.training import load_recipe
from lab.paper_tables import RUNS
from lab.records import Records
from lab.replication import CHANGES, CONTROL, ROWS, SEEDS, STUDY, table, verdict


def keep(records, run, seed, bleu):
    records.keep(STUDY, {"run": run, "seed": seed, "scores": {"bleu": {"score": bleu}}})


def test_the_seed_that_chose_the_rows_is_not_counted():
    assert 1 not in SEEDS
    assert len(set(SEEDS)) == 4
    assert set(ROWS) | set(CONTROL) <= set(RUNS)


def test_all_rows_average_their_last_epochs():
    for name in ["plain", *ROWS, *CONTROL]:
        recipe = load_recipe(
            f"multi30k/{RUNS[name].recipe}", {field: json.loads(value) for field, value in CHANGES.items()}
        )
        assert recipe.training["average_last"] == 5
        assert recipe.training["save_steps"] == recipe.training["eval_steps"] == 462


def test_the_table_answers_once_all_seeds_are_there(tmp_path):
    records = Records(tmp_path)
    assert table(records) == ""
    for seed in SEEDS[:3]:
        keep(records, "plain", seed, 30.0)
        keep(records, "linear", seed, 30.5 + 0.1 * seed)
    assert "3 of 4 seeds are trained" in table(records)
    keep(records, "plain", SEEDS[3], 30.0)
    keep(records, "linear", SEEDS[3], 31.0)
    assert "| +0.85 [+0.64, +1.06], n = 4 | 0.001 | helps |" in table(records)


@pytest.mark.parametrize(
    ("values", "answer"), [([1.0, 1.1], "helps"), ([0.0, 0.0, 0.3, 0.0], "within 0.3 BLEU of nothing")]
)
def test_verdict(values, answer):
    assert verdict(values) == answer
