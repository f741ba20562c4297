"""Tags, placeholders, URLs and numbers of a text: all are in its translation, as often, whatever the model writes."""

import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import pipeline

from hf_capsule_mt import CoverageOptions, Translator
from hf_capsule_mt.pipelines import PrefixedText, Segment, Translation
from hf_capsule_mt.pipelines.keeping import Item, Keeper, parts_of
from hf_capsule_mt.pipelines.results import KEPT
from hf_capsule_mt.pipelines.words import WORDS

RELEASED = Path(__file__).resolve().parents[2] / "checkpoints" / "capsule-marian-de-en"
KEPT_BUT_NUMBERS = KEPT[:3]


def items(text, kinds=KEPT):
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
        ("3.000,50 at 7:15 on 2026-11-23. A6, 12.", ["3.000,50", "7:15", "2026-11-23", "12"]),
    ],
)
def test_what_is_kept(text, expected):
    parts = parts_of(text, KEPT)
    assert [part for part in parts if isinstance(part, Item)] == expected
    assert "".join(parts) == text


class Fake:
    """A model of words, one token each, which may write anything; `align` says which source word a word is of."""

    def __init__(self, write):
        self.write = write
        self.seen = []

    def translate(self, sources):
        self.seen.append(sources)
        found = []
        for source in sources:
            words = self.write(source)
            segment = Segment(0, len(source), (1, 2), tuple(range(1 + len(words))), was_cut=False)
            self.words = {**getattr(self, "words", {}), source: words}
            found.append(Translation(" ".join(words), -1.0, None, (segment,)))
        return found

    def effects(self, source, segment, spans):
        """Each word depends on the word that it is in capitals."""
        given = [source[start:end].upper() for start, end in spans]
        return torch.tensor([[8.0 * (own == word.strip(".,")) for word in self.words[source]] for own in given])

    def ends(self, segment):
        (words,) = [words for words in self.words.values() if len(words) == len(segment.target_ids) - 1][-1:]
        return [len(" ".join(words[: n + 1])) for n in range(len(words))]

    def keeper(self, kinds=KEPT):
        return Keeper(kinds, self.translate, self.effects, self.ends)


def reverse(source):
    """Write the words in capitals, the last one first."""
    marks = source[-1:] if source[-1:] in ".!?" else ""
    words = source.removesuffix(marks).split()[::-1]
    return [word.upper() for word in words[:-1]] + [words[-1].upper() + marks]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one <b>two</b> three.", "THREE <b>TWO</b> ONE."),
        ("<b>one two</b> three.", "THREE <b>TWO ONE</b>."),
        ("<p>one <b>two <i>three</i> four</b> five.</p>", "<p>FIVE <b>FOUR <i>THREE</i> TWO</b> ONE.</p>"),
        ("<b><i>one</i></b> <u>two</u>", "<u>TWO</u> <b><i>ONE</i></b>"),
        ("<b>One two.</b> <i>Three</i> four.", "<b>TWO ONE.</b> FOUR <i>THREE</i>."),
        ("one.<br>two three", "ONE.<br>THREE TWO"),
        ("<b></b>one <i></i>two", "<b></b><i></i>TWO ONE"),
        ("<!-- a --> one two <!-- b -->", "<!-- a --> TWO ONE <!-- b -->"),
        ("<b>One. Two</b> three.", "<b>ONE. </b>THREE TWO."),
        ("one <img/>", "ONE <img/>"),
        ("<b> one two </b>", "<b> TWO ONE </b>"),
        ("  <br/>  ", "  <br/>  "),
        ("", ""),
    ],
)
def test_tags(text, expected):
    (found,) = Fake(reverse).keeper()([text])
    assert found.text == expected


def test_an_empty_translation_keeps_tags():
    (found,) = Fake(lambda source: []).keeper()(["Hm <b>ja</b> gut"])
    assert "<b></b>" in found.text.replace(" ", "")


def test_overlapping_tags_keep_their_order():
    text = "one <b>two <i>three</b> four</i> five."
    (found,) = Fake(reverse).keeper()([text])
    assert [tag for tag in parts_of(found.text, ["tags"]) if isinstance(tag, Item)] == ["<b>", "<i>", "</b>", "</i>"]


def test_items_that_a_model_copies_are_where_it_puts_them():
    fake = Fake(lambda source: source.split()[::-1])
    (found,) = fake.keeper()(["go https://a.de/1 or {x} at 7:15 and 7:15"])
    assert found.text == "7:15 and 7:15 at {x} or https://a.de/1 go"
    assert len(fake.seen) == 1


def test_stand_ins():
    """A model that copies names and a few numbers, and nothing else."""

    def write(source):
        words = [word for word in source.split() if re.fullmatch(r"[A-Za-z]+|[1-5]0", word)]
        return words[::-1] or ["nothing"]

    fake = Fake(write)
    (found,) = fake.keeper()(["go https://a.de/1 or {x} at 7:15 and 9 Tom"])
    assert found.text == "Tom 9 and 7:15 at {x} or https://a.de/1 go"
    assert fake.seen[-1] == ["go John or Boston at 20 and 30 Tom"]  # there is a Tom


