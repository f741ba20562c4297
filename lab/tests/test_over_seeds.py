"""Runs over seeds: tests and intervals."""

import math

import pytest

from lab.over_seeds import (
    interval_over_seeds,
    paired_t_test,
    student_quantile,
    student_two_sided,
)


@pytest.mark.parametrize(
    ("degrees", "five_percent", "one_percent"),
    [(1, 12.706, 63.657), (2, 4.303, 9.925), (3, 3.182, 5.841), (4, 2.776, 4.604), (30, 2.042, 2.750)],
)
def test_students_t_matches_printed_tables(degrees, five_percent, one_percent):
    # the tables print three decimals
    assert student_two_sided(five_percent - 5e-4, degrees) > 0.05 > student_two_sided(five_percent + 5e-4, degrees)
    assert student_two_sided(5e-4 - one_percent, degrees) > 0.01 > student_two_sided(-5e-4 - one_percent, degrees)
    assert student_two_sided(0.0, degrees) == 1.0
    assert student_quantile(0.05, degrees) == pytest.approx(five_percent, abs=5e-4)
    assert student_quantile(0.01, degrees) == pytest.approx(one_percent, abs=5e-4)


def test_p_values_computed_by_hand():
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
