"""No text makes a function crawl: the time that each takes grows in proportion to a repeated text.

`tests/system/test_patterns.py` tests patterns alone. Here are the functions around them, on 400 and on 1,600 units,
and every public name of docs/api.md that takes a text.
"""

import contextlib
import gc
import inspect
import re
import time
from pathlib import Path
from pydoc import locate

import pytest

from capsule_mt import CoverageOptions, Encoder, Judge, PivotTranslator, translate_file
from capsule_mt.checks.rules import checks_of
from capsule_mt.formats.menu_keys import with_key
from capsule_mt.formats.reading import parse
from capsule_mt.formats.units import Translated
from capsule_mt.judge.numbers import read_numbers
from capsule_mt.text.reading import Piece
from capsule_mt.text.restoring import restored
from capsule_mt.text.segments import Segmenter, join_translations
from capsule_mt.text.tokenizer_protocol import Encoded
from tests.light.decoders import translator
from tests.light.judge.encoders import write_encoder
from tests.light.text.fakes import reading_of

NUM_UNITS, GROWTH = 400, 4
MAX_RATIO = 8  # quadratic time has 16; caches and memory cost linear time a little more than 4
MIN_SECONDS = 0.015  # of the longer text: below, ticks of the clock and the first use of a pattern count too much
TRIES = 4
ITEMS = ["%Ln", "%Ln ", "%s, ", "{{n{i}}} ", "{{count}} files ", "${{x}} ", "a_{i} ", "f() ", "`a` ", "#a "]
ITEMS += ["https://a.de/{i} ", "1,234.5 ", "12:30 ", "20 % ", "\xa320 ", "x \u2264 5 ", "a[1] ", "\u201c~/"]
TAGS = ["<b>a</b> ", "<b>", "</b>", "<b></b>", "<b><i>", "<br/>", "<p>Edit</p>", "**a** ", "**", "\U0001f600 "]
LINES = ["One.\\nTwo ", "Edit\n", "a\t", "{i}. a. ", "{i}) Bo. ", "\u2022 {i}. a. "]
MARKS = ['"A." B. ', "(a. b) C. ", "\u201cA. B\u201d C. ", "(", ") ", "'", "\u201c", "\xab", "a\u2014b ", "- "]
MARKS += [". . . ", "&amp; ", "&#{i}; ", "!? ", ": ", "a, ", "A \u2192 B ", "\xa3 \u0416 ", "\u0416 \xa3", "\u0416 "]
WORDS = ["a ", "THE RED HAT\n", "The Red Hat ", "Dr. A ", "\u6f22\u3002", "\u6f22 ", "e\u0301", "two 12 ", "19.45 "]
UNITS = [*ITEMS, *TAGS, *LINES, *MARKS, *WORDS]
EDGES = [
    ("a", "</b>", ""),
    ("", "<b>", "a"),
    ("", "<b></b>", "a"),
    ("", "<i>", "<b><u></b></u>a"),
    ("**", " b ", "**"),
]
FILES = {
    "po": ('msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n', 'msgid "a {i} %s"\nmsgstr ""\n\n'),
    "srt": ("", "{i}\n00:00:01,000 --> 00:00:02,000\na <i>b</i>\n\n"),
    "json": ("", '"k{i}": "a {{b}}",\n'),
    "markdown": ("", "* a **b** `c` [d](e)\n"),
    "properties": ("", "k{i}=a {{0}} b\n"),
    "html": ("", "<p>a <b>b</b> {i}</p>\n"),
    "yaml": ("de:\n", "  k{i}: a %{{b}}\n"),
    "vtt": ("WEBVTT\n\n", "00:01.000 --> 00:02.000\na <i>b</i>\n\n"),
    "strings": ("", '"k{i}" = "a %@ b";\n'),
}