def test_a_sentence_is_cut_where_nothing_is_copied():
    (found,) = Fake(lambda source: re.sub(r"\S*[\d{]\S*|Tom|\b[A-Z]\w+", "gone", source).split()).keeper()(
        ["see {x} at 12, and 12 go https://a.de/1"]
    )
    assert found.text == "see {x} at 12, and 12 go https://a.de/1"


def test_whatever_the_model_writes():
    """It may forget, repeat, invent and reorder: what is kept is there as often as in the source, pairs in order."""
    rng = random.Random(7)
    kept = ["<b>", "</b>", "<i>", "</i>", "<br/>", "<img src='1.png'>", "{x}", "%s", "https://a.de/1", "https://a.de"]
    kept += ["www.a.de", "a@b.de", "7", "7", "3.000", "2013", "</p>"]
    words = ["one", "Tom", "is", "two.", "Ä-b", "so,", "(and)", "good!", "20", "1. Mai", "日本。", "%"]
    noise = [*words, "</b>", "{y}", "%s", "7", "20", "Tom", "https://a.de", "", "<i>"]

    def write(source):
        found = [word for word in source.split() if rng.random() < 0.8]
        found += rng.choices(noise, k=rng.randrange(3))
        rng.shuffle(found)
        return found

    class Random(Fake):
        def effects(self, source, segment, spans):
            return torch.rand(len(spans), len(segment.target_ids) - 1) * rng.choice([0, 1, 9])

        def ends(self, segment):
            return sorted(rng.randrange(60) for _ in segment.target_ids[1:])

    texts = []
    for _ in range(400):
        chosen = [rng.choice(kept if rng.random() < 0.5 else words) for _ in range(rng.randrange(1, 14))]
        texts.append("".join(word + rng.choice(["", " ", " "]) for word in chosen))
    for text, found in zip(texts, Random(write).keeper(KEPT)(texts), strict=True):
        assert items(found.text, KEPT_BUT_NUMBERS) == items(text, KEPT_BUT_NUMBERS), (text, found.text)
        of_text = Counter(part for part in parts_of(text, KEPT) if isinstance(part, Item) and part.kind == "numbers")
        assert not of_text - items(found.text), (text, found.text)
    plain = [re.sub(r"<[^>]*>", "", text) for text in texts]
    assert sum(bool(WORDS.search(text)) for text in plain) > 300


def test_the_released_model():
    translator = Translator.from_pretrained(RELEASED, device="cpu")
    text = "<p>Siehe https://example.org/a?b=1, {name}!</p> Der alte <b>Mann</b> kauft 7 <i>rote Hüte</i>."
    (found,) = translator([text], keep=list(KEPT), num_beams=4)
    assert items(found.text) == items(text)
    assert "<b>man</b>" in found.text
    assert "<i>red hats</i>" in found.text
    assert found.text.startswith("<p>")
    assert found.score < 0
    assert [text[segment.start : segment.end] for segment in found.segments][-1].startswith("Der alte")
    plain = translator("Der Mann schläft.", num_beams=4)
    assert translator("Der Mann schläft.", keep=KEPT, num_beams=4).text == plain.text
    ((record,),) = [pipeline("translation", model=str(RELEASED))(text, keep=["urls"], num_beams=4)]
    assert "https://example.org/a?b=1" in record["translation_text"]


def test_errors(word_for_word):
    translator = Translator.from_pretrained(word_for_word)
    for error, options in (
        (ValueError, {"keep": "tags"}),
        (ValueError, {"keep": ["colours"]}),
        (ValueError, {"keep": ["tags"], "coverage": CoverageOptions()}),
        (ValueError, {"keep": ["tags"], "num_beams": 2, "num_return_sequences": 2}),
    ):
        with pytest.raises(error, match="keep"):
            translator("balu bamo", **options)
    with pytest.raises(TypeError, match="PrefixedText"):
        translator(PrefixedText("balu", "ULAB"), keep=["tags"])
    with pytest.raises(TypeError, match="must be a string"):
        translator(["balu", 3], keep=["tags"])


def test_the_command(word_for_word, tmp_path):
    source = tmp_path / "text"
    source.write_text("balu <b>bamo</b>\n\n<i>balu</i> {x}\n")
    command = [sys.executable, "-m", "hf_capsule_mt", "translate", str(word_for_word), "--cpu", "--input", str(source)]
    run = {"capture_output": True, "text": True}
    lines = subprocess.run([*command, "--keep", "tags,placeholders"], check=True, **run).stdout.splitlines()
    assert lines[0] == "ULAB <b>OMAB</b>"
    assert lines[1] == ""
    assert items(lines[2]) == items("<i>balu</i> {x}")
    for options, message in ((["--keep", "tag"], "tags,urls"), (["--keep", "tags", "--n-best", "2"], "--n-best")):
        refused = subprocess.run([*command, "--num-beams", "2", *options], check=False, **run)
        assert refused.returncode == 2
        assert message in refused.stderr
