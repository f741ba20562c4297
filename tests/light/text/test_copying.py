"""What is copied: all of a text that has no words, the ends of a sentence, and items inside of it."""

import pytest

from capsule_mt.text.copying import lacks_words, without_copied_edges
from capsule_mt.text.keeping import COPIED_KINDS, Item, masked, parts_of
from capsule_mt.text.sentences import Span
from tests.fixtures.vectors import vectors


@pytest.mark.parametrize("case", vectors("copying")["cases"], ids=repr)
def test_what_is_copied(case):
    text = case["text"]
    start, end = without_copied_edges(text, Span(0, len(text.rstrip())), case.get("has_ordinals", True))
    assert text[start:end] == case["translated"]
    items = [[part.kind, part] for part in parts_of(text, COPIED_KINDS) if isinstance(part, Item)]
    assert items == case["items"]
    kept = [part for part, _ in masked(text, copies=True).parts if isinstance(part, Item)]  # after fast checks
    assert [[item.kind, item] for item in kept] == items


@pytest.mark.timeout(30)
def test_emoji_in_a_sentence_and_after_it_take_linear_time():
    text = "a" + "\u2600" * 50_000 + "b \u2600\ufe0f \U0001f600"
    assert without_copied_edges(text, Span(0, len(text))) == Span(0, 50_002)  # an exponential pattern never ends
    assert without_copied_edges("a \u2600", Span(0, 3)) == Span(0, 1)
    assert not lacks_words("a <!-- b" + "<!--" * 20_000)
    assert not lacks_words("a %" + "0" * 100_000)
