"""Where a text is cut, pieces that fit, and strings nobody thought of: the pipeline answers or refuses each."""

import random

import pytest
from transformers import pipeline

from capsule_mt.text.sentences import Span, language_code, split_sentences, split_to_fit
from hf_capsule_mt import CapsuleMarianMTModel
from tests.fixtures.tiny import save_tiny_checkpoint


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
    ],
    "de": [
        "Am 3. Oktober kam er.| Er ging am 4. Oktober.",
        "Das ist z.B. Dr. Müller.| „Komm!“| Sie kam.",
        "Er kam usw. und ging.| Gut.",
    ],
    "fr": ["«Oui !»| Il part.| M. Dupont vient.", "Qui est-ce ?| Moi."],
    "es": ["¿Quién es?| ¡Yo!| El Sr. Gómez."],
    "el": ["Ποιος είναι;| Εγώ.| Καλά."],
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
    if language != "el":
        assert len(sentences(text)) <= len(expected)  # without a language it cuts no more often


def test_a_question_mark_of_greek_is_a_semicolon_elsewhere():
    assert sentences("He came; She went.") == ["He came; She went."]


@pytest.mark.parametrize(
    ("language", "code"),
    [("de", "de"), ("de_DE", "de"), ("deu_Latn", "de"), ("zh-CN", "zh"), ("German", "de"), ("xx", "xx"), (None, None)],
)
def test_language_codes(language, code):
    assert language_code(language) == code


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


def test_a_long_sentence_is_cut_after_a_comma_or_else_between_words():
    text = "one two three, four five six seven, eight nine ten"
    pieces = split_to_fit(text, Span(0, len(text)), lambda part: len(part) <= 36)
    assert [text[piece.start : piece.end] for piece in pieces] == [
        "one two three,",
        "four five six seven, eight nine ten",
    ]
    text = "one two three four"
    pieces = split_to_fit(text, Span(0, len(text)), lambda part: len(part) <= 10)
    assert [text[piece.start : piece.end] for piece in pieces] == ["one two", "three four"]


def test_an_emoji_of_several_characters_stays_whole():
    family = "👩\u200d👩\u200d👧"
    text = family * 9
    pieces = split_to_fit(text, Span(0, len(text)), lambda part: len(part) <= 12)
    assert {text[piece.start : piece.end].replace(family, "") for piece in pieces} == {""}


def test_long_texts_take_no_quadratic_time():
    for text in ("a. " * 100_000, "." * 100_000, "A. " * 100_000, '."' * 50_000):
        split_sentences(text)


@pytest.mark.parametrize("mark", ["\u0301", "\u200d", "\ufe0f", "\u0301\u200d"])
def test_a_long_run_of_marks_is_cut_in_few_steps(mark):
    text = "e" + mark * 50_000
    asked = []

    def fits(part):
        asked.append(len(part))
        return len(part) <= 10

    pieces = split_to_fit(text, Span(0, len(text)), fits)
    assert "".join(text[piece.start : piece.end] for piece in pieces) == text
    assert max(piece.end - piece.start for piece in pieces) <= 10
    assert len(asked) < 4 * len(pieces)
    assert sum(asked) < 20 * len(text)  # each of some log2(length / 10) rounds reads the text once


def test_a_cut_before_the_last_letter_leaves_its_accents_there():
    text = "abe" + "\u0301" * 3
    pieces = split_to_fit(text, Span(0, len(text)), lambda part: len(part) <= 4)
    assert [text[piece.start : piece.end] for piece in pieces] == ["ab", "e" + "\u0301" * 3]


def test_a_long_run_of_spaces_takes_no_quadratic_time():
    text = "a, b" + " " * 100_000 + "c"
    pieces = split_to_fit(text, Span(0, len(text)), lambda part: len(part) <= 10)
    assert [text[piece.start : piece.end] for piece in pieces] == ["a, b", "c"]


POOLS = {
    "spaces": " \t\n\r\v\f\x1c\u00a0\u2003\u3000\u2028\ufeff\u200b",
    "control": "".join(map(chr, range(32))) + "\x7f\x80\x9f\u200e\u202e\u2066",
    "emoji": "🙂👩\u200d👧🇩🇪👍🏽❤\ufe0f🏴",
    "right to left": "שלום عليكم.؟ \u200f،",
    "letters": "The child sleeps. Das Kind schläft! Кто? 誰。 ก็ e\u0301",
    "surrogates": "a\ud800\udc00\udfff b",
    "anything": None,
}


def strings(number, longest, seed=0):
    generator = random.Random(seed)
    yield from ("", " ", "\n", "\x00", "\ud800", "a" * longest, "🙂" * longest, ". " * (longest // 2), "。" * longest)
    for _ in range(number - 9):
        pool = POOLS[generator.choice(list(POOLS))]
        length = generator.choice((1, 2, 5, 20, 60))
        if generator.random() < 1 / 2000:
            length = longest
        choose = generator.choice
        yield "".join(choose(pool) if pool else chr(generator.randrange(0x110000)) for _ in range(length))


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    folder = save_tiny_checkpoint(tmp_path_factory.mktemp("fuzz"))
    model = CapsuleMarianMTModel.from_pretrained(folder)
    model.generation_config.max_new_tokens = 2
    return pipeline("translation", model=model, tokenizer=str(folder))


def check(translator, texts):
    records = translator(texts, batch_size=64)
    assert len(records) == len(texts)
    for text, record in zip(texts, records, strict=True):
        assert isinstance(record["translation_text"], str)
        if not text.strip():
            assert record["translation_text"] == ""
    sample = random.Random(1).sample(range(len(texts)), 40)
    for index in sample:  # in order: each is what it is alone
        assert translator(texts[index])[0] == records[index]


def test_strings(translator):
    check(translator, list(strings(600, 2_000)))


@pytest.mark.slow
def test_ten_thousand_strings(translator):
    check(translator, list(strings(10_000, 10_000)))


@pytest.mark.parametrize("wrong", [None, 3, b"bytes", ["a", None], [["a"]], {"text": "a"}, [b"a"], 2.5])
def test_what_is_no_text(translator, wrong):
    with pytest.raises(ValueError, match="the pipeline translates strings and lists of strings, got a"):
        translator(wrong)
