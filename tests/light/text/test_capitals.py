"""Texts in capitals, which a model reads in lowercase."""

import pytest

from capsule_mt.text.capitals import with_capitals, without_capitals
from tests.fixtures.vectors import vectors

VECTORS = vectors("capitals")


@pytest.mark.parametrize("case", VECTORS["cases"], ids=repr)
def test_texts_in_capitals(case):
    assert without_capitals(case["text"]) == case["lowercase"]


@pytest.mark.parametrize("case", VECTORS["translations"], ids=repr)
def test_a_translation_in_capitals_has_as_many_letters(case):
    assert with_capitals(case["text"]) == case["capitals"]
    assert len(case["text"]) == len(case["capitals"])