class SpacedWords:
    """A tokenizer of words between spaces, and of Latin letters only, that takes constant time for a word."""

    unknown_id, special_ids, byte_ids, target_byte_ids = 0, frozenset({1}), frozenset(), frozenset()
    language_tokens = ()

    def __init__(self):
        self.ids, self.words = {}, ["", ""]

    def encode(self, text):
        spans = [match.span() for match in re.finditer(r"\S+", text)]
        return Encoded([*(self.id(text[start:end]) for start, end in spans), 1], [*spans, None])

    def id(self, word):
        if max(word) > "\u024f":
            return self.unknown_id
        if word not in self.ids:
            self.ids[word] = len(self.words)
            self.words.append(word)
        return self.ids[word]

    def encode_target(self, text):
        return self.encode(text).ids

    def decode(self, ids):
        return " ".join(self.words[token] for token in ids if token > 1)


def text_of(unit, count):
    return "".join(unit.format(i=i) for i in range(1, count + 1))


def seconds_for(function, *arguments):
    gc.disable()  # it takes longer where the suite has made more objects
    start = time.process_time()
    function(*arguments)
    seconds = time.process_time() - start
    gc.enable()
    return seconds


def grows_too_fast(function, short, long):
    """Return whether a function takes much more than four times as long for a text that is four times as long."""
    seconds = seconds_for(function, *long)
    if seconds < MIN_SECONDS:
        return False
    short_seconds = seconds_for(function, *short)
    for _ in range(TRIES - 1):
        if seconds <= MAX_RATIO * short_seconds:
            return False
        seconds = min(seconds, seconds_for(function, *long))
        short_seconds = max(short_seconds, seconds_for(function, *short))
    return seconds > MAX_RATIO * short_seconds


TOKENIZER = SpacedWords()
SEGMENTER = Segmenter(TOKENIZER, None, src_lang="en", tgt_lang="pt")


def documents(text, segmenter=SEGMENTER):
    document = segmenter.document(text)
    join_translations(document, [piece.text for piece in document.pieces], "pt")
    assert len(document.with_blank_languages) == len(text)


def lines_as_sentences(text):
    SEGMENTER._replace(split_sentences=False, keep=("numbers",)).document(text)


def checks(text):
    checks_of(text, text, "en", "pt")
    checks_of(text, text.replace("a", "o").replace("1", "2"), "en", "pt")


def retries(text):
    source = reading_of(text)
    lost = source.lost("a")
    retry = source.with_stand_ins(lost)
    (retry or source).lost(text)
    source.around_items()


def items_restored(text):
    source = Piece(reading_of(text).form, reading_of(text).parts, stand_ins={})
    restored(source, [], lambda ids: text, list)


@pytest.mark.parametrize("function", [documents, checks, retries])
@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_a_repeated_text_takes_linear_time(function, unit):
    short, long = text_of(unit, NUM_UNITS), text_of(unit, GROWTH * NUM_UNITS)
    assert not grows_too_fast(function, [short], [long])


def test_tokens_of_languages_take_linear_time():
    tokenizer = SpacedWords()
    tokenizer.language_tokens = (">>deu<<", ">>fra<<")
    segmenter = Segmenter(tokenizer, None, src_lang="en")
    texts = [text_of(">>deu<< A fish.\n", count) for count in (NUM_UNITS, GROWTH * NUM_UNITS)]
    assert not grows_too_fast(documents, *([text, segmenter] for text in texts))


def menu_key(text):
    for _ in range(10):
        with_key("_File", text)


@pytest.mark.parametrize("function", [items_restored, lines_as_sentences, menu_key])
@pytest.mark.parametrize("unit", ITEMS, ids=repr)
def test_items_take_linear_time(function, unit):
    short, long = text_of(unit, NUM_UNITS), text_of(unit, GROWTH * NUM_UNITS)
    assert not grows_too_fast(function, [short], [long])


@pytest.mark.parametrize("edges", EDGES, ids=repr)
def test_repeated_texts_at_edges_take_linear_time(edges):
    start, unit, end = edges
    short, long = (f"{start}{text_of(unit, count)}{end}" for count in (NUM_UNITS, GROWTH * NUM_UNITS))
    assert not grows_too_fast(documents, [short], [long])
    assert not grows_too_fast(retries, [short], [long])


