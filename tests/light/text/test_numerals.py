"""Numbers with grouping signs of other languages: what the model reads."""

import string

import pytest

from capsule_mt.text.normal import Vocabulary
from capsule_mt.text.numerals import number_forms, with_copied_numbers, with_grouping, with_target_signs
from capsule_mt.text.segments import Segmenter
from capsule_mt.web.language import numbers_of
from tests.fixtures.vectors import vectors
from tests.light.text.fakes import CharacterTokenizer

TOKENIZER = CharacterTokenizer(string.printable)
NUMBERS = vectors("numbers")


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


@pytest.mark.parametrize("case", NUMBERS["cases"], ids=repr)
def test_numbers_that_are_kept(case):
    forms = number_forms(*case["languages"].split("-"))
    read = case["text"] if forms is None else with_target_signs(case["text"], forms, Vocabulary(TOKENIZER))
    assert read == case["read"]


@pytest.mark.parametrize("case", NUMBERS["translations"], ids=repr)
def test_numbers_that_a_model_copies(case):
    forms = number_forms(*case["languages"].split("-"))
    written = case["text"] if forms is None else with_copied_numbers(case["text"], case["source"], forms)
    assert written == case["written"]


def test_the_forms_in_the_vectors_are_current():
    assert {pair: numbers_of(*pair.split("-")) for pair in NUMBERS["forms"]} == {
        pair: forms and {**forms, "signs": tuple(forms["signs"]), "target_signs": tuple(forms["target_signs"])}
        for pair, forms in NUMBERS["forms"].items()
    }


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
        assert [part for part, _ in piece.source.parts if getattr(part, "kind", "") == "numerals"] == [read[7:15]]
