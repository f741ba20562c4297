"""Lines in CAPITALS and lowercase: what the model reads, and the way back."""

from pathlib import Path

import pytest

from capsule_mt import CoverageOptions, Translator
from capsule_mt.text.casing import CAPITALS, has_dotless_i, in_sentence_case, restored_case
from capsule_mt.text.finishing import as_label
from capsule_mt.text.vocabulary import Vocabulary
from tests.fixtures.vectors import vectors
from tests.light.text.fakes import CharacterTokenizer, form_of, outside_items, with_items

VECTORS, DOTLESS_I, CAPITALS_VECTORS = vectors("casing"), vectors("dotless_i"), vectors("capitals")
CHECKPOINTS = Path(__file__).resolve().parents[3] / "checkpoints"


TOKENIZER = CharacterTokenizer([*VECTORS["words"], *VECTORS["characters"]])
# in this order: the rank of a word is that of its tokens
LETTERS = dict.fromkeys(
    letter for case in CAPITALS_VECTORS["cases"] for text in case.values() for letter in text or ""
)


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(TOKENIZER)


@pytest.mark.parametrize("case", VECTORS["cases"], ids=repr)
def test_what_the_model_reads(case):
    text = case["text"]
    form = form_of(text, TOKENIZER, src_lang="en")
    assert with_items(form) == case["read"]
    parts = [(text.index(part), name) for part, name in case["lines"]]
    assert [line.row for line in form.lines] == [name for _, name in parts]
    assert [form.case_at(offset) for offset, _ in parts] == [name for _, name in parts]


@pytest.mark.parametrize("case", CAPITALS_VECTORS["cases"], ids=repr)
def test_texts_in_capitals(case):
    form = form_of(case["text"], CharacterTokenizer([*LETTERS]))
    assert (with_items(form) if form.lines else None) == case["lowercase"]


@pytest.mark.parametrize("case", CAPITALS_VECTORS["translations"], ids=repr)
def test_a_translation_in_capitals_has_as_many_letters(case, vocabulary):
    assert outside_items(restored_case, case["text"], CAPITALS, vocabulary) == case["capitals"]
    assert len(case["text"]) == len(case["capitals"])


@pytest.mark.parametrize("case", VECTORS["translations"], ids=repr)
def test_translations_get_the_case_back(case, vocabulary):
    assert restored_case(case["text"], case["case"], vocabulary) == case["restored"]
    assert len(case["restored"]) == len(case["text"])


def test_a_word_in_capitals_among_others_is_read_as_it_is():
    model = Translator.from_pretrained(CHECKPOINTS / "capsule-marian-en-de")
    text = "The old man buys a RED hat in London."
    assert model(text).token_ids == model(text, copy=False).token_ids


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("THE OLD MAN BUYS A RED HAT IN LONDON", "The old man buys a red hat in London"),
        ("the old man buys a red hat in london", "The old man buys a red hat in London"),
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
    assert in_sentence_case(text, vocabulary) == (text, [])  # quadratic time would take minutes


TOKENIZER_WITH_DOTLESS_I = CharacterTokenizer([*DOTLESS_I["words"], *DOTLESS_I["characters"]])


@pytest.mark.parametrize("case", DOTLESS_I["cases"], ids=repr)
def test_languages_with_a_dotless_i(case):
    assert with_items(form_of(case["text"], TOKENIZER_WITH_DOTLESS_I, src_lang=case["language"])) == case["read"]


@pytest.mark.parametrize("case", DOTLESS_I["translations"], ids=repr)
def test_translations_into_languages_with_a_dotless_i(case):
    restored = restored_case(case["text"], case["case"], Vocabulary(TOKENIZER_WITH_DOTLESS_I), case["language"])
    assert restored == case["restored"]


@pytest.mark.parametrize("case", DOTLESS_I["labels"], ids=repr)
def test_labels_in_languages_with_a_dotless_i(case):
    assert as_label(case["text"], "X", has_dotless_i(case["language"])) == case["restored"]


def test_codes_of_languages_with_a_dotless_i():
    assert [has_dotless_i(code) for code in ("tr", "tur_Latn", "az", "en", None)] == [True, True, True, False, False]
