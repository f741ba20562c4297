"""What is kept, by real models: see tests/light/text/test_keeping.py."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from transformers import pipeline

from capsule_mt.text.keeping import KEPT, Item, parts_of
from hf_capsule_mt import CoverageOptions, Translator

ROOT = Path(__file__).resolve().parents[2]
RELEASED = ROOT / "checkpoints" / "capsule-marian-de-en"
SCRIPT = ROOT / "scripts" / "translate.py"


def items(text, kinds=KEPT):
    return Counter(part for part in parts_of(text, kinds) if isinstance(part, Item))


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


def test_with_coverage_and_several_translations():
    translator = Translator.from_pretrained(RELEASED, device="cpu")
    text = "Der <b>alte Mann</b> besucht https://a.de/1."
    found = translator(text, keep=KEPT, num_beams=3, num_return_sequences=3, coverage=CoverageOptions())
    assert len({one.token_ids for one in found}) == 3
    for one in found:
        assert items(one.text) == items(text)
        words = [text[word.start : word.end] for word in one.coverage.words]
        assert words[:4] == ["Der", "alte", "Mann", "besucht"]
        assert "".join(words[4:]) == "https://a.de/1."


def test_any_model(word_for_word):
    """By deletion, where no head aligns."""
    translator = Translator.from_pretrained(word_for_word)
    assert translator("balu <b>bamo</b>", keep=["tags"]).text == "ULAB <b>OMAB</b>"


def test_errors(word_for_word):
    translator = Translator.from_pretrained(word_for_word)
    for keep in ("tags", ["colours"]):
        with pytest.raises(ValueError, match="keep"):
            translator("balu bamo", keep=keep)
    with pytest.raises(TypeError, match="must be a string"):
        translator(["balu", 3], keep=["tags"])


def test_the_command(word_for_word, tmp_path):
    source = tmp_path / "text"
    source.write_text("balu <b>bamo</b>\n\n<i>balu</i> {x}\n")
    command = [sys.executable, str(SCRIPT), str(word_for_word), "--cpu", "--input", str(source)]
    run = {"capture_output": True, "text": True, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
    lines = subprocess.run([*command, "--keep", "tags,placeholders"], check=True, **run).stdout.splitlines()
    assert lines[0] == "ULAB <b>OMAB</b>"
    assert lines[1] == ""
    assert items(lines[2]) == items("<i>balu</i> {x}")
    refused = subprocess.run([*command, "--keep", "tag"], check=False, **run)
    assert refused.returncode == 2
    assert "tags,urls" in refused.stderr
