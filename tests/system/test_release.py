"""A run becomes a released checkpoint; the engine becomes the wheels of all platforms."""

import json
import runpy
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from capsule_mt.engine.build import TARGETS, this_platform
from capsule_mt.engine.library import LIBRARY
from hf_capsule_mt import Translator
from hf_capsule_mt.loading import stored_dtype
from hf_capsule_mt.training.checkpoints import mark_complete
from tests.conftest import GOLDEN
from tests.fixtures.word_for_word import sentences
from tools.wheels import build_wheel, check_library, check_wheel, read_library

compiles = pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang compiles for other platforms")


def test_release(monkeypatch, capsys, text_folder, tmp_path):
    for step in (1, 2):
        shutil.copytree(GOLDEN / "word_for_word", tmp_path / "run" / f"checkpoint-{step}")
        mark_complete(tmp_path / "run" / f"checkpoint-{step}")
    recipe = {"languages": {"source": "de", "target": "en"}, "data": {"train": {"text": ["train.de", "train.en"]}}}
    training = {"recipe": recipe, "parameters": 1, "steps": 2, "scores": {"test_bleu": 46.0}, "signature": "s"}
    (tmp_path / "run" / "train_result.json").write_text(json.dumps(training))
    area = {"value": 0.9, "low": 0.8, "high": 1.0}
    areas = {"word_auc": area, "precision": None, "sentence_auc": area}
    omissions = {"kind": "word omissions", "measures": {"own, greedy": {"guided": areas}}}
    (tmp_path / "omissions.json").write_text(json.dumps(omissions))
    texts = sentences(6, seed=3)
    (tmp_path / "text").write_text("".join(f"{text}\n" for text in texts))
    options = "--last 2 --sources text --corpus tatoeba --hours 4.5 --results omissions.json"
    monkeypatch.setattr("sys.argv", ["tools.release", "run", "checkpoints/word-for-word", *options.split()])
    runpy.run_module("tools.release", run_name="__main__")
    assert "the mean of 2 checkpoints" in capsys.readouterr().out
    folder = tmp_path / "checkpoints" / "word-for-word"
    assert AutoModelForSeq2SeqLM.from_pretrained(folder).dtype == torch.float32
    assert stored_dtype(folder) == torch.float16
    stored = json.loads((folder / "translations.json").read_text())
    assert stored["sources"] == texts
    translations = Translator.from_pretrained(GOLDEN / "word_for_word")(texts, num_beams=4)
    assert stored["translations"] == [translation.text for translation in translations]
    assert not list(folder.glob("*.py"))
    card = (folder / "README.md").read_text()
    for line in (
        "CC BY 2.0 FR",
        "license: apache-2.0",
        "4.5 hours on",
        "| own, greedy | guided | 0.90 | - | 0.90 |",
        "46.00",
        "import hf_capsule_mt",
    ):
        assert line in card, line


@compiles
@pytest.mark.skipif(not Path(LIBRARY).exists(), reason="the native engine was not built here")
def test_the_library_of_this_platform():
    library = read_library(Path(LIBRARY).read_bytes())
    check_library(library, this_platform())
    for platform in TARGETS.keys() - {this_platform()}:
        with pytest.raises(ValueError, match=f"the library is not for {platform}: it is "):
            check_library(library, platform)


@compiles
@pytest.mark.slow
@pytest.mark.parametrize("target", ["arm64-macos", "x86_64-windows"])
def test_wheels_of_other_platforms(target, tmp_path):
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    check_wheel(build_wheel(target, tmp_path), target)
