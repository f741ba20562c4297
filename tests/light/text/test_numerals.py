"""Numbers with grouping signs of other languages: what the model reads."""

import string

import pytest

from capsule_mt.text.finishing import with_copied_numbers
from capsule_mt.text.segments import Segmenter
from tests.fixtures.vectors import vectors
from tests.light.text.fakes import CharacterTokenizer, form_of, outside_items, whole

TOKENIZER = CharacterTokenizer(string.printable)
NUMBERS = vectors("numbers")


@pytest.mark.parametrize("case", NUMBERS["cases"], ids=repr)
def test_numbers_that_are_kept(case):
    source, target = case["languages"].split("-")
    reading = whole(form_of(case["text"], TOKENIZER, src_lang=source, tgt_lang=target))
    assert "".join(part.written or part.text for part in reading.parts) == case["read"]


@pytest.mark.parametrize("case", NUMBERS["translations"], ids=repr)
def test_numbers_that_a_model_copies(case):
    languages = case["languages"].split("-")
    assert outside_items(with_copied_numbers, case["text"], case["source"], *languages) == case["written"]


@pytest.mark.parametrize(
    ("languages", "keep", "read"),
    [
        (("en", "pt"), (), "He has 1.400,50 of 1,500."),
        (("pt", "pt"), (), "He has 1,400.50 of 1,500."),
        (("en", None), (), "He has 1,400.50 of 1,500."),
        (("en", "pt"), ("numbers",), "He has 1,400.50 of 1,500."),
    ],
)
def test_a_long_number_is_kept_in_the_form_of_the_target_language(languages, keep, read):
    source, target = languages
    segmenter = Segmenter(TOKENIZER, None, src_lang=source, tgt_lang=target, keep=keep)
    (piece,) = segmenter.document("He has 1,400.50 of 1,500.").pieces
    assert piece.text == read
    if not keep:
        assert [part.written for part in piece.parts if part.edit.is_item] == [read[7:15]]
