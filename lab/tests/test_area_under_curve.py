"""Areas under curves and joint ranks, by hand."""

import pytest

from lab.area_under_curve import area_under_curve, auc_markdown, auc_table, ranks_together


def test_ranks_together_by_hand() -> None:
    assert ranks_together([0.1, 9.0, 0.1, 5.0]) == [1.5, 4, 1.5, 3]
    assert ranks_together([0.1, 9.0, 0.1, 5.0], [400, 100, 300, 200]) == [5.5, 5, 4.5, 5]


def test_area_under_curve_by_hand() -> None:
    # of the four pairs (labelled, not labelled) three have the labelled one on top
    assert area_under_curve([1, 2, 3, 4], [False, True, False, True]).auc == 0.75
    assert area_under_curve([1, 1], [False, True]).auc == 0.5
    assert area_under_curve([0, 2, 2, 3], [False, True, False, True]).auc == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    perfect = area_under_curve([0.0, 1.0, 2.0, 3.0], [False, False, True, True])
    assert (perfect.auc, perfect.low, perfect.high) == (1, 1, 1)
    assert (perfect.positives, perfect.negatives) == (2, 2)


def test_area_under_curve_has_an_interval_and_a_seed() -> None:
    scores = [((n * 37) % 101) + (10 if n % 3 == 0 else 0) for n in range(200)]
    labels = [n % 3 == 0 for n in range(200)]
    area = area_under_curve(scores, labels, samples=200)
    assert area.low < area.auc < area.high
    assert area == area_under_curve(scores, labels, samples=200)
    with pytest.raises(ValueError, match="must have both marked and unmarked"):
        area_under_curve([1, 2], [True, True])
    with pytest.raises(ValueError, match="got NaN"):
        area_under_curve([1, float("nan")], [True, False])
    with pytest.raises(ValueError, match="as long as each other"):
        area_under_curve([1, 2, 3], [True, False])


def test_table() -> None:
    table = auc_table({"a": [1, 2, 3], "b": [3, 2, 1]}, {"bad": [False, False, True]}, samples=10)
    lines = auc_markdown(table).splitlines()
    assert lines[0] == "| measure | bad |"
    assert lines[2].startswith("| a | **1.000** (")
    assert lines[3].startswith("| b | 0.000 (")
