"""A run becomes a released checkpoint."""

import json
import shutil

import torch
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt import Translator
from hf_capsule_mt.training.checkpoints import mark_complete
from tests.conftest import GOLDEN
from tests.fixtures.word_for_word import sentences


def test_release(command, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_capsule_mt.hub.check_export", lambda folder: None)  # tested, and slow
    for step in (1, 2):
        shutil.copytree(GOLDEN / "word_for_word", tmp_path / "run" / f"checkpoint-{step}")
        mark_complete(tmp_path / "run" / f"checkpoint-{step}")
    recipe = {"languages": {"source": "de", "target": "en"}, "data": {"train": {"text": ["train.de", "train.en"]}}}
    training = {"recipe": recipe, "parameters": 1, "steps": 2, "scores": {"test_bleu": 46.0}, "signature": "s"}
    (tmp_path / "run" / "train_result.json").write_text(json.dumps(training))
    area = {"value": 0.9, "low": 0.8, "high": 1.0}
    found = {"word_auc": area, "precision": None, "sentence_auc": area}
    omissions = {"kind": "word omissions", "measures": {"own, 1 beams": {"guided": found}}}
    (tmp_path / "omissions.json").write_text(json.dumps(omissions))
    texts = sentences(6, seed=3)
    (tmp_path / "text").write_text("".join(f"{text}\n" for text in texts))
    options = "--last 2 --sources text --corpus tatoeba --hours 4.5 --results omissions.json"
    printed = command("release", f"run checkpoints/word-for-word {options}")
    assert "the mean of 2 checkpoints" in printed
    folder = tmp_path / "checkpoints" / "word-for-word"
    assert AutoModelForSeq2SeqLM.from_pretrained(folder).dtype == torch.float16
    kept = json.loads((folder / "translations.json").read_text())
    assert kept["sources"] == texts
    before = Translator.from_pretrained(GOLDEN / "word_for_word")(texts, num_beams=4)
    assert kept["translations"] == [translation.text for translation in before]
    card = (folder / "README.md").read_text()
    for said in (
        "CC BY 2.0 FR",
        "license: apache-2.0",
        "Training: 4.5 hours on",
        "| own, 1 beams | guided | 0.90 | - | 0.90 |",
        "46.00",
    ):
        assert said in card, said
