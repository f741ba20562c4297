"""Alignments: links between the words of a text and of its translation."""

from capsule_mt import CoverageOptions, Translator
from capsule_mt.text.alignment import links_of, numbered_links, restored_links
from capsule_mt.text.keeping import masked
from capsule_mt.text.segments import Segmenter
from tests.light.decoders import translator
from tests.light.test_translator import RELEASED
from tests.light.text.fakes import WordTokenizer


def aligned(text, target, rows, keep=()):
    """Return the links, as words, of a text of one sentence."""
    tokenizer = WordTokenizer()
    document = Segmenter(tokenizer, None, keep=keep, with_words=True).document(text)
    (piece,) = document.pieces
    ids = [tokenizer.id(word) for word in target.split()]
    links = links_of(piece.words, ids, tokenizer.decode, rows)
    return [(text[slice(*link.source)], target[slice(*link.target)]) for link in links]


def test_a_word_is_linked_to_those_that_it_attends_to():
    rows = [[0.1, 0.8, 0.1], [0.45, 0.1, 0.45]]
    assert aligned("one two three", "ZWEI EINS", rows) == [("two", "ZWEI"), ("one", "EINS"), ("three", "EINS")]
    assert aligned("a b c d", "X", [[0.25] * 4]) == []
    # by deletion, rows are gains in nats, which may be negative
    assert aligned("one two", "ZWEI EINS", [[-0.5, 4.0], [0.2, -3.0]]) == [("two", "ZWEI"), ("one", "EINS")]
    # a mark is linked to marks alone
    assert aligned("one !", "? EINS", [[0.9, 0.1], [0.9, 0.1]]) == [("one", "EINS")]


def test_words_are_counted_over_pieces_and_what_is_copied():
    tokenizer = WordTokenizer()
    document = Segmenter(tokenizer, None, with_words=True).document("- One two. 😀 Three, four")
    first, second = document.pieces
    links = [
        links_of(first.words, [tokenizer.id("TWO"), tokenizer.id("ONE.")], tokenizer.decode, [[0, 1, 0], [1, 0, 0]]),
        links_of(
            second.words, [tokenizer.id("THREE"), tokenizer.id("FOUR")], tokenizer.decode, [[1, 0, 0], [0, 1, 0]]
        ),
    ]
    translation = "- TWO ONE. 😀 THREE FOUR"
    numbered = numbered_links(document, translation, ["TWO ONE.", "THREE FOUR"], links)
    assert numbered == ((0, 0), (1, 2), (2, 1), (3, 3), (4, 4), (5, 5))


def test_what_is_kept_is_linked_to_itself():
    text, decoded, written = "see {x} <b>now</b>", "NOW Tom SEE", "<b>NOW</b> {x} SEE"
    source = masked(text, ["tags", "placeholders"])
    now = (text.index("now"), text.index("now") + 3)
    links = restored_links(source, [type("", (), {"source": now, "target": (0, 3)})], decoded, written)
    assert [(text[slice(*link.source)], written[slice(*link.target)]) for link in links] == [
        ("now", "NOW"),
        ("{x}", "{x}"),
    ]


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
