"""Cleaning drops what it is told to, says why, and does it the same way every time."""

import pytest
from datasets import Dataset

from hf_capsule_mt.data import Cleaning, clean

PAIRS = [
    ("ein Hund", "a dog"),
    ("", "nothing"),
    ("same", "same"),
    ("a b c d e f", "x"),
    ("ein Hund", "a dog"),
    ("one two three four five six seven", "eins zwei drei vier fünf sechs sieben"),
    ("a", "bc"),
    ("ab", "c"),
]


def dataset():
    return Dataset.from_dict({"translation": [{"de": german, "en": english} for german, english in PAIRS]})


def test_every_rule_and_the_report():
    rules = Cleaning(drop_empty=True, drop_identical=True, max_words=6, max_ratio=3, drop_duplicates=True)
    kept, report = clean(dataset(), rules, "de", "en")
    assert [tuple(pair.values()) for pair in kept["translation"]] == [PAIRS[0], PAIRS[6], PAIRS[7]]
    assert report.read == 8
    assert report.kept == 3
    assert report.dropped == {
        "with an empty side": 1,
        "with identical sides": 1,
        "with a ratio of lengths above 3": 1,
        "seen before": 1,
        "with more than 6 words": 1,
    }
    assert report.first["seen before"] == 5
    assert "kept 3 of 8 pairs; dropped 1 with an empty side (first: pair 2)" in str(report)


def test_a_stream_is_cleaned_the_same_way():
    rules = Cleaning(min_words=1, max_characters=8)
    kept, report = clean(dataset(), rules, "de", "en")
    streamed, streamed_report = clean(dataset().to_iterable_dataset(), rules, "de", "en")
    assert list(streamed) == list(kept)
    assert streamed_report == report
    assert report.dropped == {
        "with fewer than 1 words": 1,
        "with more than 8 characters": 2,
    }
    with pytest.raises(ValueError, match="`drop_duplicates` must hold all pairs in memory"):
        clean(dataset().to_iterable_dataset(), Cleaning(drop_duplicates=True), "de", "en")


def test_no_rule_drops_nothing():
    kept, report = clean(dataset(), Cleaning(), "de", "en")
    assert len(kept) == report.kept == 8


def test_unknown_rules():
    with pytest.raises(ValueError, match=r"no such cleaning: \['max_length'\]"):
        Cleaning.from_settings({"max_length": 3})
