"""What is copied: all of a text that has no words, the ends of a sentence, and items inside of it."""

import re
import time

import pytest

from capsule_mt.text.edges import without_copied_edges
from capsule_mt.text.keeping import Item, lacks_words, parts_of
from capsule_mt.text.reading import Piece, parts_in
from capsule_mt.text.rewriting import Form, keep_edits
from capsule_mt.text.rules import COPIED_KINDS, ROWS
from capsule_mt.text.sentences import Span, stripped
from tests.fixtures.vectors import vectors
from tests.light.text.fakes import reading_of


def translated(text, has_ordinals=True):
    """Return what of a text is translated."""
    form = Form(text, keep_edits(text, COPIED_KINDS), COPIED_KINDS)
    span = without_copied_edges(form.text, stripped(form.text, Span(0, len(form.text))), has_ordinals)
    return Piece(form, parts_in(form, *span)).user_text if span.start < span.end else ""


@pytest.mark.parametrize("case", vectors("copying")["cases"], ids=repr)
def test_what_is_copied(case):
    text = case["text"]
    assert translated(text, case.get("has_ordinals", True)) == case["translated"]
    assert [[part.kind, part] for part in parts_of(text, COPIED_KINDS) if isinstance(part, Item)] == case["items"]


@pytest.mark.parametrize("name", ["copying", "keeping", "emphasis", "restoring", "normal", "entities"])
def test_the_needs_of_a_row_hide_no_match(name):
    rows = [row for row in ROWS if row.needs and row.stage in ("keep", "form")]
    for text in _strings(vectors(name)):
        for row in rows:
            assert re.search(row.needs, text) or not re.search(row.match, text), row.id


def _strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


@pytest.mark.parametrize("text", ["WWW.A.DE", "Www.a.de", "wWw.a.de", "see www.a.de"])
def test_an_address_may_begin_with_capitals(text):
    assert reading_of(text).items


@pytest.mark.timeout(30)
def test_emoji_in_a_sentence_and_after_it_take_linear_time():
    text = "a" + "\u2600" * 50_000 + "b \u2600\ufe0f \U0001f600"
    assert translated(text) == text[:50_002]  # an exponential pattern never ends
    assert translated("a \u2600") == "a"
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
    assert _growth(lambda text: (parts_of(text, COPIED_KINDS), translated(text)), unit) < 9


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
