"""Alignments made by hand: their links, their words and the error rate."""

import pytest

from hf_capsule_mt.evaluation.words import split_words
from lab.gold_links import alignment_error_rate, expand_french, read_gold_links


def test_error_rate_by_hand() -> None:
    found, sure = [frozenset({(0, 0), (1, 1), (2, 2)})], [frozenset({(0, 0)})]
    possible = [frozenset({(0, 0), (1, 1)})]
    assert alignment_error_rate(found, sure, possible) == pytest.approx(1 - (1 + 2) / (3 + 1))
    assert alignment_error_rate(sure, sure, sure) == 0
    with pytest.raises(ValueError, match="at least one link"):
        alignment_error_rate([frozenset()], [frozenset()], [frozenset()])


def test_gold_links() -> None:
    sure, every = read_gold_links("1-1 2p3 10-4")
    assert sure == {(0, 0), (9, 3)}
    assert every == {(0, 0), (1, 2), (9, 3)}
    with pytest.raises(ValueError, match="links such as 1-1 or 2p3"):
        read_gold_links("1-1 2:3")


def test_french_is_written_out() -> None:
    assert expand_french(split_words("qu\u2019il va au lac")) == ["que", "il", "va", "à", "le", "lac"]
