"""Tags, placeholders, URLs and numbers of a text: all are in its translation, as often, whatever the model writes."""

import random
import re
import time
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from capsule_mt import CoverageOptions, Translator
from capsule_mt.engine.search import Hypothesis
from capsule_mt.text.keeping import Item, parts_of
from capsule_mt.text.reading import is_number_placeholder
from capsule_mt.text.rewriting import Edit
from capsule_mt.text.rules import COPIED_KINDS, KEEP_KINDS, STAND_INS
from capsule_mt.text.vocabulary import vocabulary_of
from capsule_mt.text.words import WORDS
from tests.fixtures.vectors import vectors
from tests.light.decoders import translator
from tests.light.text.fakes import WordTokenizer, reading_of

ROOT = Path(__file__).resolve().parents[3]
VECTORS = vectors("keeping")
NAMES = re.compile(rf"\b(?:{'|'.join(STAND_INS['name'])})")


def items(text, kinds=KEEP_KINDS):
    return Counter(part for part in parts_of(text, kinds) if isinstance(part, Item))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < b and c > d, 5<6", ["5", "6"]),
        (
            '<a href="https://a.de/1">b</a><br/><!-- 3 -->',
            ['<a href="https://a.de/1">', "</a>", "<br/>", "<!-- 3 -->"],
        ),
        ("b" * 100_000, []),  # in no time
        ("See https://a.de/b?c=1&d=2. Or www.a.de, a.b@c.de!", ["https://a.de/b?c=1&d=2", "www.a.de", "a.b@c.de"]),
        (
            "{name} {{x}} ${y} %s %(z)s %1$d 100 % sure %ENV%",
            ["{name}", "{{x}}", "${y}", "%s", "%(z)s", "%1$d", "100", "%ENV%"],
        ),
        (
            "%2$.2f %-10s %5d %lu %zu %{x} %1 %n %@ %% 50 % of 5%",
            ["%2$.2f", "%-10s", "%5d", "%lu", "%zu", "%{x}", "%1", "%n", "%@", "%%", "50", "5"],
        ),
        ("3.000,50 at 7:15 on 2026-11-23. A6, 12.", ["3.000,50", "7:15", "2026-11-23", "12"]),
    ],
)
def test_what_is_kept(text, expected):
    parts = parts_of(text, KEEP_KINDS)
    assert [part for part in parts if isinstance(part, Item)] == expected
    assert "".join(parts) == text


class Fake:
    """A model that writes what `write` returns; a word aligns with the source words that are equal but for case."""

    prefers_no_scores = False

    def __init__(self, write):
        self.write, self.tokenizer, self.sources = write, WordTokenizer(), []
        self.model = translator(self, self.tokenizer)

    def translate(self, sources, options):
        self.sources += map(self.tokenizer.decode, sources)
        hypotheses = []
        for source in sources:
            ids = [*map(self.tokenizer.id, self.write(self.tokenizer.decode(source))), 1]
            first, *rows = self.align(source, ids)  # the head attends to what the decoder has just read
            hypotheses.append([Hypothesis(ids, [-1.0] * len(ids), False, [first, first, *rows][: len(ids)])])
        return hypotheses

    def align(self, source, target):
        words = [[self.tokenizer.words[number].strip(".,:!()").upper() for number in ids] for ids in (source, target)]
        return [[float(source_word == target_word != "") for source_word in words[0]] for target_word in words[1]]

    def __call__(self, text):
        return self.model(text, keep=KEEP_KINDS, copy=False).text


@pytest.mark.parametrize("case", vectors("restoring")["tags"], ids=lambda case: case["text"])
def test_tags(case):
    assert Fake(writing(case))(case["text"]) == case["translation"]


@pytest.mark.parametrize("kind", ["tags", "copied", "counts"])
def test_what_is_put_back_by_default(kind):
    for case in vectors("restoring")[kind]:
        fake = Fake(writing(case))
        fake.tokenizer = WordTokenizer(unknown=case["unknown"])
        assert translator(fake, fake.tokenizer)(case["text"]).text == case["translation"]


def writing(case):
    outputs = dict(case["outputs"])
    return lambda source: outputs[source.removesuffix(":")].split()  # a label is also read with a colon


def test_the_sign_of_a_note_follows_its_word():
    fake = Fake(lambda source: source.upper().split())
    assert fake("one two<img/> three<img/>, four <img/>five") == "ONE TWO<img/> THREE<img/>, FOUR <img/>FIVE"


