"""Runs over seeds: spreads, tests, intervals, the table of differences, and the replication's plan."""

import json
import math

import pytest

from hf_capsule_mt.evaluation.significance import compare_systems
from hf_capsule_mt.training import load_recipe
from lab.over_seeds import (
    bootstrap_over_seeds,
    interval_over_seeds,
    paired_t_test,
    student_quantile,
    student_two_sided,
)
from lab.paper_tables import RUNS
from lab.replication import PLANS


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
