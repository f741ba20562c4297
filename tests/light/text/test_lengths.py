"""How long a translation should be, and how complete it is by that."""

import pytest

from capsule_mt.text.lengths import ExpectedLength, completeness


def test_a_length_by_hand():
    length = ExpectedLength.of_calibration({"start": 2, "slope": 0.5, "more": {"-3": "damen und", "4": "zug"}})
    assert length.of("Damen und Zug!") == 2 + 0.5 * 14 - 3 - 3 + 4
    assert length.of("und und und") == 2
    assert length.shortness("Zug", "abc") == 1 - 3 / 7.5
    assert length.shortness("Zug", "a longer one") == 0
    assert ExpectedLength().shortness("abcd", "abc") == 0.25


def test_completeness_by_hand():
    assert completeness(0.8, 0.9, 0.0) == pytest.approx(0.8)
    assert completeness(0.8, 0.1, 1.5) == pytest.approx(1 - (0.2 + 0.15) / 2.5)
    assert (completeness(1.0, 0.0, 2.0), completeness(0.0, 1.0, 2.0)) == (1, 0)
