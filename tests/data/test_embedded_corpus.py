"""The embedded corpus: its parts are disjoint, and the same whatever the size of the others."""

import pytest

from hf_capsule_mt.data import embedded_corpus


def test_parts_are_disjoint():
    small, large = embedded_corpus(50, 20, 30), embedded_corpus(80, 20, 30)
    assert {name: len(part) for name, part in small.items()} == {"train": 50, "validation": 20, "test": 30}
    for name in ("validation", "test"):
        assert small[name]["translation"] == large[name]["translation"]
    assert small["train"]["translation"] == large["train"]["translation"][:50]
    sides = [pair["en"] for part in large.values() for pair in part["translation"]]
    assert len(set(sides)) == len(sides)


def test_a_corpus_that_is_not_large_enough():
    assert len(embedded_corpus(20_000, 500, 2_000)["train"]) == 20_000
    for size in (-1, 2.5, "10"):
        with pytest.raises(ValueError, match=f"`train` must be a whole number of at least 0, got {size!r}"):
            embedded_corpus(train=size)
    with pytest.raises(
        ValueError, match="22500 sentence pairs in all, got 500 for validation, 2000 for test, 20001 for"
    ):
        embedded_corpus(20_001, 500, 2_000)
