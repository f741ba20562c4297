"""Where a text is cut into sentences, and a sentence into pieces that fit."""

import random
import re

import pytest

from capsule_mt.text.abbreviations import WORDS_ELSEWHERE
from capsule_mt.text.segments import Document, join_translations
from capsule_mt.text.sentences import Span, rules_of, split_sentences, split_to_fit
from tests.fixtures.vectors import spans_in, vectors
from tests.light.text.fakes import plain_piece

VECTORS = vectors("sentences")


def sentences(text, language=None):
    return [text[start:end] for start, end in split_sentences(text, language)]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=repr)
def test_rules(case):
    text, expected = case["text"], case["sentences"]
    assert sentences(text, case["language"]) == expected
    has_ambiguous = any(word.strip(".,'").lower() in WORDS_ELSEWHERE for word in re.split(r"[\s']", text))
    if not has_ambiguous and not rules_of(case["language"]).stops:
        assert len(sentences(text)) <= len(expected)  # without a language it cuts no more often


@pytest.mark.parametrize("case", VECTORS["fits"], ids=repr)
def test_cuts_of_a_sentence(case):
    text = case["text"]
    pieces = split_to_fit(text, Span(0, len(text)), lambda part: part.end - part.start <= case["limit"])
    assert [text[piece.start : piece.end] for piece in pieces] == case["pieces"]


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
            pieces = split_to_fit(text, span, lambda part: part.end - part.start <= 7)
            assert all(0 < piece.end - piece.start <= 7 for piece in pieces)
            covered = "".join(text[piece.start : piece.end] for piece in pieces)
            assert "".join(covered.split()) == "".join(text[span.start : span.end].split())


def test_an_emoji_of_several_characters_stays_whole():
    family = "👩\u200d👩\u200d👧"
    text = family * 9
    pieces = split_to_fit(text, Span(0, len(text)), lambda part: part.end - part.start <= 12)
    assert {text[piece.start : piece.end].replace(family, "") for piece in pieces} == {""}


def test_a_long_run_of_marks_is_cut_in_few_steps():
    text = "e" + "\u0301\u200d\ufe0f" * 10_000
    asked = []

    def fits(part):
        asked.append(part.end - part.start)
        return asked[-1] <= 10

    pieces = split_to_fit(text, Span(0, len(text)), fits)
    assert "".join(text[piece.start : piece.end] for piece in pieces) == text
    assert max(piece.end - piece.start for piece in pieces) <= 10
    assert len(asked) < 4 * len(pieces)
    assert sum(asked) < 20 * len(text)  # each of some log2(length / 10) rounds reads the text once


@pytest.mark.parametrize("case", vectors("joining")["cases"], ids=repr)
def test_how_translations_are_joined(case):
    document = Document(case["text"], case["copies"])
    document.pieces = [plain_piece(case["text"], span) for span in spans_in(case["text"], case["pieces"])]
    joined, starts = join_translations(document, case["translations"])
    assert joined == case["joined"]
    for translation, start in zip(case["translations"], starts, strict=True):
        assert joined[start:].casefold().startswith(translation.casefold())
