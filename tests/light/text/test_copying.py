"""What is copied: all of a text that has no words, the ends of a sentence, and items inside of it."""

import re
import time

import pytest

from capsule_mt.text import keeping
from capsule_mt.text.copying import NON_WORDS, is_ordinary, lacks_words, may_have_non_words, without_copied_edges
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


@pytest.mark.parametrize("name", ["copying", "keeping", "emphasis", "restoring", "numerals"])
def test_fast_checks_let_no_item_pass(name):
    for text in _strings(vectors(name)):
        assert may_have_non_words(text) or re.search(NON_WORDS, text) is None
        assert not is_ordinary(text) or parts_of(text, COPIED_KINDS) in ([text], [])
        assert not is_ordinary(text) or re.search(r"\d", text) is None


def _strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


@pytest.mark.parametrize("text", ["WWW.A.DE", "Www.a.de", "wWw.a.de", "see www.a.de"])
def test_an_address_may_begin_with_capitals(text):
    assert masked(text, copies=True).items


@pytest.mark.parametrize(
    "text", ["At 10:30: he/she paid $5, 5 % or 5% (or so)!", "\u041e\u043d \u0441\u043f\u0438\u0442."]
)
def test_frequent_marks_need_no_slow_pattern(text, monkeypatch):
    monkeypatch.setattr(keeping, "parts_of", lambda text, kinds: [text] if not kinds else pytest.fail("slow"))
    assert masked(text, copies=True).text == text


@pytest.mark.timeout(30)
def test_emoji_in_a_sentence_and_after_it_take_linear_time():
    text = "a" + "\u2600" * 50_000 + "b \u2600\ufe0f \U0001f600"
    assert without_copied_edges(text, Span(0, len(text))) == Span(0, 50_002)  # an exponential pattern never ends
    assert without_copied_edges("a \u2600", Span(0, 3)) == Span(0, 1)
    assert not lacks_words("a <!-- b" + "<!--" * 20_000)
    assert not lacks_words("a %" + "0" * 100_000)


@pytest.mark.parametrize(
    "unit",
    [
        "a.b ",
        "a.a/",
        "src/",
        "a=",
        "a=a ",
        "a/b",
        "a/b ",
        "111-",
        "aA",
        "&&a",
        "|| ",
        "a -",
        "a>",
        "> ",
        "(+)",
        "a ...",
    ],
)
def test_names_and_signs_take_linear_time(unit):
    assert (
        _growth(lambda text: (parts_of(text, COPIED_KINDS), without_copied_edges(text, Span(0, len(text)))), unit) < 9
    )


@pytest.mark.parametrize("unit", ["<!-- ", "{# ", "<%# ", "<%-- ", "{{!-- ", "{{! ", "{/* ", "{{/* "])
def test_unclosed_remarks_take_linear_time(unit):
    assert _growth(lambda text: parts_of(text, ["tags"]), unit) < 9


def _growth(function, unit):
    """Return how many times as long four times the text takes; quadratic time would give 16."""

    def seconds(count):
        durations = []
        for attempt in range(3):
            text = unit * count + " " * attempt  # the parts of a text are cached
            start = time.process_time()
            function(text)
            durations.append(time.process_time() - start)
        return min(durations)

    return seconds(3200) / max(seconds(800), 1e-3)
