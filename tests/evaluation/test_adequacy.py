"""What a translation leaves out: coverage measures, known omissions, calibration curves."""

import random

import numpy as np
import pytest

from capsule_mt.coverage.calibration.fitting import fit_sentences, fit_threshold, fit_words, read_curve
from capsule_mt.coverage.calibration.lengths import calibrated, fit_length
from capsule_mt.coverage.calibration.omissions import AMOUNTS, cut_out, drop_words, function_words
from capsule_mt.coverage.calibration.word_alignment import fit_aligner
from capsule_mt.coverage.calibration.words import split_words
from capsule_mt.coverage.lengths import ExpectedLength
from hf_capsule_mt.evaluation.adequacy import (
    adequacy_measures,
    coverage_difference_ratio,
)


def covering(*positions):
    return frozenset((position, n) for n, position in enumerate(positions))


def test_coverage_difference_ratio_by_hand():  # property 32
    assert coverage_difference_ratio([covering(2, 3, 5)], [[covering(1, 2, 3, 4)]]) == 0.5
    assert coverage_difference_ratio([covering(1, 2, 2)], [[covering(1, 1, 2)]]) == 1.0
    # two sentences, two references: ((1/2 + 1) / 2 + 0) / 2
    generated = [covering(0), covering(7)]
    references = [[covering(0, 1), covering(1)], [covering(0), covering(2)]]
    assert coverage_difference_ratio(generated, references) == pytest.approx(0.375)
    # what no reference translates is not asked for
    assert coverage_difference_ratio([covering(0), covering(1)], [[covering(), covering(1)]]) == 1.0
    assert coverage_difference_ratio([covering(0)], [[covering()]]) is None


def test_measures_see_what_is_wrong_with_a_translation():
    words = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht"]
    unrelated = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    shifts = [(n * 3 + k * 5) % 8 for n in range(40) for k in range(2)]
    text = [(words[a], unrelated[a]) for a in shifts]
    lines = [text[n : n + 5] for n in range(0, 75, 3)]
    sources, targets = ([" ".join(pair[side] for pair in line) for line in lines] for side in (0, 1))
    aligner = fit_aligner(sources, targets)
    source = "eins zwei drei vier fünf"
    good, short, looping, made_up = (
        "one two three four five",
        "one two",
        "one two one two one two",
        "eight seven six eight seven",
    )
    measures = adequacy_measures([source] * 4, [good, short, looping, made_up], aligner)
    good_values, short_values, looping_values, made_up_values = zip(*measures.values(), strict=True)
    named = [
        dict(zip(measures, values, strict=True))
        for values in (good_values, short_values, looping_values, made_up_values)
    ]
    assert named[1]["short in words"] > named[0]["short in words"]
    assert named[1]["uncovered source"] > named[0]["uncovered source"] + 0.4
    assert named[1]["uncovered translation"] < 0.2
    assert named[2]["repeated words"] == pytest.approx(4 / 6)
    assert named[3]["uncovered translation"] > 0.6
    assert set(adequacy_measures([source], [good])) == {"short in words", "short in characters", "repeated words"}
    assert adequacy_measures([source], [""], aligner)["uncovered source"] == [1.0]


SOURCE = "Der alte Mann kauft einen Hut."
REFERENCE = "The old man buys a hat."
# Der-The alte-old Mann-man kauft-buys einen-a Hut-hat .-.
LINKS = frozenset((n, n) for n in range(7))


def test_every_amount_is_dropped():
    shortened = drop_words([SOURCE], [REFERENCE], [LINKS], set())
    assert [example.amount for example in shortened] == list(AMOUNTS)
    complete, without_one, without_two, half = shortened
    assert complete.translation == REFERENCE
    assert complete.translated_share == 1
    assert [sum(example.is_omitted.values()) for example in (without_one, without_two, half)] == [1, 2, 3]
    assert half.translated_share == 0.5
    pairs = dict(zip(SOURCE[:-1].split(), REFERENCE[:-1].split(), strict=True))
    for example in shortened:
        assert " ." not in example.translation
        for (start, end), is_omitted in example.is_omitted.items():
            assert (pairs[SOURCE[start:end]] in example.translation[:-1].split()) != is_omitted


