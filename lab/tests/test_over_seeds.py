"""Runs over seeds: spreads, tests, intervals, the table of differences, and the replication's plan."""

import json
import math

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt.evaluation.significance import compare_systems
from hf_capsule_mt.training import load_recipe
from hf_capsule_mt.training.models import build_config
from lab.effects import METHODS, Gains, differences, effects_table, embedded_gains, published
from lab.over_seeds import (
    bootstrap_over_seeds,
    interval_over_seeds,
    paired_t_test,
    student_quantile,
    student_two_sided,
)
from lab.paper_tables import RUNS
from lab.records import Records
from lab.replication import FROM_THE_START, PLANS, gains, main, table
from lab.report import effects


@pytest.mark.parametrize(
    ("degrees", "five_percent", "one_percent"),
    [(1, 12.706, 63.657), (2, 4.303, 9.925), (3, 3.182, 5.841), (4, 2.776, 4.604), (30, 2.042, 2.750)],
)
def test_students_table(degrees, five_percent, one_percent):
    # as close as three printed decimals allow
    assert student_two_sided(five_percent - 5e-4, degrees) > 0.05 > student_two_sided(five_percent + 5e-4, degrees)
    assert student_two_sided(5e-4 - one_percent, degrees) > 0.01 > student_two_sided(-5e-4 - one_percent, degrees)
    assert student_two_sided(0.0, degrees) == 1.0
    assert student_quantile(0.05, degrees) == pytest.approx(five_percent, abs=5e-4)
    assert student_quantile(0.01, degrees) == pytest.approx(one_percent, abs=5e-4)


def test_seeds_by_hand():
    # two seeds: T has Cauchy's distribution
    assert paired_t_test([1.0, 3.0]) == pytest.approx(1 - 2 / math.pi * math.atan(2))
    # three seeds: mean 2, deviation 1, t = 2 sqrt(3); p = 1 - t / sqrt(2 + t^2)
    assert paired_t_test([1.0, 2.0, 3.0]) == pytest.approx(1 - math.sqrt(12 / 14))
    assert paired_t_test([-3.0, -1.0, -2.0]) == pytest.approx(paired_t_test([1.0, 2.0, 3.0]))
    assert paired_t_test([0.5, 0.5]) == 0.0
    assert paired_t_test([0.0, 0.0, 0.0]) == 1.0
    with pytest.raises(ValueError, match="at least two differences, got 1"):
        paired_t_test([1.0])


def test_an_interval_touches_zero_where_p_is_five_percent():
    values = [1.0, 2.0, 3.0]
    low, high = interval_over_seeds(values)
    assert (low + high) / 2 == pytest.approx(2.0)
    assert paired_t_test([value - low for value in values]) == pytest.approx(0.05)
    assert paired_t_test([value - high for value in values]) == pytest.approx(0.05)
    assert interval_over_seeds([1.0]) is None


REFERENCE = [f"the {thing} is on the small table in room {n}" for n, thing in enumerate(["cat", "dog", "cup"] * 8)]
BASELINE = [line.replace("small", "little") if n % 2 else line for n, line in enumerate(REFERENCE)]
SYSTEM = [line.replace("on the", "upon a") if n % 12 == 0 else line for n, line in enumerate(REFERENCE)]


def test_one_seed_over_seeds_is_the_paired_bootstrap() -> None:
    row = compare_systems({"a": BASELINE, "b": SYSTEM}, [REFERENCE], ["bleu"], 300, 1)["b"]["bleu"]
    difference, p_value = bootstrap_over_seeds([SYSTEM], [BASELINE], [REFERENCE], samples=300)
    assert difference == pytest.approx(row.difference)
    assert p_value == pytest.approx(row.p_bootstrap)


def test_over_seeds_the_differences_are_averaged() -> None:
    difference, p_value = bootstrap_over_seeds([SYSTEM, BASELINE], [BASELINE, SYSTEM], [REFERENCE], samples=100)
    assert (difference, p_value) == (0, 1)
    twice, p_twice = bootstrap_over_seeds([SYSTEM] * 2, [BASELINE] * 2, [REFERENCE], samples=100)
    once, p_once = bootstrap_over_seeds([SYSTEM], [BASELINE], [REFERENCE], samples=100)
    assert twice == pytest.approx(once)
    assert p_twice == p_once  # the same sentences again are no further evidence
    with pytest.raises(ValueError, match="as many systems as baselines"):
        bootstrap_over_seeds([SYSTEM], [], [REFERENCE])


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


