"""`capsule-mt shortlist`: it finds the translations of words, and the checkpoint decodes with it."""

import dataclasses
import shutil
import sys

import pytest

from hf_capsule_mt import Translator
from hf_capsule_mt.commands import shortlist, translate
from hf_capsule_mt.fast import Shortlist
from hf_capsule_mt.pipelines.files import WindowedOutput
from tests.conftest import GOLDEN
from tests.fixtures.word_for_word import TRANSLATION, sentences


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


def test_it_finds_the_translations(checkpoint):
    translator = Translator.from_pretrained(checkpoint, device="cpu", backend="torch")
    found = Shortlist.load(checkpoint)
    ids = translator.tokenizer.convert_tokens_to_ids
    for word, translation in TRANSLATION.items():
        tokens = found.of_source([ids(word)])
        assert ids(translation) in tokens.tolist()
        assert len(tokens) <= 5


def test_translations_with_it_are_the_same(checkpoint):
    texts = sentences(20, seed=4)
    whole, listed = (
        Translator.from_pretrained(checkpoint, device="cpu", shortlist=shortlist) for shortlist in (False, True)
    )
    for one, other in zip(whole(texts, batch_size=5), listed(texts, batch_size=5), strict=True):
        assert one.text == other.text


def test_an_interrupted_run_resumes_with_the_same_shortlist_alone(checkpoint, tmp_path, monkeypatch):
    def translated(*words):
        words = ("capsule-mt", str(checkpoint), "--cpu", "--input", "in", "--output", "out", *words)
        monkeypatch.setattr("sys.argv", list(words))
        return translate.main()

    def stop(output):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("\n".join(sentences(3, seed=5)))
    found = Shortlist.load(checkpoint)
    dataclasses.replace(found, frequent=found.frequent[:1]).save(tmp_path / "other")
    with monkeypatch.context() as patched:
        patched.setattr(WindowedOutput, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            translated("--shortlist")
    for words in ((), ("--shortlist", "other")):
        with pytest.raises(ValueError, match=r"other settings \(shortlist: '.*' then, .* now\)"):
            translated(*words)
    assert translated("--shortlist") == 0
