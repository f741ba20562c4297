"""HTML entities in plain text: what the model reads, and the way back."""

import string

import pytest

from capsule_mt import Translator
from capsule_mt.coverage.checks import checks_of
from capsule_mt.text.casing import in_sentence_case
from capsule_mt.text.entities import with_entities, without_entities
from capsule_mt.text.keeping import masked
from capsule_mt.text.normal import Vocabulary
from capsule_mt.text.sentences import Span
from tests.light.text.fakes import CharacterTokenizer
from tests.light.text.test_casing import CHECKPOINTS

VOCABULARY = Vocabulary(CharacterTokenizer([*string.printable, "\xe1", "\xe9", "\xf3"]))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("10&nbsp;users", "10 users"),
        ("Terms &amp; Conditions", "Terms & Conditions"),
        ("don&#39;t &quot;go&quot; &#x27;now&#x27;", "don't \"go\" 'now'"),
        ("caf&eacute; &mdash; &hellip;", "caf\xe9 - ..."),
        ("the end&mdash;or not, a&shy;b", "the end - or not, ab"),
        ("5 &lt; 6 &gt; 3", "5 &lt; 6 &gt; 3"),
        ("R&D; AT&T &open &unknown; &#0;", "R&D; AT&T &open &unknown; &#0;"),
        ("&#39;a &oacute;\u0301 &amp;amp;", "'a \xf3\u0301 &amp;"),
    ],
)
def test_the_model_reads_characters(text, form):
    normal = VOCABULARY.normal_form(text)
    assert normal.text == form
    assert normal.source_span(Span(0, len(form))) == Span(0, len(text))


def test_a_span_has_the_whole_entity():
    normal = VOCABULARY.normal_form("10&nbsp;users, don&#39;t")
    assert normal.source_text(Span(0, 8)) == "10&nbsp;users"
    assert normal.source_text(Span(10, 15)) == "don&#39;t"
    assert normal.offset(2) == normal.offset(1) + 1


def test_items_are_not_read():
    source = masked("See https://a.de/?a=1&amp;b=2 &amp; &#39;x&#39; 39", ["numbers"], True, VOCABULARY)
    assert source.text == "See https://a.de/?a=1&amp;b=2 & 'x' 39"
    assert [part for part, _ in source.parts if type(part) is not str] == ["https://a.de/?a=1&amp;b=2", "39"]


@pytest.mark.parametrize(
    ("translation", "source", "written"),
    [
        ("Tom & Mary", "Tom &amp; Maria", "Tom &amp; Mary"),
        ("Tom & Mary", "Tom &amp; Maria & Ana", "Tom & Mary"),
        ("Tom & Mary", "Tom and Mary", "Tom & Mary"),
        ("a &lt; b & c", "a &lt; b &amp; c", "a &lt; b &amp; c"),
        ("don't", "n&#39;a caf&eacute;", "don&#39;t"),
        ("caf\xe9", "caf&eacute;", "caf&eacute;"),
        ("10 users of 10 users", "10&nbsp;usu&aacute;rios", "10&nbsp;users of 10 users"),
        ("110 users", "10&nbsp;usu&aacute;rios", "110 users"),
    ],
)
def test_translations_get_entities_back(translation, source, written):
    assert with_entities(translation, source) == written


def test_case_and_checks_leave_entities_alone():
    text = "o rio est&aacute; na &aacute;gua fria"
    assert in_sentence_case(text, VOCABULARY).text == f"O{text[1:]}"
    assert without_entities(text) == "o rio est\xe1 na \xe1gua fria"
    assert checks_of("I don&#39;t know the 10&nbsp;users.", "Ich kenne die 10 Nutzer nicht.", "en", "de") == ()


def test_a_released_model_reads_the_same():
    translator = Translator.from_pretrained(CHECKPOINTS / "capsule-marian-de-en", int8=True)
    plain = translator("Der Mann schl\xe4ft heute nicht.")
    assert translator("Der&nbsp;Mann schl&auml;ft heute nicht.").token_ids == plain.token_ids