def test_the_table_of_all_methods(tmp_path):
    records = Records(tmp_path)
    for seed, ours, theirs in ((1, 21.0, 20.0), (2, 22.0, 20.0), (3, 23.0, 20.0)):
        records.keep("embedded", {"run": "em_routing", "seed": seed, **bleu(ours)})
        records.keep("embedded", {"run": "plain", "seed": seed, **bleu(theirs)})
    planned = {"Layers: EM routing": Gains([0.5, 0.6], 2, p=1.0), "Another": Gains([-1.0, -1.1], 2, p=0.06)}
    table = effects_table({"embedded": embedded_gains(records), "planned": planned})
    # t = 4.3027 for two degrees of freedom: 2 +- 4.3027 / sqrt(3)
    ours = "within 4.5 BLEU of nothing: +2.00 [-0.48, +4.48], n = 3"
    assert (
        f"| Layers: EM routing | +1.50 | {ours} | within 1.2 BLEU of nothing: +0.55 [-0.09, +1.19], n = 2 |" in table
    )
    assert "| Another |  |  | hurts, but not after correction: -1.05 [-1.69, -0.41], n = 2 |" in table


def keep(records, run, seed, bleu):
    records.keep("replication", {"run": run, "seed": seed, "scores": {"bleu": {"score": bleu}}})


@pytest.mark.parametrize(
    ("name", "seeds", "averaged"),
    [("replication", 4, 5), ("from_plain", 3, 3), ("starts", 3, 5), ("recurrent", 3, 5), ("eight_seeds", 8, 3)],
)
def test_plans(name, seeds, averaged):
    plan = PLANS[name]
    assert 1 not in plan.seeds, "seed 1 chose the rows"
    assert len(set(plan.seeds)) == seeds
    assert set(plan.runs) <= set(RUNS)
    for run in plan.runs:
        changes = {field: json.loads(value) for field, value in plan.changes.items()}
        recipe = load_recipe(f"multi30k/{RUNS[run].recipe}", changes)
        assert recipe.training["average_last"] == averaged
        assert recipe.training["save_steps"] == 462, "an epoch"
        assert recipe.training["eval_strategy"] == "no"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--seeds 2 7", r"replication has \[2, 3, 4, 5\]; got \[2, 7\]"),
        ("--runs linear em_routing", r"replication has \['plain', 'linear', .*\]; got \['linear', 'em_routing'\]"),
    ],
)
def test_only_what_is_planned_is_trained(monkeypatch, option, message):
    monkeypatch.setattr("sys.argv", ["lab.replication", *option.split()])
    with pytest.raises(SystemExit, match=message):
        main()


def test_a_shared_baseline_is_the_same_training():
    for plan in PLANS.values():
        if plan.shares:
            other = PLANS[plan.shares]
            assert (plan.changes, plan.baseline) == (other.changes, other.baseline)
            assert set(plan.seeds) <= set(other.seeds)


def test_rows_of_a_plan_share_their_start():
    runs = [RUNS[name] for plan in ("from_plain", "eight_seeds") for name in PLANS[plan].runs]
    assert {run.init_from for run in runs} == {"plain", "plain_widened"}, "lab.widening makes it of the plain model"
    assert all(run.training == runs[0].training for run in runs)


def test_the_control_of_eight_seeds_has_as_many_parameters_as_em_routing():
    changes = {field: json.loads(value) for field, value in PLANS["eight_seeds"].changes.items()}
    config = {"vocab_size": 8000, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    sizes = []
    for name in ("em_routing_further", "plain_widened_further"):
        fields = load_recipe(f"multi30k/{RUNS[name].recipe}", changes).model | RUNS[name].model
        with torch.device("meta"):
            model = AutoModelForSeq2SeqLM.from_config(build_config(fields, config))
        sizes.append(sum(weights.numel() for weights in model.parameters()))
    assert sizes[1] / sizes[0] == pytest.approx(1, abs=0.0005)


def test_the_table_answers_once_all_seeds_are_there(tmp_path):
    records, seeds = Records(tmp_path), PLANS["replication"].seeds
    assert table(records, "replication") == ""
    for seed in seeds[:3]:
        keep(records, "plain", seed, 30.0)
        keep(records, "linear", seed, 30.5 + 0.1 * seed)
    for run in ("plain", "linear"):
        keep(records, run, 1, 30.0)
    assert "3 of 4 seeds are trained" in table(records, "replication"), "seed 1 is not of the plan"
    assert effects(records) == {}
    keep(records, "plain", seeds[3], 30.0)
    keep(records, "linear", seeds[3], 31.0)
    assert effects(records)[FROM_THE_START].keys() == {"Layers: linear combination (no routing)"}
    assert "| +0.85 [+0.64, +1.06], n = 4 | 0.003 |" in table(records, "replication")


def test_all_rows_of_a_plan_count_in_the_correction(tmp_path):
    records = Records(tmp_path)
    for seed in PLANS["replication"].seeds:
        keep(records, "plain", seed, 30.0)
        keep(records, "linear", seed, 30.0 + 0.1 * seed)
    (of,) = gains(records, "replication").values()
    assert of.p == pytest.approx(3 * paired_t_test(of.values)), "two more rows are planned"
    keep(records, "head_em_lower", 2, 30.0)
    assert [one.p for one in gains(records, "replication").values()] == [of.p, None]
