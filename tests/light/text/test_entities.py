"""HTML entities in plain text: what the model reads, and the way back."""

import string

import pytest

from capsule_mt import Translator
from capsule_mt.text.casing import in_sentence_case
from capsule_mt.text.entities import with_entities
from capsule_mt.text.keeping import masked
from capsule_mt.text.normal import Vocabulary
from capsule_mt.text.sentences import Span
from tests.fixtures.vectors import vectors
from tests.light.text.fakes import CharacterTokenizer
from tests.light.text.test_casing import CHECKPOINTS

VECTORS = vectors("entities")
VOCABULARY = Vocabulary(CharacterTokenizer([*string.printable, "\xe1", "\xe9", "\xf3"]))


@pytest.mark.parametrize("case", VECTORS["forms"], ids=repr)
def test_the_model_reads_characters(case):
    normal = VOCABULARY.normal_form(case["text"])
    assert normal.text == case["form"]
    assert normal.source_span(Span(0, len(normal.text))) == Span(0, len(case["text"]))
    for part, source in case["back"]:
        start = normal.text.index(part)
        assert normal.source_text(Span(start, start + len(part))) == source


def test_an_offset_in_an_entity():
    normal = VOCABULARY.normal_form("10&nbsp;users, don&#39;t")
    assert normal.offset(2) == normal.offset(1) + 1


def test_items_are_not_read():
    source = masked("See https://a.de/?a=1&amp;b=2 &amp; &#39;x&#39; 39", ["numbers"], True, VOCABULARY)
    assert source.text == "See https://a.de/?a=1&amp;b=2 & 'x' 39"
    assert [part for part, _ in source.parts if type(part) is not str] == ["https://a.de/?a=1&amp;b=2", "39"]


@pytest.mark.parametrize("case", VECTORS["translations"], ids=repr)
def test_translations_get_entities_back(case):
    assert with_entities(case["text"], case["source"]) == case["written"]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=repr)
def test_case_leaves_entities_alone(case):
    assert in_sentence_case(case["text"], VOCABULARY).text == case["read"]


def test_a_released_model_reads_the_same():
    translator = Translator.from_pretrained(CHECKPOINTS / "capsule-marian-de-en", int8=True)
    plain = translator("Der Mann schl\xe4ft heute nicht.")
    assert translator("Der&nbsp;Mann schl&auml;ft heute nicht.").token_ids == plain.token_ids
