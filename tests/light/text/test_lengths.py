"""How long a translation should be."""

import pytest

from capsule_mt.text.lengths import ExpectedLength


def test_a_length_by_hand():
    length = ExpectedLength.of_calibration({"start": 2, "slope": 0.5, "more": {"-3": "damen und", "4": "zug"}})
    assert length.of("Damen und Zug!") == 2 + 0.5 * 14 - 3 - 3 + 4
    assert length.of("und und und") == 2
    assert length.shortness("Zug", "a longer one") == 0
    assert length.shortness("Zug", "abc") == pytest.approx((1 - 3 / 7.5) * 7.5 / 40)
    assert ExpectedLength().shortness("a" * 80, "a" * 60) == 0.25
