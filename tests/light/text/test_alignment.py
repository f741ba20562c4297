"""Alignments: links between the words of a text and of its translation."""

import pytest

from capsule_mt import CoverageOptions, Translator
from capsule_mt.text.alignment import Link, links_of, numbered_links, restored_links
from capsule_mt.text.segments import Document, Segmenter, join_translations
from capsule_mt.text.sentences import Span
from tests.fixtures.vectors import spans_in, vectors
from tests.light.decoders import translator
from tests.light.test_translator import RELEASED
from tests.light.text.fakes import WordTokenizer, plain_piece, reading_of


def span_in(text, part):
    return Span(*spans_in(text, [part])[0])


def words_of(links, text, translation):
    return [[text[slice(*link.source)], translation[slice(*link.target)]] for link in links]


@pytest.mark.parametrize("case", vectors("alignment")["links"], ids=repr)
def test_a_word_is_linked_to_those_that_it_attends_to(case):
    """By deletion, rows are gains in nats, which may be negative."""
    tokenizer = WordTokenizer()
    (piece,) = Segmenter(tokenizer, None, keep=(), with_words=True).document(case["text"]).pieces
    ids = [tokenizer.id(word) for word in case["translation"].split()]
    links = links_of(piece.words, ids, tokenizer.decode, case["rows"])
    assert words_of(links, case["text"], case["translation"]) == case["links"]


@pytest.mark.parametrize("case", vectors("alignment")["moved"], ids=repr)
def test_links_move_to_the_restored_text(case):
    text, output, translation = case["text"], case["output"], case["translation"]
    links = [Link(span_in(text, word), span_in(output, translated)) for word, translated in case["links"]]
    moved = restored_links(reading_of(text, ("tags", "placeholders")), links, output, translation)
    assert words_of(moved, text, translation) == case["moved"]


@pytest.mark.parametrize("case", vectors("alignment")["numbered"], ids=repr)
def test_words_are_counted_over_pieces_and_what_is_copied(case):
    text, translations = case["text"], case["translations"]
    spans = spans_in(text, case["pieces"])
    document = Document(text, case["copies"], [plain_piece(text, span) for span in spans])
    links = [
        [
            Link(Span(start + word.start, start + word.end), span_in(translation, translated))
            for word, translated in ((span_in(part, word), translated) for word, translated in pairs)
        ]
        for part, translation, (start, _), pairs in zip(
            case["pieces"], translations, spans, case["links"], strict=True
        )
    ]
    translation, _ = join_translations(document, translations)
    numbered = numbered_links(document, translation, translations, links)
    assert [list(pair) for pair in numbered] == case["alignment"]


def test_a_translator_aligns_where_it_is_asked_to():
    model = translator()
    assert model("one two").alignment is None
    assert model(" ", alignment=True).alignment == ()
    assert model.loaded.decoder.forced == []
    released = Translator.from_pretrained(RELEASED)
    text = "Er hat das Buch gestern gelesen. Der alte Mann kauft einen roten Hut."
    translation = released(text, alignment=True)
    pairs = [(text.split()[source], translation.text.split()[target]) for source, target in translation.alignment]
    assert {("das", "the"), ("Buch", "book"), ("alte", "old"), ("kauft", "buys"), ("Hut.", "hat.")} <= set(pairs)
    batch = released([text, "Er schläft."], alignment=True, batch_size=8, num_beams=2, num_return_sequences=2)
    assert batch[0][0].alignment[-1] == (12, len(batch[0][0].text.split()) - 1)
    assert len(batch[1]) == 2


def test_the_words_of_a_given_translation_are_aligned():
    released = Translator.from_pretrained(RELEASED)
    text = "Er hat das Buch gestern gelesen."
    translation = released(text, alignment=True)
    spaced = f" {translation.text.replace(' ', '  ')} "
    texts, translations = [text, text, " ", text], [translation.text, spaced, "x", ""]
    scored = released.score(texts, translations, alignment=True)
    assert [result.alignment for result in scored] == [translation.alignment, translation.alignment, (), ()]
    assert len(translation.alignment) > 4
    (covered,) = released.score([text], [translation.text], alignment=True, coverage=CoverageOptions())
    assert (covered.alignment, covered.coverage) == (
        translation.alignment,
        *released.cover([text], [translation.text]),
    )
    assert released.score([text], [translation.text])[0].alignment is None