def test_tags_nested_deeper_than_python_calls():
    fake = Fake(lambda source: source.upper().split())
    opened, closed = "<b>" * 1200, "</b>" * 1200
    assert fake(f"{opened}one{closed} two") == f"{opened}ONE{closed} TWO"


@pytest.mark.parametrize("text", ["It costs $100.", "{name} has %s of 100 files.", "{w}px and %d%%", "<b>count</b>"])
def test_text_without_placeholders_for_numbers_is_read_as_it_is(text):
    assert reading_of(text, KEEP_KINDS).stand_ins == {}


@pytest.mark.parametrize("part", ["n.", "n, ", "count_"])
def test_long_placeholders_take_linear_time(part):
    start = time.process_time()
    for opening in "{", "$":
        text = f"{opening}{part * (200_000 // len(part))}("
        assert not is_number_placeholder(Edit("placeholder", 0, len(text), None, text))
    assert time.process_time() - start < 5  # a quadratic pattern needs minutes


def test_parts_belong_to_their_caller():
    parts_of("<b>bold", ["tags"]).clear()  # the parts of a text are cached
    assert parts_of("<b>bold", ["tags"]) == ["<b>", "bold"]


def test_stand_ins():
    """A model that copies names and numbers, and nothing else."""

    def write(source):
        words = [word for word in source.split() if re.fullmatch(r"[A-Za-z]+|[\d:]+", word)]
        return words[::-1] or ["nothing"]

    fake = Fake(write)
    assert fake("go https://a.de/1 or {x} at 7:15 and 9 Tom") == "Tom 9 and 7:15 at {x} or https://a.de/1 go"
    assert fake.sources[-1] == "go John or Boston at 7:15 and 9 Tom"  # not Tom, whom the text has


def test_a_sentence_is_cut_around_what_the_model_never_keeps():
    fake = Fake(lambda source: re.sub(r"\S*[\d{]\S*|Tom|\b[A-Z]\w+", "", source).upper().split())
    assert fake("see {x} at 12, and 12 go https://a.de/1") == "SEE {x} AT 12, AND 12 GO https://a.de/1"


def test_a_part_around_items_begins_as_its_source_does():
    fake = Fake(lambda source: re.sub(r"\S*[\d{]\S*|Tom|\b[A-Z]\w+", "", source).strip().capitalize().split())
    assert fake("see {x} at home or {y}") == "see {x} at home or {y}"


@pytest.mark.parametrize("change", ["{}WELCOME", "{0} {0}", "LONDRES"])
def test_no_stand_in_is_printed(change):
    """A model that glues each name to a word, writes it twice, or translates it."""
    fake = Fake(lambda source: re.sub(r"[A-Z]\w+", lambda name: change.format(name[0]), source).split())
    assert fake("go to {x} and {y}, they said") == "go to {x} and {y}, they said"


def test_a_kept_number_and_its_sign_are_one_item():
    fake = Fake(lambda source: source.upper().split())
    fake.tokenizer = WordTokenizer(unknown=["£", "a£a", "\xd7", "a\xd7a"])
    model = translator(fake, fake.tokenizer)
    assert model("pay £ 20 and 3 \xd7 4 or 7", keep=["numbers"]).text == "PAY £ 20 AND 3 \xd7 4 OR 7"
    assert fake.sources == ["pay 20 and 30 or 7"]


def test_other_stand_ins_are_tried_first():
    fake = Fake(lambda source: source.replace("Tom", "Thomas").replace("{x}", "it").split()[::-1])
    assert fake("go to {x} now") == "now {x} to go"
    assert fake.sources == ["go to {x} now", "go to Tom now", "go to John now"]


