"""Scores by source length."""

import pytest

from hf_capsule_mt.evaluation.length_buckets import score_by_length
from hf_capsule_mt.evaluation.metrics import score_corpus

SOURCES = ["a b", "a b c", "a b c d", "a b c d e f g"]
REFERENCE = ["das ist ein Test", "der Mann kauft den Hut", "wir gehen jetzt nach Hause", "es ist nicht so gut hier"]
HYPOTHESES = ["das ist ein Test", "der Mann kauft den Hut", "wir gehen jetzt nach", "es ist so gut"]


def test_every_sentence_is_in_one_bucket_and_edges_belong_to_the_lower():
    buckets = score_by_length(SOURCES, HYPOTHESES, [REFERENCE], edges=[3, 5, 6])
    assert [bucket.label for bucket in buckets] == ["0-3", "4-5", "6-6", "7+"]
    assert [bucket.sentences for bucket in buckets] == [2, 1, 0, 1]
    assert buckets[0].score == pytest.approx(100)
    assert buckets[1].score == pytest.approx(score_corpus(HYPOTHESES[2:3], [REFERENCE[2:3]], ["bleu"])["bleu"].score)
    assert (buckets[1].hypothesis_words, buckets[1].reference_words) == (4, 5)
    assert buckets[2].score is None
    assert buckets[3].as_dict()["label"] == "7+"


def test_bad_edges_and_lengths_are_refused():
    with pytest.raises(ValueError, match=r"`edges` must be positive and rise, got \[5, 3\]"):
        score_by_length(SOURCES, HYPOTHESES, [REFERENCE], edges=[5, 3])
    with pytest.raises(ValueError, match="`sources` must have a line for each of the 4 hypotheses"):
        score_by_length(SOURCES[:2], HYPOTHESES, [REFERENCE])
