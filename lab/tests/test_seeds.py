"""Scores of several seeds, in words."""

from lab.seeds import mean_and_spread, values_if_unstable


def test_mean_and_spread_are_those_of_a_sample():
    assert mean_and_spread([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == "5.00 ± 2.14"  # sqrt(32 / 7)
    assert mean_and_spread([0.25], ".1f") == "0.2"


def test_each_is_named_from_more_than_ten_apart():
    assert values_if_unstable([10.0, 0.0], " ({})") == ""
    assert values_if_unstable([10.1, 0.0, -3.0], ": {}", "+.1f") == ": +10.1 / +0.0 / -3.0"