@pytest.mark.parametrize("format", FILES)
def test_files_are_read_and_written_in_linear_time(format):
    def read_and_written(content):
        parsed = parse(content, format)
        parsed.write([Translated(unit.text) for unit in parsed.units])

    start, unit = FILES[format]
    short, long = (f"{start}{text_of(unit, count)}" for count in (NUM_UNITS, GROWTH * NUM_UNITS))
    if format == "json":
        short, long = (f"{{{text.rstrip(',')[:-2]}}}" for text in (short, long))
    assert not grows_too_fast(read_and_written, [short.encode()], [long.encode()])


ECHO = translator(tokenizer=SpacedWords(), longest_source=64)
PUBLIC = {
    "Translator.__call__": lambda text, _: ECHO(text, coverage=CoverageOptions(method="attention"), alignment=True),
    "Translator.score": lambda text, _: ECHO.score([text], [text], coverage=CoverageOptions(method="attention")),
    "Translator.cover": lambda text, _: ECHO.cover([text], [text]),
    "PivotTranslator": lambda text, _: PivotTranslator(ECHO, ECHO)(text),
    "checks.rules.checks_of": lambda text, _: checks(text),
    "translate_file": lambda text, _: translate_file(text.encode(), "markdown", ECHO),
    "Judge.score": lambda text, judge: unless_refused(judge.score, [text], [text]),
    "Encoder.encode": lambda text, judge: unless_refused(judge.encoder.encode, [text]),
    "Encoder.hidden_states": lambda text, judge: unless_refused(judge.encoder.hidden_states, [text]),
}


def unless_refused(call, *texts):
    """Call with texts, which may be too long: a refusal takes linear time, too."""
    with contextlib.suppress(ValueError):
        return call(*texts)


TEXT_ARGUMENTS = {"text", "texts", "source", "sources", "translation", "translations", "content"}
API = Path(__file__).parents[3] / "docs" / "api.md"


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    encoder = Encoder.from_pretrained(write_encoder(tmp_path_factory.mktemp("encoder")), layers=[1, 2])
    return Judge(encoder, read_numbers()._replace(layers=(1, 2)))


@pytest.mark.parametrize("unit", ["bal ", "bal. ", "<b>", "%s, ", "\u6f22\u3002", "\n"], ids=repr)
@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_takes_linear_time(name, unit, judge):
    short, long = ((text_of(unit, count), judge) for count in (NUM_UNITS, GROWTH * NUM_UNITS))
    assert not grows_too_fast(PUBLIC[name], short, long)


def test_every_public_name_that_takes_a_text_is_timed():
    entries = re.findall(r"(?m)^::: capsule_mt\.(\S+)(?:\n    options: \{members: \[(.*?)\])?", API.read_text("utf-8"))
    names = [f"{name}.{member}" if member else name for name, members in entries for member in members.split(", ")]
    assert {name for name in names if takes_text(locate(f"capsule_mt.{name}"))} == set(PUBLIC)


def takes_text(thing):
    """Return whether a public function, or the objects of a public class, are called with a text."""
    call = thing.__call__ if inspect.isclass(thing) else thing
    return bool(TEXT_ARGUMENTS & set(inspect.signature(call).parameters))


@pytest.mark.parametrize(
    ("seconds_of", "is_seen"),
    [
        (lambda size: 1e-5 * size, False),
        (lambda size: 1e-8 * size**2, True),
        (lambda size: 1e-10 * size**2, False),  # too fast to compare
    ],
)
def test_functions_whose_time_grows_faster_are_seen(monkeypatch, seconds_of, is_seen):
    monkeypatch.setattr(f"{__name__}.seconds_for", lambda function, text: seconds_of(len(text)))
    assert grows_too_fast(None, ["a" * 2_000], ["a" * 8_000]) is is_seen
