"""Adequacy: the coverage difference ratio, and repetitions, by hand; measures without a reference."""

import pytest

from hf_capsule_mt.evaluation.adequacy import (
    adequacy_measures,
    coverage_difference_ratio,
    length_ratio,
    most_repeated_ngram,
    repeated_ngrams,
)
from hf_capsule_mt.evaluation.word_alignment import fit_aligner


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


def test_repetitions_by_hand():
    words = ["a", "b", "a", "b", "a", "b"]
    assert repeated_ngrams(words, 2) == pytest.approx(1 - 2 / 5)
    assert repeated_ngrams(words, 1) == pytest.approx(1 - 2 / 6)
    assert repeated_ngrams(words[:3], 4) == 0
    assert most_repeated_ngram(words, ["x", "y", "x", "y"]) == 3 - 2
    assert most_repeated_ngram(["a"], ["x"]) == 0
    assert length_ratio(["a"], ["x", "y"]) == 0.5
    assert length_ratio(["a"], []) == 1


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