def test_whatever_the_model_writes():
    """It may forget, repeat, invent and reorder: what is kept is there as often as in the source, pairs in order."""
    rng = random.Random(7)
    markup = [
        "<b>",
        "</b>",
        "<i>",
        "</i>",
        "<br/>",
        "<img src='1.png'>",
        "{x}",
        "%s",
        "https://a.de/1",
        "https://a.de",
    ]
    markup += ["www.a.de", "a@b.de", "7", "7", "3.000", "2013", "</p>"]
    words = ["one", "Tom", "is", "two.", "Ä-b", "so,", "(and)", "good!", "20", "1. Mai", "日本。", "%"]
    noise = [*words, "</b>", "{y}", "%s", "7", "20", "Tom", "https://a.de", "<i>"]

    def write(source):
        chosen_words = [word for word in source.split() if rng.random() < 0.8]
        chosen_words += rng.choices(noise, k=rng.randrange(3))
        rng.shuffle(chosen_words)
        return chosen_words

    fake = Fake(write)
    fake.align = lambda source, target: [[rng.random() for _ in source] for _ in target]
    num_with_words = 0

    def written(text):  # also where a word of the model is glued to it
        return Counter(re.findall(r"<[^>]+>|\{\w\}|%s|https://a.de(?:/1)?|www.a.de|a@b.de", text))

    for _ in range(400):
        chosen = [rng.choice(markup if rng.random() < 0.5 else words) for _ in range(rng.randrange(1, 14))]
        text = "".join(word + (" " if rng.random() < 0.8 or word[-1] == "s" else "") for word in chosen)
        translation = fake(text)
        assert written(translation) == written(text), (text, translation)
        numbers = Counter(
            part for part in parts_of(text, KEEP_KINDS) if isinstance(part, Item) and part.kind == "numbers"
        )
        assert not numbers - items(translation), (text, translation)
        num_with_words += bool(WORDS.search(re.sub(r"<[^>]*>", "", text)))
    assert num_with_words > 300


@pytest.fixture(scope="module", params=["checkpoints/capsule-marian-en-de", "tests/golden/capsule_marian"])
def real(request):
    return Translator.from_pretrained(ROOT / request.param, int8=True)


@pytest.mark.parametrize("kind", ["placeholders", "signs"])
def test_what_is_glued_and_what_the_vocabulary_lacks_is_kept(real, kind):
    """60 placeholders and 40 signs, whatever a real model and its tokenizer make of them."""
    texts = [text for text, _ in VECTORS[kind]]
    assert len(texts) >= {"placeholders": 60, "signs": 40}[kind]
    covers = vocabulary_of(real.loaded.tokenizer).covers
    for (text, items), translation in zip(VECTORS[kind], real(texts, batch_size=32), strict=True):
        for item in items:
            if kind == "placeholders" or not covers(re.sub(r"[\w.,\s]", "", item)):  # the model may change others
                # "\xa31,234.56" is "\xa31.234,56" in German
                forms = {item, item.translate(str.maketrans(",.\u2019", ".,."))}
                count = sum(translation.text.count(form) for form in forms)
                assert count == text.count(item), (text, translation.text)
        assert not NAMES.search(translation.text) or NAMES.search(text), (text, translation.text)


def test_a_sentence_begins_after_a_glued_placeholder():
    fake = Fake(lambda source: source.upper().split())
    model = translator(fake, fake.tokenizer)
    assert model("{0}welcome back.").text == "{0}WELCOME BACK."
    assert model("press item{0} now").text == "PRESS ITEM{0} NOW"
    assert model("hello {name}welcome to {x}.").text == "HELLO {name}WELCOME TO {x}."


@pytest.mark.parametrize("case", vectors("emphasis")["cases"], ids=repr)
def test_a_model_does_not_read_marks_of_emphasis(case):
    source = reading_of(case["text"])
    assert source.text == case["read"]
    assert [part.written for part in source.parts if part.edit.row == "emphasis"] == case["marks"]


@pytest.mark.parametrize("mark", ["_", "*", "~"])
def test_the_parts_of_a_text_are_the_text(mark):
    for characters in product(mark + "a (", repeat=6):
        text = "".join(characters)
        assert "".join(parts_of(text, COPIED_KINDS)) == text


def test_a_blank_to_fill_in_stays_as_it_is():
    fake = Fake(lambda source: source.upper().split())
    model = translator(fake, fake.tokenizer)
    for text in ("name: ____", "the ___ is here", "the __ man is _____ here now."):
        assert model(text).text == text.upper()


def test_emphasis_is_around_the_same_words():
    model = Translator.from_pretrained(ROOT / "checkpoints/capsule-marian-en-de")
    plain = model("The old man buys a red hat.").text
    assert plain == "Der alte Mann kauft einen roten Hut."
    assert model("The old man buys a **red hat**.").text == "Der alte Mann kauft einen **roten Hut**."
    assert model("**The old man** buys a red hat.").text == "**Der alte Mann** kauft einen roten Hut."
    assert model("*The old man buys a red hat.*").text == f"*{plain}*"
    translation = model("The **old** man buys a _red_ hat.", coverage=CoverageOptions(), alignment=True)
    assert translation.text.replace("**", "").replace("_", "") == plain
    assert [word.text for word in translation.coverage.words] == ["The", "old", "man", "buys", "a", "red", "hat", "."]
