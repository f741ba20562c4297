"""HTML entities in plain text: what the model reads, and the way back."""

import string

import pytest

from capsule_mt import Translator
from capsule_mt.text.entities import with_entities
from tests.fixtures.vectors import vectors
from tests.light.text.fakes import CharacterTokenizer, form_of, whole, with_items
from tests.light.text.test_casing import CHECKPOINTS

VECTORS = vectors("entities")
TOKENIZER = CharacterTokenizer([*string.printable, "\xe1", "\xe9", "\xf3"])


@pytest.mark.parametrize("case", VECTORS["forms"], ids=repr)
def test_the_model_reads_characters(case):
    form = form_of(case["text"], TOKENIZER, kinds=(), copies=False)
    assert form.text == case["form"]
    assert form.user_span(0, len(form.text)) == (0, len(case["text"]))
    for part, source in case["back"]:
        start = form.text.index(part)
        assert case["text"][slice(*form.user_span(start, start + len(part)))] == source


def test_items_are_not_read():
    form = form_of("See https://a.de/?a=1&amp;b=2 &amp; &#39;x&#39; 39", TOKENIZER, kinds=("urls", "numbers"))
    assert whole(form).text == "See https://a.de/?a=1&amp;b=2 & 'x' 39"
    assert [edit.back for edit in form.edits if edit.is_item] == ["https://a.de/?a=1&amp;b=2", "39"]


@pytest.mark.parametrize("case", VECTORS["translations"], ids=repr)
def test_translations_get_entities_back(case):
    assert with_entities(case["text"], case["source"]) == case["written"]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=repr)
def test_case_leaves_entities_alone(case):
    assert with_items(form_of(case["text"], TOKENIZER)) == case["read"]


def test_a_released_model_reads_the_same():
    translator = Translator.from_pretrained(CHECKPOINTS / "capsule-marian-de-en", int8=True)
    plain = translator("Der Mann schl\xe4ft heute nicht.")
    assert translator("Der&nbsp;Mann schl&auml;ft heute nicht.").token_ids == plain.token_ids
