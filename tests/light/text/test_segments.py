"""Texts, the pieces they are translated in, and what is copied because it has no words."""

import logging
import time

import pytest

from capsule_mt.text.keeping import lacks_words
from capsule_mt.text.segments import Segmenter, join_translations
from capsule_mt.translate.texts import batches_of
from tests.light.text.fakes import WordTokenizer


def pieces_of(text, tokenizer=None, **options):
    document = Segmenter(tokenizer or WordTokenizer(), **{"limit": None, **options}).document(text)
    return [text[piece.span.start : piece.span.end] for piece in document.pieces]


def in_capitals(text, **options):
    document = Segmenter(WordTokenizer(), None, **options).document(text)
    translations = [document.text[piece.span.start : piece.span.end].upper() for piece in document.pieces]
    return join_translations(document, translations)[0]


def test_a_text_is_cut_and_joined():
    assert pieces_of("One two.  Three four!\n\nFive") == ["One two.", "Three four!", "Five"]
    assert in_capitals("One two.  Three four!\n\nFive") == "ONE TWO.  THREE FOUR!\n\nFIVE"
    assert in_capitals("他来了a。b走了。c") == "他来了A。B走了。C"
    assert Segmenter(WordTokenizer(), None).document("a \ud800").text == "a \ufffd"  # half a character
    assert pieces_of(" - er 😀 ", copies=False) == ["- er 😀"]
    assert in_capitals("  er ", copies=False) == "ER"
    assert pieces_of("One two. Three. ", split_sentences=False) == ["One two. Three."]


@pytest.mark.parametrize("item", ["%s", "{x}", "{name}", "{count_of_all}"])
def test_a_sentence_ends_after_an_item(item):
    """Items of one to six characters were once read as Roman numerals, such as "XXX."."""
    assert pieces_of(f"Run {item}. Then go.") == [f"Run {item}.", "Then go."]


