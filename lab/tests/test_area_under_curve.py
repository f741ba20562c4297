"""Areas under ROC curves."""

from lab.area_under_curve import area_under_curve


def test_area_under_curve_by_hand() -> None:
    # of the four pairs (labelled, not labelled) three have the labelled one on top
    assert area_under_curve([1, 2, 3, 4], [False, True, False, True])["auc"] == 0.75
    assert area_under_curve([0, 2, 2, 3], [False, True, False, True])["auc"] == (1 + 0.5 + 1 + 1) / 4
    perfect = area_under_curve([0.0, 1.0, 2.0, 3.0], [False, False, True, True])
    assert perfect == {"auc": 1, "low": 1, "high": 1, "positives": 2, "negatives": 2}
