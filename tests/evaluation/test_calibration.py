"""Calibration curves."""

import numpy as np
import pytest

from hf_capsule_mt.evaluation.calibration import fit_sentences, fit_words, read_curve


def test_probabilities_come_back():
    chance = np.random.default_rng(1)
    evidence = chance.normal(0, 4, 20_000)
    truth = 1 / (1 + np.exp(-evidence - 1))
    curve = fit_words(evidence, chance.random(20_000) < truth)
    assert np.abs(read_curve(curve, evidence) - truth).mean() < 0.02
    places, values = zip(*curve, strict=True)
    assert list(places) == sorted(set(places))
    assert list(values) == sorted(values)


def test_what_does_not_rise_is_pooled():
    curve = fit_words([1, 2, 3, 4], [True, False, True, True])
    assert curve == [[1.5, 0.5], [3.5, 1.0]]
    assert fit_words([1.0] * 50, [n % 2 == 0 for n in range(50)]) == [[1.0, 0.5]]
    with pytest.raises(ValueError, match="at least 2 values each, got 1, 1"):
        fit_words([1.0], [True])


def test_the_mean_score_of_each_group_is_its_true_share():
    # the mean probability lies between the truth and its average, with noise, as that of a weak model does
    chance = np.random.default_rng(1)
    groups = np.repeat([0, 1, 2, 0.5], 500)
    shares = np.repeat([1.0, 0.85, 0.7, 0.5], 500)
    means = np.clip(0.5 + 0.4 * (shares - 0.3) + chance.normal(0, 0.06, 2000), 0, 1)
    curve = fit_sentences(means, shares, groups)
    for share in (1.0, 0.85, 0.7, 0.5):
        assert read_curve(curve, means[shares == share]).mean() == pytest.approx(share, abs=0.03)
    assert curve[0] == [0, 0]
    assert [x for x, _ in curve] == sorted({x for x, _ in curve})
