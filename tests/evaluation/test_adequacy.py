"""Adequacy: the coverage difference ratio, repetitions, and the area under the curve, by hand."""

import pytest

from hf_capsule_mt.evaluation.adequacy import (
    adequacy_measures,
    area_under_curve,
    auc_markdown,
    auc_table,
    coverage_difference_ratio,
    length_ratio,
    most_repeated_ngram,
    ranks_together,
    repeated_ngrams,
)
from hf_capsule_mt.evaluation.word_alignment import fit_aligner


def covering(*positions):
    return frozenset((position, n) for n, position in enumerate(positions))


def test_coverage_difference_ratio_by_hand():
    assert coverage_difference_ratio([covering(2, 3, 5)], [[covering(1, 2, 3, 4)]]) == 0.5
    assert coverage_difference_ratio([covering(1, 2, 2)], [[covering(1, 1, 2)]]) == 1.0
    # two sentences, two references: ((1/2 + 1) / 2 + 0) / 2
    generated = [covering(0), covering(7)]
    references = [[covering(0, 1), covering(1)], [covering(0), covering(2)]]
    assert coverage_difference_ratio(generated, references) == pytest.approx(0.375)
    # what no reference translates is not asked for
    assert coverage_difference_ratio([covering(0), covering(1)], [[covering(), covering(1)]]) == 1.0
    assert coverage_difference_ratio([covering(0)], [[covering()]]) is None


def test_ranks_together_by_hand():
    assert ranks_together([0.1, 9.0, 0.1, 5.0]) == [1.5, 4, 1.5, 3]
    assert ranks_together([0.1, 9.0, 0.1, 5.0], [400, 100, 300, 200]) == [5.5, 5, 4.5, 5]


def test_repetitions_by_hand():
    words = ["a", "b", "a", "b", "a", "b"]
    assert repeated_ngrams(words, 2) == pytest.approx(1 - 2 / 5)
    assert repeated_ngrams(words, 1) == pytest.approx(1 - 2 / 6)
    assert repeated_ngrams(words[:3], 4) == 0
    assert most_repeated_ngram(words, ["x", "y", "x", "y"]) == 3 - 2
    assert most_repeated_ngram(["a"], ["x"]) == 0
    assert length_ratio(["a"], ["x", "y"]) == 0.5
    assert length_ratio(["a"], []) == 1


def test_area_under_curve_by_hand():
    # of the four pairs (labelled, not labelled) three have the labelled one on top
    assert area_under_curve([1, 2, 3, 4], [False, True, False, True]).auc == 0.75
    assert area_under_curve([1, 1], [False, True]).auc == 0.5
    assert area_under_curve([0, 2, 2, 3], [False, True, False, True]).auc == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    perfect = area_under_curve([0.0, 1.0, 2.0, 3.0], [False, False, True, True])
    assert (perfect.auc, perfect.low, perfect.high) == (1, 1, 1)
    assert (perfect.positives, perfect.negatives) == (2, 2)


def test_area_under_curve_has_an_interval_and_a_seed():
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


def test_measures_see_what_is_wrong_with_a_translation():
    words = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht"]
    others = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    shifts = [(n * 3 + k * 5) % 8 for n in range(40) for k in range(2)]
    text = [(words[a], others[a]) for a in shifts]
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
    of_good, of_short, of_looping, of_made_up = zip(*measures.values(), strict=True)
    named = [dict(zip(measures, values, strict=True)) for values in (of_good, of_short, of_looping, of_made_up)]
    assert named[1]["short in words"] > named[0]["short in words"]
    assert named[1]["uncovered source"] > named[0]["uncovered source"] + 0.4
    assert named[1]["uncovered translation"] < 0.2
    assert named[2]["repeated words"] == pytest.approx(4 / 6)
    assert named[2]["excess bigrams"] == 2
    assert named[3]["uncovered translation"] > 0.6
    # leaving out and making up are told apart
    for name in ("unbalanced coverage", "short and unbalanced"):
        assert named[1][name] > max(named[0][name], named[3][name])
    assert set(adequacy_measures([source], [good])) == {
        "short in words", "short in characters", "repeated words", "excess bigrams",
    }  # fmt: skip
    assert adequacy_measures([source], [""], aligner)["uncovered source"] == [1.0]


def test_table():
    table = auc_table({"a": [1, 2, 3], "b": [3, 2, 1]}, {"bad": [False, False, True]}, samples=10)
    lines = auc_markdown(table).splitlines()
    assert lines[0] == "| measure | bad |"
    assert lines[2].startswith("| a | **1.000** (")
    assert lines[3].startswith("| b | 0.000 (")
