"""The overlap rate: property 33, and numbers worked out by hand."""

import pytest
import torch

from hf_capsule_mt.analysis.past_future import OverlapRate, mean_overlap_rate, overlap_rate


def scores(*rankings, vocabulary=40):
    """One row for each ranking: its words are the most probable, in this order."""
    rows = torch.zeros(len(rankings), vocabulary)
    for row, ranking in zip(rows, rankings, strict=True):
        for place, word in enumerate(ranking):
            row[word] = 100 - place
    return rows


def test_all_and_none():
    words = [3, 7, 3]
    everything = scores(*[[3, 7]] * 3)
    nothing = scores(*[list(range(10, 40))] * 3)
    assert overlap_rate(everything, everything, words) == (1.0, 1.0)
    assert overlap_rate(nothing, nothing, words) == (0.0, 0.0)
    assert overlap_rate(everything, nothing, words) == (1.0, 0.0)


def test_bags_are_sets_and_the_top_grows():
    words = [1, 2, 1]
    # at t = 1 the five most probable miss word 1, at t = 2 the ten most probable have it and miss word 2
    past = scores(range(10, 40), [*range(10, 19), 1], [1, 2])
    # t = 1: {2, 1} of ten, 2 is missing; t = 2: {1} of five; t = 3 is empty and left out
    future = scores([1, *range(10, 40)], [*range(10, 14), 1], [])
    rate = overlap_rate(past, future, words)
    assert rate.past == pytest.approx((0 + 1 / 2 + 1) / 3)
    assert rate.future == pytest.approx((1 / 2 + 1) / 2)


def test_excluded_words_take_no_place():
    words = [9, 4]
    past = scores([30, 31, 32, 33, 9, 4], [9, 4])
    assert overlap_rate(past, past, words, excluded=[9]).past == 1.0  # the empty bag of t = 1 is left out
    crowded = scores([30, 31, 32, 33, 34, 9], [9, 4])
    assert overlap_rate(crowded, crowded, words).past == pytest.approx(0.5)
    assert overlap_rate(crowded, crowded, words, excluded=[34]).past == 1.0


def test_short_sentences_small_vocabularies_and_means():
    one = overlap_rate(scores([1]), scores([1]), [1])
    assert one == (1.0, None)
    small = scores([0], [1], vocabulary=4)
    assert overlap_rate(small, small, [0, 1]).past == 1.0  # ten of four words
    assert mean_overlap_rate([one, OverlapRate(0.5, 0.25)]) == (0.75, 0.25)
    with pytest.raises(ValueError, match=r"scores of 2 words must be \[2, V\], got \[1, 40\] and \[1, 40\]"):
        overlap_rate(scores([1]), scores([1]), [1, 2])
