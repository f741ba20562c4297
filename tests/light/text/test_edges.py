"""Brackets, quotes, missing full stops and ellipses around sentences: what the model reads, and the way back."""

import re
import string
from itertools import pairwise, product

import pytest

from capsule_mt import CoverageOptions, Translator
from capsule_mt.text.edges import ending_of
from capsule_mt.text.finishing import with_ending
from capsule_mt.text.rules import rows_of
from capsule_mt.text.segments import Segmenter
from capsule_mt.text.sentences import Span
from tests.fixtures.vectors import vectors
from tests.light.text.fakes import CharacterTokenizer, outside_items
from tests.light.text.test_casing import CHECKPOINTS

VECTORS = vectors("edges")
CHINESE = "\u4ed6\u6765\u4e86\u8d70\u6211"
TEXTS = [
    "(The old man doesn\u2019t buy a red hat)",
    "\u201cThe old man buys a red hat\u2026\u201d",
    "\u2013 The o\u00adld man isn\u2019t here, \u201che said\u201d",
    "THE OLD MAN\u2019S HAT IS R\u00c9D\u2026",
    "the old man in london isn\u2019t here. {name} is",
    "The <b>Old Man</b> Buys the \u201cRed Hat\u201d in London",
    "The old man buys a <b>red hat</b>",
]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=repr)
def test_what_the_model_reads(case):
    tokenizer = CharacterTokenizer([*string.printable, *CHINESE])
    pieces = Segmenter(tokenizer, None, src_lang="en").document(case["text"]).pieces
    assert "".join(piece.text for piece in pieces) == case["read"]
    assert next((piece.ending for piece in pieces), None) == case["ending"]


def test_the_fast_check_for_marks_at_the_end_misses_none():
    for ending in map("".join, product("a .!\u2026)\u201d", repeat=4)):
        expected, match = re.search(rows_of("ending")[0].match, ending), ending_of(ending, Span(0, len(ending)))
        assert (match and (match.start, match.end)) == (expected and expected.span()), ending


@pytest.mark.parametrize(
    ("text", "read", "ending"),
    [
        *(("He is at home today...", "He is at home today.", "..."), ("Oh yes...", "Oh yes.", "...")),
        *(("He is at home..", "He is at home.", ".."), ("He is at home.\u2026", "He is at home.", ".\u2026")),
        *(("He is at home ...", "He is at home", None), ("Wait... He is", "Wait. He is", "...")),
    ],
)
def test_several_dots_are_read_as_a_full_stop(text, read, ending):
    pieces = Segmenter(CharacterTokenizer(string.printable), None, src_lang="en").document(text).pieces
    assert (" ".join(piece.text for piece in pieces), pieces[0].ending) == (read, ending)


@pytest.mark.parametrize("case", VECTORS["translations"], ids=repr)
def test_translations_get_the_ending_back(case):
    assert outside_items(with_ending, case["text"], case["ending"]) == case["restored"]


@pytest.fixture(scope="module")
def both_ways():
    folder, reverse = (CHECKPOINTS / f"capsule-marian-{pair}" for pair in ("en-de", "de-en"))
    return Translator.from_pretrained(folder, reverse=reverse)


@pytest.mark.parametrize("text", TEXTS)
def test_offsets_are_of_the_users_strings(text, both_ways):
    translation = both_ways(text, coverage=CoverageOptions(support=True), alignment=True)
    words, target_words = translation.coverage.words, translation.coverage.target_words
    assert words
    assert target_words
    for string_, spans in ((text, words), (translation.text, target_words)):
        assert all(string_[word.start : word.end] == word.text != "" for word in spans)
        assert all(previous.end <= right.start for previous, right in pairwise(spans))
    assert {source for source, _ in translation.alignment} <= set(range(len(text.split())))
    assert {target for _, target in translation.alignment} <= set(range(len(translation.text.split())))
    assert translation.alignment


def test_a_sentence_without_a_full_stop_is_translated_as_one_with_it(both_ways):
    text = "The old man buys a red hat"
    expected = both_ways(f"{text}.").text
    assert expected.endswith(".")
    assert both_ways(text).text == expected.removesuffix(".")
    assert both_ways(f"({text})").text == f"({expected.removesuffix('.')})"
    assert both_ways(f"{text}\u2026").text == expected.removesuffix(".") + "\u2026"
    assert both_ways("A red hat").text == both_ways("A red hat", copy=False).text  # a label


def test_spaces_beside_emoji_inside_quotes_are_copied(both_ways):
    text = "The old man buys a red hat."
    assert both_ways(f'"\u2600 {text} \u2600"').text == f'"\u2600 {both_ways(text).text} \u2600"'
