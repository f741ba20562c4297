"""The quotes of the target language, or those of the source, and the colons of labels."""

import string

import pytest

from capsule_mt.text.finishing import (
    colon_of_label,
    has_french_spaces,
    quotes_of,
    separator_with_quotes,
    with_french_spaces,
    with_quotes,
)
from tests.fixtures.vectors import vectors
from tests.light.decoders import translator
from tests.light.text.fakes import WordTokenizer, outside_items
from tests.light.text.test_offsets import Copying


class PlainTokenizer(WordTokenizer):
    """Knows words of ASCII."""

    def id(self, word):
        return super().id(word) if set(word) <= set(string.printable) else 0


@pytest.mark.parametrize(
    ("text", "language", "translation"),
    [
        ("He said \u201cgood day\u201d to us.", None, "He said \u201cgood day\u201d to us."),
        ("He said \u201cgood day\u201d to us.", "pt", "He said \u201cgood day\u201d to us."),
        ("He said \u201cgood day\u201d to us.", "de", "He said \u201egood day\u201c to us."),
        ("He said \u201cgood day\u201d to us.", "fra_Latn", "He said \xab\xa0good day\xa0\xbb to us."),
        ("He said \u201cgood day\u201d to us.", "sv", "He said \u201dgood day\u201d to us."),
        ("He said \u201cgood day\u201d to us.", "nl", "He said \u201cgood day\u201d to us."),  # Dutch uses two pairs
        ("He said \u201egood day\u201c to us.", "en", "He said \u201cgood day\u201d to us."),
        ("He said \u201egood day\u201c to us.", None, "He said \u201egood day\u201c to us."),
        ('He said "good day" to us.', "de", 'He said "good day" to us.'),
        ('He said \u201cgood" day to us.', "de", 'He said "good" day to us.'),
        ("A 12\u201d pipe and a \u201clarge\u201d one.", "de", "A 12\u201d pipe and a \u201clarge\u201d one."),
        ('One <b title="x">\u201cold\u201d</b> day.', "de", 'One <b title="x">\u201eold\u201c</b> day.'),
        ("(\u201cold\u201d, \u201cnew\u201d)", "de", "(\u201eold\u201c, \u201enew\u201c)"),
        ("\u201cGood day to us.\u201d", "de", "\u201eGood day to us.\u201c"),
        (
            "\u201cGood day to us!\u201d \u201cYes, it is.\u201d",
            "de",
            "\u201eGood day to us!\u201c \u201eYes, it is.\u201c",
        ),
        ("- \u201cGood day to us\u2026\u201d", "fr", "- \xab\xa0Good day to us\u2026\xa0\xbb"),
        ("(\u201cGood day to us\u201d)", "ru", "(\xabGood day to us\xbb)"),
    ],
)
def test_quotes(text, language, translation):
    model = translator(Copying(), PlainTokenizer())
    translated = model(text, tgt_lang=language, alignment=True)
    assert translated.text == translation
    for source, target in translated.alignment:
        words = text.split()[source], translated.text.split()[target]
        assert len({"".join(filter(str.isalpha, word)) for word in words}) == 1


@pytest.mark.parametrize("case", vectors("typography")["quotes"], ids=repr)
def test_what_is_not_certain_is_as_in_the_source(case):
    language_quotes = quotes_of(case["language"])
    assert outside_items(with_quotes, case["translation"], case["quotes"], language_quotes) == case["restored"]


@pytest.mark.parametrize("case", vectors("typography")["separators"], ids=repr)
def test_quotes_between_sentences(case):
    language_quotes = quotes_of(case["language"])
    assert separator_with_quotes(case["separator"], language_quotes, case["first"], case["last"]) == case["written"]


@pytest.mark.parametrize("case", vectors("typography")["colons"], ids=repr)
def test_colons_of_labels(case):
    separator, language = case["separator"], case["language"]
    assert colon_of_label(separator, language) == case["written"]
    model = translator(Copying(), PlainTokenizer())
    assert model(f"- Name{separator}", tgt_lang=language).text == f"- Name{case['written']}"


@pytest.mark.parametrize("case", vectors("typography")["spaces"], ids=repr)
def test_french_spaces(case):
    assert outside_items(with_french_spaces, case["translation"]) == case["spaced"]
    assert outside_items(with_french_spaces, case["spaced"]) == case["spaced"]


def test_french_spaces_in_a_translation():
    model = translator(Copying(), PlainTokenizer())
    text = "Is it good day ? Yes ; it is: good!"
    translated = model(text, tgt_lang="fr", alignment=True)
    assert translated.text == "Is it good day\u202f? Yes\u202f; it is\xa0: good\u202f!"
    assert len(translated.alignment) == len(text.split())
    for language in (None, "pt", "fr-CA"):
        assert model(text, tgt_lang=language).text == text
    assert model(text, tgt_lang="fr", copy=False).text == text


def test_who_has_french_spaces():
    assert has_french_spaces("fr")
    assert has_french_spaces("fra_Latn")
    assert has_french_spaces("fr-FR")
    assert not any(map(has_french_spaces, ("fr-CA", "fr_CA", "pt", None)))


def test_languages():
    assert quotes_of("de") == quotes_of("deu_Latn") == ("\u201e", "\u201c")
    assert quotes_of(None) is quotes_of("nl") is quotes_of("xx") is None