def test_short_sentences_are_left_out_and_function_words_do_not_count():
    assert drop_words(["Hut kaufen"], ["buy hat"], [frozenset({(0, 1), (1, 0)})], set()) == []
    text = [f"the {a}{b} {b}{a}a {b}{b}{a}b" for a in "cdefgh" for b in "jklmnop"]
    assert function_words(text) == {"the"}
    links = [frozenset((n, n) for n in range(4))] * len(text)
    assert all((0, 3) not in example.is_omitted for example in drop_words(text, text, links, {"the"}))


def test_a_fitted_curve_gives_the_probabilities_of_its_words():
    chance = np.random.default_rng(1)
    evidence = chance.normal(0, 4, 20_000)
    truth = 1 / (1 + np.exp(-evidence - 1))
    curve = fit_words(evidence, chance.random(20_000) < truth)
    assert np.abs(read_curve(curve, evidence) - truth).mean() < 0.02
    scores, values = zip(*curve, strict=True)
    assert list(scores) == sorted(set(scores))
    assert list(values) == sorted(values)


def test_a_curve_pools_words_whose_shares_do_not_rise():
    curve = fit_words([1, 2, 3, 4], [True, False, True, True])
    assert curve == [[1.5, 0.5], [3.5, 1.0]]
    assert fit_words([1.0] * 50, [n % 2 == 0 for n in range(50)]) == [[1.0, 0.5]]
    with pytest.raises(ValueError, match="at least 2 values each, got 1, 1"):
        fit_words([1.0], [True])


def test_the_threshold_prefers_precision():
    # 0.1: 3 of 4 are missing, F0.5 = 0.71; 0.3: 4 of 8, F0.5 = 0.56; only the lowest are marked
    probabilities = [0.1] * 4 + [0.3] * 4 + [0.9] * 4
    missing = [True] * 3 + [False] + [True] + [False] * 3 + [True] + [False] * 3
    assert fit_threshold(probabilities, [not is_missing for is_missing in missing]) == 0.2
    assert fit_threshold([0.2, 0.4, 0.9], [False, False, True]) == 0.65
    assert fit_threshold([0.2, 0.9], [True, True]) == 0.5
    assert fit_threshold([0.2, 0.2], [False, True]) == 0.5


def test_the_mean_score_of_each_group_is_its_true_share():
    # the mean probability lies between the truth and its average, with noise, as a weak model's does
    chance = np.random.default_rng(1)
    groups = np.repeat([0, 1, 2, 0.5], 500)
    shares = np.repeat([1.0, 0.85, 0.7, 0.5], 500)
    means = np.clip(0.5 + 0.4 * (shares - 0.3) + chance.normal(0, 0.06, 2000), 0, 1)
    noise = chance.uniform(size=2000)
    name, curve = fit_sentences({2.0: noise, 1.0: means}, shares, groups, np.ones(2000))
    assert name == 1.0
    for share in (1.0, 0.85, 0.7, 0.5):
        predicted = read_curve(curve, means[shares == share]).mean()
        assert predicted == pytest.approx(share, abs=0.06)
    assert (curve[0], curve[-1]) == ([0, 0], [1, 1])
    for column in zip(*curve, strict=True):  # better words never lower a score, nor leave it
        assert list(column) == sorted(set(column))


def test_the_words_of_a_source_say_how_long_its_translation_is():
    sources = [" ".join(["abcde", "vwxyz"][(n >> k) % 2] for k in range(n % 3 + 1)) for n in range(4000)]
    targets = [line.replace("abcde", "no").replace("vwxyz", "yes or yes") for line in sources]
    learnt = fit_length([*sources, "", "a"], [*targets, "b", "long " * 9])
    restored = ExpectedLength.of_calibration(calibrated(learnt, sources))
    for length in (learnt, restored):
        lengths = [length.predict(line) for line in ("Abcde abcde", "vwxyz vwxyz", "ggggg ggggg")]
        assert lengths[:2] == pytest.approx([5, 21], abs=1.1)
        assert lengths[0] < lengths[2] < lengths[1]
    with pytest.raises(ValueError, match="none of the 1 pairs"):
        fit_length([""], ["b"])


def test_words_in_a_row_are_cut_out():
    text = "One, two three four: five six seven eight."
    chance = random.Random(2)
    cut = {cut_out(text, 3, chance) for _ in range(60)}
    assert len(cut) == 6  # from each place where three words begin
    assert {"four: five six seven eight.", "One, two three four: five."} <= cut
    assert {sum(map(str.isalnum, split_words(cut_out(text, 0.25, chance)))) for _ in range(20)} == {6}
    assert cut_out("One two three four five six seven.", 3, chance) is None
