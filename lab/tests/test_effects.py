"""Mean differences over seeds and their intervals; the replication's plan."""

import json

import pytest

from hf_capsule_mt.training import load_recipe
from lab.effects import METHODS, differences, effects_table, published
from lab.paper_tables import RUNS
from lab.records import Records
from lab.replication import CHANGES, CONTROL, ROWS, SEEDS, STUDY, table, verdict


def bleu(value):
    return {"scores": {"bleu": {"score": value}}}


def test_differences_are_within_seeds():
    runs = {
        "em_routing": {1: bleu(21.0), 3: bleu(23.0), 4: bleu(99.0)},
        "plain": {1: bleu(20.0), 2: bleu(0.0), 3: bleu(25.0)},
    }
    assert differences(runs, "em_routing", "plain") == [1.0, -2.0]
    assert differences({}, "em_routing", "plain") == []


def test_every_method_is_a_run_with_a_claim():
    assert {method.run for method in METHODS} | {method.baseline for method in METHODS} <= set(RUNS)
    gains = {method.run: published(method) for method in METHODS}
    assert gains["em_routing"] == pytest.approx(1.50)
    assert gains["capsnmt"] == pytest.approx(25.7 - 21.3)
    assert gains["rnmt_gdr"] == pytest.approx(1.84)
    assert all(gain is not None and gain > 0 for gain in gains.values())


def test_the_table(tmp_path):
    records = Records(tmp_path)
    for seed, ours, theirs in ((1, 21.0, 20.0), (2, 22.0, 20.0), (3, 23.0, 20.0)):
        records.keep("embedded", {"run": "em_routing", "seed": seed, **bleu(ours)})
        records.keep("embedded", {"run": "plain", "seed": seed, **bleu(theirs)})
    records.keep("multi30k", {"run": "em_routing", "seed": 1, **bleu(30.0)})
    records.keep("multi30k", {"run": "plain", "seed": 1, **bleu(30.5)})
    # t = 4.3027 for two degrees of freedom: 2 +- 4.3027 / sqrt(3)
    assert "| Layers: EM routing | Transformer | +1.50 | +2.00 [-0.48, +4.48], n = 3 | -0.50, n = 1 |" in (
        effects_table(records)
    )


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
