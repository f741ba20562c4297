"""How complete a translation is, by hand."""

import pytest

from capsule_mt.coverage.completeness import completeness, gap_of


def test_the_least_attended_words_in_a_row():
    half, none, all_of_it = 0.5, 0.0, 1.0  # doubts of 0, 6 and -4
    assert gap_of([half] * 5) == pytest.approx(0.4)
    assert gap_of([none, all_of_it, all_of_it, half, half, none]) == pytest.approx((6 / 3 + 4) / 10)
    assert gap_of([none, half]) == pytest.approx((6 / 2 + 4) / 10)
    assert gap_of([]) == 0


def test_completeness_by_hand():
    assert completeness(0.8, 0.1, 0.4, 0.75) == pytest.approx(1 - (0.2 + 0.075 + 0.1) / 2)
    assert (completeness(1.0, 0.0, 0.0, 2.0), completeness(0.0, 1.0, 1.0, 2.0)) == (1, 0)
