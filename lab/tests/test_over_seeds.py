"""Runs over seeds: tests and intervals, alone and by the spread of a plan, against numbers by hand."""

import math

import pytest

from lab.over_seeds import paired, spread_of, student_quantile, student_two_sided


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
    assert paired([1.0, 3.0]).p == pytest.approx(1 - 2 / math.pi * math.atan(2))
    # three seeds: mean 2, deviation 1, t = 2 sqrt(3); p = 1 - t / sqrt(2 + t^2)
    assert paired([1.0, 2.0, 3.0]).p == pytest.approx(1 - math.sqrt(12 / 14))
    assert paired([-3.0, -1.0, -2.0]).p == pytest.approx(paired([1.0, 2.0, 3.0]).p)
    assert paired([0.5, 0.5]).p == 0.0
    assert paired([0.0, 0.0, 0.0]).p == 1.0
    assert paired([1.0]) is None


def test_an_interval_touches_zero_where_p_is_five_percent():
    values = [1.0, 2.0, 3.0]
    mean, low, high, *_ = paired(values)
    assert (mean, low, high) == pytest.approx((2.0, -0.484, 4.484), abs=5e-4)
    assert paired([value - low for value in values]).p == pytest.approx(0.05)
    assert paired([value - high for value in values]).p == pytest.approx(0.05)


# Means of arms 1, 3, 5, of seeds 2, 4, of all 3. Rest: 0, 0; -0.5, 0.5; 0.5, -0.5. Its squares sum to 1, 2 degrees.
ARMS = {"plain": {2: 0.0, 3: 2.0}, "linear": {2: 1.5, 3: 4.5}, "em": {2: 4.5, 3: 5.5}}


def test_blocks_by_hand():
    estimate = spread_of("blocks", ARMS)
    assert (estimate.kind, estimate.degrees, estimate.deviation) == ("blocks", 2, pytest.approx(math.sqrt(0.5)))
    # error = sqrt(0.5) sqrt(2 / 2); t = 4 / sqrt(0.5), and with two degrees p = 1 - t / sqrt(2 + t^2)
    mean, low, high, p, half_90 = estimate.difference("em", "plain")
    assert half_90 == pytest.approx(2.91999 * math.sqrt(0.5), rel=1e-5)
    assert (mean, p) == (pytest.approx(4.0), pytest.approx(1 - math.sqrt(32 / 34)))
    assert (high - low) / 2 == pytest.approx(4.30265 * math.sqrt(0.5), rel=1e-5)
    assert (high + low) / 2 == pytest.approx(4.0)
    assert estimate.difference("em", "another") is None


def test_blocks_with_an_empty_cell_by_hand():
    # "em" has one score, so it fits. Rest of the others: 1/4, -1/4; -1/4, 1/4. 5 scores, 3 arms, 2 seeds: one degree.
    estimate = spread_of("blocks", {"plain": {2: 0.0, 3: 2.0}, "linear": {2: 1.0, 3: 4.0}, "em": {2: 5.0}})
    assert (estimate.degrees, estimate.deviation) == (1, pytest.approx(0.5))
    assert estimate.difference("linear", "plain").mean == pytest.approx(1.5)
    # em - (3 plain2 + linear2 + plain3 - linear3) / 4, of variance 1 + 12 / 16; with one degree p = 1 - 2 / pi atan(t)
    em = estimate.difference("em", "plain")
    assert (em.mean, em.p) == pytest.approx((5.25, 1 - 2 / math.pi * math.atan(5.25 / (0.5 * math.sqrt(1.75)))))
    apart = spread_of("blocks", {"plain": {2: 0.0, 3: 2.0}, "linear": {2: 1.0, 3: 4.0}, "em": {4: 5.0}})
    assert apart.difference("em", "plain") is None


def test_blocks_of_two_arms_are_the_paired_test():
    ours, theirs = {1: 2.0, 2: 5.0, 3: 3.0}, {1: 1.0, 2: 3.0, 3: 3.5}
    values = [ours[seed] - theirs[seed] for seed in ours]
    assert spread_of("blocks", {"ours": ours, "theirs": theirs}).difference("ours", "theirs") == pytest.approx(
        paired(values)
    )


def test_blocks_leave_out_an_arm_that_varies_more():
    wild = {2: 9.0, 3: 1.0}
    assert spread_of("blocks", ARMS | {"another": {2: 1.0, 3: 3.5}, "wild": wild}) == spread_of(
        "blocks", ARMS | {"another": {2: 1.0, 3: 3.5}}
    )


def test_an_arm_of_one_score_makes_no_other_unstable():
    arms = {"plain": dict(enumerate([1.0, 3.0, 2.0, 5.0])), "em": dict(enumerate([4.0, 3.0, 5.0, 5.5]))}
    alone = spread_of("blocks", arms)
    more = spread_of("blocks", arms | {name: {0: 2.0} for name in ("linear", "dense", "grn")})
    assert (more.deviation, more.degrees) == (pytest.approx(alone.deviation), alone.degrees)


def test_pooled_by_hand():
    # Squares within arms: 1 + 1 = 2 with one degree, 4 + 1 + 9 = 14 with two: variance 16 / 3
    estimate = spread_of("pooled", {"plain": {2: 1.0, 3: 3.0}, "em": {2: 4.0, 3: 5.0, 4: 9.0}})
    assert (estimate.kind, estimate.degrees, estimate.deviation) == ("pooled", 3, pytest.approx(math.sqrt(16 / 3)))
    mean, low, high, *_ = estimate.difference("em", "plain")
    assert mean == pytest.approx(4.0)
    assert (high - low) / 2 == pytest.approx(3.18245 * math.sqrt(16 / 3 * (1 / 2 + 1 / 3)), rel=1e-5)
