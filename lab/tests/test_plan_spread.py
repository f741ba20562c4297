"""Differences by the spread of a plan, against numbers by hand."""

import math

import pytest

from lab.over_seeds import interval_over_seeds, paired_t_test
from lab.plan_spread import blocks, pooled

# Means of arms 1, 3, 5, of seeds 2, 4, of all 3. Rest: 0, 0; -0.5, 0.5; 0.5, -0.5. Its squares sum to 1, 2 degrees.
ARMS = {"plain": {2: 0.0, 3: 2.0}, "linear": {2: 1.5, 3: 4.5}, "em": {2: 4.5, 3: 5.5}}


def test_blocks_by_hand():
    estimate = blocks(ARMS)
    assert (estimate.kind, estimate.degrees, estimate.deviation) == ("blocks", 2, pytest.approx(math.sqrt(0.5)))
    # error = sqrt(0.5) sqrt(2 / 2); t = 4 / sqrt(0.5), and with two degrees p = 1 - t / sqrt(2 + t^2)
    mean, low, high, p, half_90 = estimate.difference("em", "plain")
    assert half_90 == pytest.approx(2.91999 * math.sqrt(0.5), rel=1e-5)
    assert (mean, p) == (pytest.approx(4.0), pytest.approx(1 - math.sqrt(32 / 34)))
    assert (high - low) / 2 == pytest.approx(4.30265 * math.sqrt(0.5), rel=1e-5)
    assert (high + low) / 2 == pytest.approx(4.0)
    assert estimate.difference("em", "another") is None


def test_blocks_of_two_arms_are_the_paired_test():
    ours, theirs = {1: 2.0, 2: 5.0, 3: 3.0}, {1: 1.0, 2: 3.0, 3: 3.5}
    values = [ours[seed] - theirs[seed] for seed in ours]
    mean, low, high, p, _ = blocks({"ours": ours, "theirs": theirs}).difference("ours", "theirs")
    assert mean == pytest.approx(sum(values) / 3)
    assert (low, high) == pytest.approx(interval_over_seeds(values))
    assert p == pytest.approx(paired_t_test(values))


def test_blocks_leave_out_an_arm_that_varies_more():
    wild = {2: 9.0, 3: 1.0}
    assert blocks(ARMS | {"another": {2: 1.0, 3: 3.5}, "wild": wild}) == blocks(ARMS | {"another": {2: 1.0, 3: 3.5}})


def test_pooled_by_hand():
    # Squares within arms: 1 + 1 = 2 with one degree, 4 + 1 + 9 = 14 with two: variance 16 / 3
    estimate = pooled({"plain": {2: 1.0, 3: 3.0}, "em": {2: 4.0, 3: 5.0, 4: 9.0}})
    assert (estimate.kind, estimate.degrees, estimate.deviation) == ("pooled", 3, pytest.approx(math.sqrt(16 / 3)))
    mean, low, high, *_ = estimate.difference("em", "plain")
    assert mean == pytest.approx(4.0)
    assert (high - low) / 2 == pytest.approx(3.18245 * math.sqrt(16 / 3 * (1 / 2 + 1 / 3)), rel=1e-5)
