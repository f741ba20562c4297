"""Lines in CAPITALS, Title Case and lowercase: what the model reads, and the way back."""

import string
from pathlib import Path

import pytest

from capsule_mt import CoverageOptions, Translator
from capsule_mt.text.casing import in_sentence_case, restored_case
from capsule_mt.text.edges import as_label
from capsule_mt.text.normal import Vocabulary
from tests.fixtures.vectors import vectors
from tests.light.text.fakes import CharacterTokenizer

VECTORS = vectors("casing")
CHECKPOINTS = Path(__file__).resolve().parents[3] / "checkpoints"


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(CharacterTokenizer([*VECTORS["words"], *VECTORS["characters"]]))


@pytest.mark.parametrize("case", VECTORS["cases"], ids=repr)
def test_what_the_model_reads(case, vocabulary):
    text = case["text"]
    cased = in_sentence_case(text, vocabulary, "en")
    assert cased.text == case["read"]
    assert len(cased.text) == len(text)
    parts = [(text.index(part), name) for part, name in case["lines"]]
    assert [name for _, name in cased.lines] == [name for _, name in parts]
    assert [cased.case_at(offset) for offset, _ in parts] == [name for _, name in parts]


@pytest.mark.parametrize("case", VECTORS["translations"], ids=repr)
def test_translations_get_the_case_back(case, vocabulary):
    assert restored_case(case["text"], case["case"], vocabulary) == case["restored"]
    assert len(case["restored"]) == len(case["text"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("THE OLD MAN BUYS A RED HAT IN LONDON", "The old man buys a red hat in London"),
        ("the old man buys a red hat in london", "The old man buys a red hat in London"),
        ("The Old Man Buys A Red Hat In London", "The old man buys a red hat in London"),
    ],
)
def test_every_word_is_where_its_offsets_say(text, sentence):
    model = Translator.from_pretrained(
        CHECKPOINTS / "capsule-marian-en-de", reverse=CHECKPOINTS / "capsule-marian-de-en"
    )
    translation = model(text, coverage=CoverageOptions(support=True), alignment=True)
    expected = model(sentence, coverage=CoverageOptions(support=True), alignment=True)
    assert translation.text.casefold() == expected.text.casefold()
    assert translation.alignment == expected.alignment
    assert [word.text for word in translation.coverage.words] == text.split()
    for word in translation.coverage.target_words:
        assert translation.text[word.start : word.end] == word.text
    assert len(translation.coverage.target_words) == len(expected.coverage.target_words) > 0


def test_dots_take_linear_time(vocabulary):
    text = f"A B{'.' * 200_000}1"
    assert in_sentence_case(text, vocabulary).text == text  # quadratic time would take minutes


@pytest.mark.parametrize("language", ["tr", "tur_Latn", "az"])
def test_languages_with_a_dotless_i(language):
    characters = [*string.printable, *"\u0131\u015f\u00e7\u0130\u015e\u00c7"]
    vocabulary = Vocabulary(CharacterTokenizer(["\u0131\u015f\u0131k", "\u0130stanbul", "TV", *characters]))
    read = {
        "I\u015eIK \u0130STANBUL \u0130\u00c7\u0130N TV": "I\u015f\u0131k \u0130stanbul i\u00e7in TV",
        "ev i\u015fte istanbul ve \u0131\u015f\u0131k": "Ev i\u015fte \u0130stanbul ve \u0131\u015f\u0131k",
        "i\u015fte ev ve \u0131\u015f\u0131k": "\u0130\u015fte ev ve \u0131\u015f\u0131k",
    }
    for text, form in read.items():
        assert in_sentence_case(text, vocabulary, language).text == form
        assert in_sentence_case(text, vocabulary, "en").text != form
    written = restored_case("\u0130\u015fte \u0131\u015f\u0131k", "capitals", vocabulary, language)
    assert written == "\u0130\u015eTE I\u015eIK"
    assert restored_case("iki \u0131\u015f\u0131k", "title", vocabulary, language) == "\u0130ki I\u015f\u0131k"
    assert restored_case("\u0130\u015fte", "lowercase", vocabulary, language) == "i\u015fte"
    assert as_label("iptal:", "Cancel", dotless_i=True) == "\u0130ptal"
