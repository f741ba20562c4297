"""What `capsule-mt calibrate` and `capsule-mt shortlist` write into a checkpoint, and that it is used."""

import json
import random
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from transformers import MarianConfig, MarianMTModel

import capsule_mt
from capsule_mt.commands import calibrate
from capsule_mt.coverage.calibration import calibrating
from capsule_mt.models.shortlist import Shortlist
from hf_capsule_mt import CoverageOptions, Translator
from hf_capsule_mt.commands import shortlist
from tests.conftest import GOLDEN
from tests.fixtures.students import LETTERS, write_student
from tests.fixtures.word_for_word import TRANSLATION, sentences


@pytest.fixture
def run(tmp_path, monkeypatch, call):
    texts = sentences(160, seed=5)
    (tmp_path / "a").write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "b").write_text("".join(" ".join(TRANSLATION[w] for w in text.split()) + "\n" for text in texts))
    shutil.copytree(GOLDEN / "word_for_word", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return lambda arguments: call(calibrate, *arguments.split())[1]


def test_calibrate(run, tmp_path):
    weights = (tmp_path / "model" / "model.safetensors").read_bytes()
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    printed = run("model a b --sentences 60")
    after = json.loads((tmp_path / "model" / "config.json").read_text())
    curves = after.pop("coverage_calibration")
    assert after == config
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == weights
    assert (curves.pop("optional_words"), curves.pop("function_words")) == ([], [])
    assert set(curves) == {"deletion"}
    assert "attention: the decoder has no head that shows missing words; the best has an area" in printed
    for method in curves:
        assert f"{method}, on 18 held-out sentences" in printed
    # whole translations have high scores
    shares = re.findall(r"^0 +1\.00 +(\d\.\d+)$", printed, re.MULTILINE)
    assert [float(score) > 0.9 for score in shares] == [True]
    translator = Translator.from_pretrained(tmp_path / "model")
    texts = sentences(20, seed=11)
    complete = [[TRANSLATION[word] for word in text.split()] for text in texts]
    for method in curves:
        means = [
            mean(
                coverage.score
                for coverage in translator.cover(texts, translations, coverage=CoverageOptions(method=method))
            )
            for translations in (
                [" ".join(words) for words in complete],
                [" ".join(words[:1] + words[2:]) for words in complete],
            )
        ]
        assert means[0] > 0.9
        assert means[1] < 0.85


def test_a_stock_marian(run, tmp_path):
    """Its configuration has no field for a calibration."""
    fields = json.loads((tmp_path / "model" / "config.json").read_text())
    config = MarianConfig(**{name: fields[name] for name in MarianConfig().to_dict() if name in fields})
    shutil.copytree(tmp_path / "model", tmp_path / "stock")
    MarianMTModel(config).save_pretrained(tmp_path / "stock")
    assert "coverage_calibration" not in (tmp_path / "stock" / "config.json").read_text()
    run("stock a b --sentences 20 --method deletion")
    assert set(json.loads((tmp_path / "stock" / "config.json").read_text())["coverage_calibration"]) >= {"deletion"}


def test_a_folder_of_marian(run, tmp_path):
    """Its calibration is beside the model, whose files stay as they are."""
    folder, letters = write_student(tmp_path / "student"), [letter for letter in LETTERS if letter.isalpha()]
    text = "".join(f"{' '.join(random.Random(n).sample(letters, 6))}\n" for n in range(40))
    (tmp_path / "letters").write_text(text)
    contents = {file.name: file.read_bytes() for file in folder.iterdir()}
    for output, folder_name in (("--output out", "out"), ("", "student"), ("--output student", "student")):
        printed = run(f"student letters letters --sentences 20 --method deletion {output}")
        assert printed.splitlines()[-1] == str(Path(folder_name, "coverage.json"))
        content = {file.name: file.read_bytes() for file in Path(folder_name).iterdir()}
        calibration = json.loads(content.pop("coverage.json"))
        assert content == contents
        assert set(calibration) == {"deletion", "function_words", "optional_words"}
        assert capsule_mt.Translator.from_pretrained(folder_name).loaded.calibration == calibration


def cover_as_if(monkeypatch, is_low):
    """Let what is said of a word depend on `is_low(coverage_calibration, word, whether it is missing)` alone."""
    cover = calibrating.coverage_of_examples

    def as_if(translator, examples, method, *, progress=True):
        config, coverages = translator.loaded.calibration, []
        for example, coverage in zip(examples, cover(translator, examples, method, progress=progress), strict=True):
            missing = {start for (start, _), is_omitted in example.is_omitted.items() if is_omitted}
            probabilities = [0.9 - 0.8 * is_low(config, word.text, word.start in missing) for word in coverage.words]
            words = [replace(word, covered=share) for word, share in zip(coverage.words, probabilities, strict=True)]
            coverages.append(replace(coverage, words=tuple(words)))
        return coverages

    monkeypatch.setattr(calibrating, "coverage_of_examples", as_if)


def test_a_head_is_chosen(run, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"the decoder has no head that shows missing words; .* less than 0\.85"):
        run("model a b --sentences 20 --method attention")
    cover_as_if(monkeypatch, lambda config, text, missing: missing and config["attention"]["head"] == [1, 2])
    printed = run("model a b --sentences 20 --method attention")
    assert "attention: layer 1, head 2, with an area under the ROC curve of 1.000" in printed
    translator = Translator.from_pretrained(tmp_path / "model")
    assert translator.model.config.coverage_calibration["attention"]["head"] == [1, 2]
    text = sentences(1, seed=3)[0]
    automatic, by_attention = (
        translator(text, coverage=CoverageOptions(**options)) for options in ({}, {"method": "attention"})
    )
    assert automatic == by_attention


def test_a_text_that_shows_no_head_leaves_a_calibration_as_it_was(run, tmp_path):
    config = tmp_path / "model" / "config.json"
    calibrated = {**json.loads(config.read_text()), "coverage_calibration": {"attention": {"head": [1, 2]}}}
    config.write_text(json.dumps(calibrated))
    with pytest.raises(ValueError, match=r"0\.85; the calibration with layer 1, head 2, stays as it was: .*text"):
        run("model a b --sentences 20")
    assert json.loads(config.read_text()) == calibrated


def test_words_often_marked_in_whole_references_are_optional(run, tmp_path, monkeypatch):
    cover_as_if(
        monkeypatch,
        lambda config, text, missing: (missing and config["attention"]["head"] == [1, 2]) or text == "balu",
    )
    assert "optional words: balu\n" in run("model a b --sentences 60 --method attention")
    config = tmp_path / "model" / "config.json"
    assert json.loads(config.read_text())["coverage_calibration"]["optional_words"] == ["balu"]
    # another method keeps the list to which the curves of the first were fitted
    cover_as_if(monkeypatch, lambda config, text, missing: missing)
    assert "optional words" not in run("model a b --sentences 60 --method deletion")
    assert json.loads(config.read_text())["coverage_calibration"]["optional_words"] == ["balu"]
    assert "optional words: none\n" in run("model a b --sentences 60 --method attention deletion")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shortlist")
    shutil.copytree(GOLDEN / "word_for_word", folder / "checkpoint")
    texts = sentences(200, seed=3)
    translations = [" ".join(TRANSLATION.get(word, word) for word in text.split()) for text in texts]
    (folder / "source").write_text("\n".join(texts) + "\n", encoding="utf-8")
    (folder / "target").write_text("\n".join(translations) + "\n", encoding="utf-8")
    argv = ["capsule-mt shortlist", *(str(folder / name) for name in ("checkpoint", "source", "target"))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [*argv, "--best", "2", "--frequent", "3"])
        shortlist.main()
    return folder / "checkpoint"


def test_a_shortlist_finds_the_translations(checkpoint):
    translator = Translator.from_pretrained(checkpoint, device="cpu")
    shortlist = Shortlist.load(checkpoint)
    ids = translator.tokenizer.convert_tokens_to_ids
    for word, translation in TRANSLATION.items():
        tokens = shortlist.of_source([ids(word)])
        assert ids(translation) in tokens
        assert len(tokens) <= 5
