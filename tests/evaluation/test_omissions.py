"""References from which known words were dropped, and calibration curves."""

import numpy as np
import pytest

from hf_capsule_mt.evaluation.calibration import fit_sentences, fit_words, read_curve
from hf_capsule_mt.evaluation.omissions import AMOUNTS, drop_words, function_words

SOURCE = "Der alte Mann kauft einen Hut."
REFERENCE = "The old man buys a hat."
# Der-The alte-old Mann-man kauft-buys einen-a Hut-hat .-.
LINKS = frozenset((n, n) for n in range(7))


def test_every_amount_is_dropped():
    found = drop_words([SOURCE], [REFERENCE], [LINKS])
    assert [example.amount for example in found] == list(AMOUNTS)
    whole, one, two, half = found
    assert whole.translation == REFERENCE
    assert whole.translated_share == 1
    assert [sum(example.is_omitted.values()) for example in (one, two, half)] == [1, 2, 3]
    assert half.translated_share == 0.5
    pairs = dict(zip(SOURCE[:-1].split(), REFERENCE[:-1].split(), strict=True))
    for example in found:
        assert " ." not in example.translation
        for (start, end), is_omitted in example.is_omitted.items():
            assert (pairs[SOURCE[start:end]] in example.translation[:-1].split()) != is_omitted


def test_words_that_share_a_translation_go_together():
    # "kauft ... ein" is "buys": both are linked to it
    links = frozenset({(0, 0), (1, 1), (1, 2), (2, 1), (3, 3)})
    for example in drop_words(["er kauft ein viel"], ["he buys up much"], [links]):
        both = example.is_omitted[(3, 8)], example.is_omitted[(9, 12)]
        assert ("buys" in example.translation.split()) == (not any(both))
        assert both != (True, False)  # "buys up" is gone, so "ein" has no translation left


def test_short_sentences_are_left_out_and_function_words_do_not_count():
    assert drop_words(["Hut kaufen"], ["buy hat"], [frozenset({(0, 1), (1, 0)})]) == []
    text = [f"the {a}{b} {b}{a}a {b}{b}{a}b" for a in "cdefgh" for b in "jklmnop"]
    assert function_words(text) == {"the"}
    links = [frozenset((n, n) for n in range(4))] * len(text)
    assert all((0, 3) not in example.is_omitted for example in drop_words(text, text, links))


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
