"""What the model should see, and the way back: the vectors that JavaScript reads, too, and real tokenizers."""

import gc
import json
import unicodedata
from pathlib import Path
from weakref import ref

import pytest

from capsule_mt import CoverageOptions, Translator
from capsule_mt.text.rewriting import known_form
from capsule_mt.text.rules import INVISIBLE, PLAIN
from capsule_mt.text.vocabulary import Vocabulary, vocabulary_of
from tests.light.decoders import translator
from tests.light.text.fakes import CharacterTokenizer, WordTokenizer, form_of, whole

ROOT = Path(__file__).resolve().parents[3]
VECTORS = json.loads((ROOT / "tests/vectors/normal.json").read_text(encoding="utf-8"))


def normal_form(text, characters=None, kinds=()):
    """Return the form of a text without rules about case, numbers and what is copied."""
    return form_of(text, characters_and_words(*[characters] * bool(characters)), kinds, copies=False)


def characters_and_words(characters=VECTORS["characters"], words=VECTORS["words"]):
    return CharacterTokenizer([*characters, *words])


@pytest.mark.parametrize("case", VECTORS["cases"], ids=[case["text"] for case in VECTORS["cases"]])
def test_vectors(case):
    form = normal_form(case["text"])
    assert form.text == case["form"]
    for part, source in case["back"]:
        start, end = form.user_span(form.text.index(part), form.text.index(part) + len(part))
        assert case["text"][start:end] == source


@pytest.mark.parametrize("case", VECTORS["given"], ids=[case["text"] for case in VECTORS["given"]])
def test_given_translations(case):
    tokenizer, source_tokenizer = characters_and_words(), WordTokenizer()
    source_tokenizer.encode_target, source_tokenizer.decode = tokenizer.encode_target, tokenizer.decode
    assert known_form(case["text"], Vocabulary(source_tokenizer).for_target) == case["form"]


def test_a_given_translation_is_scored_as_the_model_writes_it():
    curly, straight = translator(tokenizer=CharacterTokenizer('"abc ')).score(["a"] * 2, ["“b”", '"b"'])
    assert (curly.segments, curly.text) == (straight.segments, "“b”")


def test_the_tables_are_those_of_the_vectors():
    assert (PLAIN, "".join(sorted(INVISIBLE))) == (VECTORS["plain"], VECTORS["invisible"])
    for plain, characters in PLAIN.items():
        for character in characters:
            assert normal_form(f"1{character}b").text == f"1{plain}b"
    for character in INVISIBLE:
        assert normal_form(f"b{character}b").text == "bb"


def test_what_the_vocabulary_has_stays_as_it_is():
    characters = VECTORS["characters"] + "".join(VECTORS["plain"].values()) + "ÀÔ\ufb01\uff21½"
    text = "don’t “say” — Às… \ufb01\uff21 ½"
    assert normal_form(text, characters).text == text


def test_what_is_protected_stays_as_it_is():
    source = whole(normal_form("it’s “<i title='don’t'>” x", kinds=("tags",)))
    assert [part.written or part.text for part in source.parts] == ["it's \"", "<i title='don’t'>", '" x']


def test_each_character_of_any_normal_form_has_a_span_of_the_source():
    for first in range(0x20, 0x3000, 7):
        text = "".join(map(chr, range(first, first + 7))) + "e\u0301 \u00ad"
        form = normal_form(text)
        spans = [form.user_span(n, n + 1) for n in range(len(form.text))]
        assert spans == sorted(spans)
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert unicodedata.is_normalized("NFC", form.text) or not unicodedata.is_normalized("NFC", text)


@pytest.fixture(scope="module")
def released():
    return Translator.from_pretrained(ROOT / "checkpoints/capsule-marian-en-de")


def test_a_released_tokenizer_reads_typography_as_plain_text(released):
    plain = "He said: I don't know Tom's dog - the café is open."  # curly quotes are in the vocabulary
    changes = {
        "apostrophe": plain.replace("'", "\u02bc"),
        "soft hyphens": plain.replace("know", "kn\u00adow").replace("open", "o\u00adpen"),
        "zero width": plain.replace("dog", "do\u200bg").replace("said", "\u2060said\ufeff"),
        "decomposed": unicodedata.normalize("NFD", plain),
        "spaces": plain.replace(" ", "\u00a0"),
        "minus": plain.replace(" - ", " \u2212 "),
    }
    expected = released(plain)
    assert released(plain.replace("'", "’")).token_ids != expected.token_ids
    for name, text in changes.items():
        assert released(text).token_ids == expected.token_ids, name
        (segment,) = released(text, copy=False).segments  # the model reads the text itself
        assert segment.source_ids == tuple(released.loaded.tokenizer.encode(text).ids), name


@pytest.mark.parametrize(
    "text",
    [
        "\u00c0 No\u00ebl, \u201cyes\u201d\u2026",
        "CO\u2082 &nbsp; don`t \xabsee\xbb {name} <b>x</b>",
        "NO ENTRY",
        "the man is in the house of the old city",
        "- Item (one)",
        "Edit",
        "\u2192",
        "1'400.50 \xa320 a\x0bb",
    ],
)
def test_without_copying_a_translation_is_the_models_own(released, text):
    tokenizer = released.loaded.tokenizer
    translation = released(text, copy=False, split_sentences=False)
    (segment,) = translation.segments
    assert segment.source_ids == tuple(tokenizer.encode(text).ids)
    assert translation.text == tokenizer.decode(segment.target_ids[1:])


def test_marks_and_alignments_are_of_the_users_text(released):
    text = "The\u00ad old man doesn’t buy\u200b a \u2028red h\u00adat. He\u0301 sleeps…"
    translation = released(text, coverage=CoverageOptions(), alignment=True)
    words = {text[word.start : word.end] for word in translation.coverage.words}
    assert {"The", "doesn’t", "h\u00adat", "He\u0301", "buy"} <= words
    assert all(word.text == text[word.start : word.end] for word in translation.coverage.words)
    sentences = ["The\u00ad old man doesn’t buy\u200b a", "red h\u00adat.", "He\u0301 sleeps…"]
    assert [text[part.start : part.end] for part in translation.segments] == sentences
    assert max(source for source, _ in translation.alignment) < len(text.split())


def test_the_vocabulary_of_a_tokenizer_is_made_once():
    tokenizer = WordTokenizer()
    assert vocabulary_of(tokenizer) is vocabulary_of(tokenizer)
    assert vocabulary_of(tokenizer) is not vocabulary_of(WordTokenizer())


def test_a_vocabulary_goes_with_its_tokenizer():
    tokenizer = WordTokenizer()
    vocabulary = vocabulary_of(tokenizer)
    references = [ref(tokenizer), ref(vocabulary), ref(vocabulary.for_target)]
    del tokenizer, vocabulary
    gc.collect()
    assert [reference() for reference in references] == [None, None, None]


def test_a_text_with_many_hyphens_takes_linear_time():
    assert normal_form("- a" * 50_000).text == "- a" * 50_000