@pytest.mark.parametrize("letter", ["a", "漢", "a\u200d", "<!--", "x_", "@"])
def test_a_word_of_a_megabyte_is_copied_and_recorded(letter, caplog):
    """Such a word once took hours, or was never done."""
    word, began = letter * (1_000_000 // len(letter)), time.process_time()
    with caplog.at_level(logging.WARNING):
        document = Segmenter(WordTokenizer(), None).document(text := f"One two {word} three. Four. {word}")
    assert [text[piece.span.start : piece.span.end] for piece in document.pieces] == ["One two", "three.", "Four."]
    assert [text[span.start : span.end] == word for span in document.foreign] == [True, True]
    assert join_translations(document, ["A", "B", "C"])[0] == f"A {word} B C {word}"
    assert "2 words of more than 10000 characters in a text: copied." in caplog.text
    assert time.process_time() - began < 5


def test_chinese_has_no_long_words():
    assert len(pieces_of("他来了。" * 6000)) == 6000


@pytest.mark.parametrize(
    "text", ["", "\n", "😀", "1234567890", "...", "a.b@c.de, www.a.de", "`ls -l`", "<br/>", "3,5 %"]
)
def test_text_without_words_is_copied(text):
    assert lacks_words(text)
    assert pieces_of(text) == []
    assert in_capitals(text) == text


def test_a_piece_without_tokens_is_left_out():
    assert pieces_of("One. \u00a7.", WordTokenizer(unknown=["One.", "\u00a7."]), copies=False) == ["One."]


def test_a_truncated_piece_has_only_the_words_that_are_left():
    (piece,) = Segmenter(WordTokenizer(), 4, truncation=True, with_words=True).document("a b c d").pieces
    assert (len(piece.words), piece.was_cut) == (3, True)


def test_languages():
    tokenizer = WordTokenizer([">>fra<<", ">>ita<<"])
    text = ">>fra<< One two. >>ita<< Three four. Five"
    document = Segmenter(tokenizer, None, with_words=True).document(text)
    read = [tokenizer.decode(piece.ids) for piece in document.pieces]
    assert read == [">>fra<< One two.", ">>ita<< Three four.", ">>fra<< Five"]
    assert [text[word.span.start : word.span.end] for word in document.pieces[1].words] == ["Three", "four", "."]
    assert pieces_of(">>fra<< ", tokenizer) == []
    (piece,) = Segmenter(tokenizer, None, tgt_lang="ita").document("one").pieces
    assert tokenizer.decode(piece.ids) == ">>ita<< one"
    with pytest.raises(ValueError, match=r"^`tgt_lang` must be one of fra, ita; got 'deu'$"):
        pieces_of("one", tokenizer, tgt_lang="deu")


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize(
    ("text", "translation"),
    [
        (">>fra<< One two.", "[fra One two.]"),
        (">>fra<<One two.", "[fra One two.]"),
        ("  >>fra<<  One two.\n", "[fra One two.]"),
        (">>fra<< One. >>cmn_Hans<< Two. Three.", "[fra One.] [cmn_Hans Two.] [fra Three.]"),
        (">>fra<< One.\n>>ita<< Two.", "[fra One.]\n[ita Two.]"),
        (">>fra<<\nOne.\n>>ita<<\nTwo.", "[fra One.]\n\n[ita Two.]"),
        (">>cmn_Hans<< One.", "[cmn_Hans One.]"),
        (">>cmn_Hans<< READ THE MANUAL", "[cmn_Hans READ THE MANUAL]"),
        (">>Bonjour<< One.", "[ita >>Bonjour<< One.]"),
    ],
)
def test_a_token_of_a_language_is_not_copied(text, translation, copies):
    tokenizer = WordTokenizer([">>fra<<", ">>ita<<", ">>cmn_Hans<<"])
    segmenter = Segmenter(tokenizer, None, copies=copies, tgt_lang="ita" if "Bonjour" in text else None)
    document = segmenter.document(text)
    read = [tokenizer.decode(piece.ids).replace(">>", "", 1).replace("<<", "", 1) for piece in document.pieces]
    joined, _ = join_translations(document, [f"[{piece}]" for piece in read])
    assert joined.strip().replace(">>Bonjour<< [ita ", "[ita >>Bonjour<< ").upper() == translation.upper()


@pytest.mark.parametrize("text", [">>fra<< 12", ">>fra<< 12 \u2192 13", " >>fra<< https://a.b/c"])
def test_a_token_is_not_copied_with_text_without_words(text):
    document = Segmenter(WordTokenizer([">>fra<<", ">>ita<<"]), None).document(text)
    assert not document.pieces
    assert join_translations(document, [])[0].strip() == text.replace(">>fra<<", "").strip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "One.",
            "`tgt_lang` must be one of fra, ita; it is missing, and the text does not begin with a token such as >>",
        ),
        (">>fr<< One.", "the model lacks the token >>fr<<, with which a text begins; it has >>fra<<, >>ita<<"),
        (">>fra<< One. >>deu<< Two.", "the model lacks the token >>deu<<"),
        ("One. >>fra<< Two.", "it is missing"),
        (">>Fra<< One.", "it is missing"),
    ],
)
def test_a_target_language_that_is_missing_or_unknown(text, message):
    with pytest.raises(ValueError, match=message):
        pieces_of(text, WordTokenizer([">>fra<<", ">>ita<<"]))


def test_a_model_with_a_single_token_needs_none():
    tokenizer = WordTokenizer([">>fra<<"])
    (piece,) = Segmenter(tokenizer, None).document("One.").pieces
    assert tokenizer.decode(piece.ids) == "One."
    with pytest.raises(ValueError, match=r"^`tgt_lang` must be one of fra; got 'ita'$"):
        pieces_of("One.", tokenizer, tgt_lang="ita")


def test_a_prefix_is_read_before_each_sentence():
    tokenizer = WordTokenizer()
    first, second = Segmenter(tokenizer, None, prefix="translate: ").document("Aa bb. Cc.").pieces
    assert tokenizer.decode(first.ids) == "translate: Aa bb."
    assert tokenizer.decode(second.ids) == "translate: Cc."


def test_batches():
    lengths = [3, 9, 1, 9, 4]
    assert list(batches_of(lengths, 2)) == [[1, 3], [4, 0], [2]]
    assert list(batches_of(lengths, 1, batch_tokens=12)) == [[1], [3], [4, 0, 2]]


def test_an_error_lists_few_languages_of_a_strangers_vocabulary():
    tokens = [f">>{'x' * 1000}{number}<<" for number in range(100)]
    with pytest.raises(ValueError, match="and 60 more; it is missing") as error:
        pieces_of("One.", WordTokenizer(tokens))
    assert len(str(error.value)) < 1200
