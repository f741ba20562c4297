"""Numbers with grouping signs of other languages: what the model reads."""

import string

import pytest

from capsule_mt.text.normal import Vocabulary
from capsule_mt.text.numerals import with_grouping
from capsule_mt.text.segments import Segmenter
from tests.fixtures.vectors import vectors
from tests.light.text.fakes import CharacterTokenizer

TOKENIZER = CharacterTokenizer(string.printable)


@pytest.mark.parametrize("case", vectors("numerals")["cases"], ids=repr)
def test_numbers_of_one_group(case):
    assert with_grouping(case["text"], case["sign"], Vocabulary(TOKENIZER)) == case["read"]


@pytest.mark.parametrize(
    ("language", "keep", "read"),
    [
        ("en", (), "He has 1,400 cows."),
        ("pt", (), "He has 1.400 cows."),
        (None, (), "He has 1'400 cows."),
        ("en", ("numbers",), "He has 1'400 cows."),
    ],
)
def test_the_source_language_decides(language, keep, read):
    (piece,) = Segmenter(TOKENIZER, None, src_lang=language, keep=keep).document("He has 1\u2019400 cows.").pieces
    assert piece.text == read
