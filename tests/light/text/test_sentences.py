"""Where a text is cut into sentences, and a sentence into pieces that fit."""

import random

import pytest

from capsule_mt.text.segments import Segmenter, join_translations
from capsule_mt.text.sentences import Span, split_sentences, split_to_fit
from tests.light.text.words import Words


def sentences(text, language=None):
    return [text[start:end] for start, end in split_sentences(text, language)]


# sentences apart by "|"
TEXTS = {
    "en": [
        "Hello.| World!| Really?",
        "Mr. Smith lives at No. 5.| He is at home.",
        "Did he?| No.| She did.",
        "J. S. Bach wrote it.| Yes.",
        "He said: “Go.”| Then he went.",
        "It was 3.5 m, i.e. long, etc. and so on.| Good.",
        "Wait...| What?!| Oh.",
        "He works at Acme Inc. Smith does too.",
        "(She left.)| He stayed.",
        "It ended in 1999.| Then it began.",
        "a line\n|another line\r\n|\n|a third",
        "He came; She went.",  # a semicolon is a question mark of Greek
    ],
    "de": [
        "Am 3. Oktober kam er.| Er ging am 4. Oktober.",
        "Das ist z.B. Dr. Müller.| „Komm!“| Sie kam.",
        "Er kam usw. und ging.| Gut.",
    ],
    "fr": ["«Oui !»| Il part.| M. Dupont vient.", "Qui est-ce ?| Moi."],
    "es": ["¿Quién es?| ¡Yo!| El Sr. Gómez."],
    "el_GR": ["Ποιος είναι;| Εγώ.| Καλά."],
    "zh": ["他来了。|她走了！|“你？”|好。"],
    "ja": ["「はい。」|彼は来た。"],
    "ar": ["مرحبا.| كيف حالك؟| جيد."],
    "hi": ["वह आया।| वह गई।"],
    "th": ["เขามา เธอไป"],
}


@pytest.mark.parametrize(("language", "marked"), [(code, text) for code, texts in TEXTS.items() for text in texts])
def test_rules(language, marked):
    expected = [part.strip() for part in marked.split("|") if part.strip()]
    text = marked.replace("|", "")
    assert sentences(text, language) == expected
    if language != "el_GR":
        assert len(sentences(text)) <= len(expected)  # without a language it cuts no more often


def test_spans_are_in_order_and_leave_out_only_space():
    generator = random.Random(0)
    alphabet = "aB.!? \n\t。”(é\u0301\u200d🙂3"
    for _ in range(500):
        text = "".join(generator.choice(alphabet) for _ in range(generator.randrange(60)))
        spans = split_sentences(text)
        end = 0
        for span in spans:
            assert not text[end : span.start].strip()
            assert text[span.start : span.end].strip() == text[span.start : span.end] != ""
            end = span.end
        assert not text[end:].strip()
        for span in spans:
            pieces = split_to_fit(text, span, lambda part: len(part) <= 7)
            assert all(0 < piece.end - piece.start <= 7 for piece in pieces)
            kept = "".join(text[piece.start : piece.end] for piece in pieces)
            assert "".join(kept.split()) == "".join(text[span.start : span.end].split())


def test_a_long_sentence_without_commas_is_cut_between_words():
    text = "one two three four"
    pieces = split_to_fit(text, Span(0, len(text)), lambda part: len(part) <= 10)
    assert [text[piece.start : piece.end] for piece in pieces] == ["one two", "three four"]


def test_an_emoji_of_several_characters_stays_whole():
    family = "👩\u200d👩\u200d👧"
    text = family * 9
    pieces = split_to_fit(text, Span(0, len(text)), lambda part: len(part) <= 12)
    assert {text[piece.start : piece.end].replace(family, "") for piece in pieces} == {""}


def test_a_long_run_of_marks_is_cut_in_few_steps():
    text = "e" + "\u0301\u200d\ufe0f" * 10_000
    asked = []

    def fits(part):
        asked.append(len(part))
        return len(part) <= 10

    pieces = split_to_fit(text, Span(0, len(text)), fits)
    assert "".join(text[piece.start : piece.end] for piece in pieces) == text
    assert max(piece.end - piece.start for piece in pieces) <= 10
    assert len(asked) < 4 * len(pieces)
    assert sum(asked) < 20 * len(text)  # each of some log2(length / 10) rounds reads the text once


@pytest.mark.parametrize(
    ("text", "translations", "expected"),
    [
        ("One. Two!  Three", ["一。", "二！", "三"], "一。二！三"),
        ("One. Two.", ["他说：“好。”", "「はい。」"], "他说：“好。”「はい。」"),
        ("One. NASA.", ["一。", "NASA。"], "一。NASA。"),
        ("One.\nTwo.", ["一。", "二。"], "一。\n二。"),
        ("One. Two.", ["안녕하세요.", "네."], "안녕하세요. 네."),  # Korean has spaces
        ("One. Two.", ["He said “yes.”", "No."], "He said “yes.” No."),
        ("一。二。", ["One.", "Two."], "One. Two."),
        ("一。二。", ["ichi", "ni"], "ichi ni"),
        ("One. Two.", ["一", "二"], "一二"),
    ],
)
def test_sentences_of_chinese_and_japanese_have_no_space_between_them(text, translations, expected):
    joined, starts = join_translations(Segmenter(Words(), None).document(text), translations)
    assert joined == expected
    assert all(joined.startswith(one, start) for start, one in zip(starts, translations, strict=True))
