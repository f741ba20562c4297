"""Files of a downloaded model that change under a running or a restarted command: refused by name, never used."""

import json
import os
import shutil

import pytest

from capsule_mt import Translator, load
from capsule_mt.catalog.entries import FACTS_FILE, cache_folder
from capsule_mt.commands import calibrate, translate
from capsule_mt.commands.serve import ModelList, command_parser
from capsule_mt.coverage.calibration import calibrating
from capsule_mt.files.digests import file_digest
from capsule_mt.files.windows import WindowedOutput
from capsule_mt.models import loading
from capsule_mt.models.weights import CheckpointError
from capsule_mt.translate import first_use
from tests.fixtures.students import write_student
from tests.fixtures.word_for_word import TEXTS, TRANSLATION, sentences

CHANGES = {
    "truncated": (lambda content: content[:-1], r"has \d+ bytes, but had \d+ when it was downloaded"),
    "other bytes": (lambda content: content[:-1] + bytes([content[-1] ^ 0x80]), "its content has changed since"),
}


def write_facts(folder):
    """Write what a download has written beside its files."""
    (folder / FACTS_FILE).unlink(missing_ok=True)
    files = {file.name: {"size": file.stat().st_size, "sha256": file_digest(file)} for file in folder.iterdir()}
    (folder / FACTS_FILE).write_text(json.dumps({"name": folder.name, "licence": "MPL-2.0", "files": files}))


@pytest.fixture
def folder(hub, word_for_word):
    """The model of word_for_word, as if it had been downloaded as de-en."""
    folder = shutil.copytree(word_for_word, cache_folder() / "mozilla" / "de-en")
    write_facts(folder)
    return folder


def change(file, how):
    """Write other content, and set the old time."""
    content, status = file.read_bytes(), file.stat()
    file.write_bytes(CHANGES[how][0](content))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    return content


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "generation_config.json"])
def test_a_file_that_changes_after_the_first_use_is_refused(name, how, folder, call):
    expected = load("de-en")(TEXTS[0]).text
    content = change(folder / name, how)
    for use in (load, Translator.from_pretrained, lambda name: call(translate, name, text=TEXTS[0])):
        with pytest.raises(CheckpointError, match=rf"{name}: {CHANGES[how][1]}.*: run `capsule-mt models remove de-e"):
            use("de-en")
    (folder / name).write_bytes(content)
    assert load("de-en")(TEXTS[0]).text == expected


def test_files_that_were_touched_are_compared_once(folder, monkeypatch):
    load("de-en")
    compared = []
    monkeypatch.setattr(first_use, "file_digest", lambda file: compared.append(file) or file_digest(file))
    load("de-en")
    assert not compared
    os.utime(folder / "tokenizer.json")
    load("de-en")
    assert len(compared) == len(list(folder.iterdir())) - 1
    compared.clear()
    load("de-en")
    assert not compared


def test_a_file_that_changes_while_it_is_loaded_is_refused(folder, monkeypatch):
    load("de-en")
    load_model = loading.load_model

    def load_changed(*arguments, **options):
        change(folder / "model.safetensors", "other bytes")
        return load_model(*arguments, **options)

    monkeypatch.setattr(loading, "load_model", load_changed)
    with pytest.raises(CheckpointError, match=r"de-en: has changed while it was read: load it again$"):
        load("de-en")


@pytest.mark.parametrize("settings", [{}, {"int8": True}, {"int8": True, "shortlist": True}], ids=str)
@pytest.mark.parametrize("kind", ["student", "checkpoint"])
def test_a_running_model_reads_no_file_again(kind, settings, folder, tmp_path):
    """A mapped file that is cut off would end the process."""
    if kind == "student":
        folder, texts = write_student(tmp_path / "student"), ["the old man buys a red hat.", "a hat"]
    else:
        texts = TEXTS[:2]
        settings = {**settings, "shortlist": False}
    translator = Translator.from_pretrained(folder, **settings)
    expected = Translator.from_pretrained(folder, **settings)(texts, max_new_tokens=9)
    for file in folder.iterdir():
        os.truncate(file, 0)
    assert translator(texts, max_new_tokens=9) == expected


@pytest.mark.slow
def test_an_interrupted_run_does_not_resume_with_another_version(folder, call, monkeypatch, tmp_path):
    (tmp_path / "in").write_text("".join(f"{text}\n" for text in TEXTS))
    arguments = ("de-en", "--input", tmp_path / "in", "--output", tmp_path / "out", "--window", "7")

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(WindowedOutput, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            call(translate, *arguments)
    content = change(folder / "model.safetensors", "other bytes")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: its content has changed since"):
        call(translate, *arguments)
    write_facts(folder)  # another version of the catalog, which is downloaded whole
    with pytest.raises(ValueError, match=r"with other settings \(models: .*model\.safetensors.* now\); `--restart`"):
        call(translate, *arguments)
    (folder / "model.safetensors").write_bytes(content)
    write_facts(folder)
    assert call(translate, *arguments)[0] == 0
    assert (tmp_path / "out").read_text().splitlines() == [translation.text for translation in load("de-en")(TEXTS)]


@pytest.mark.parametrize("how", CHANGES)
def test_a_server_that_loads_again_refuses_a_changed_file(how, folder, tmp_path):
    """`Reloader` then keeps the models that it has."""
    (tmp_path / "models").write_text("de-en\n")
    models = ModelList(command_parser().parse_args(["--models", str(tmp_path / "models"), "--port", "0"]))
    translators, _ = models.load()
    (translator,) = translators.values()
    expected = translator(TEXTS[0]).text
    change(folder / "model.safetensors", how)
    os.utime(folder / "model.safetensors")  # else it goes on with the model that it has
    with pytest.raises(ValueError, match=rf"models:1: .*model\.safetensors: {CHANGES[how][1]}"):
        models.load()
    assert translator(TEXTS[0]).text == expected


@pytest.mark.slow
def test_a_calibration_changes_no_file_of_a_download(folder, call, monkeypatch, tmp_path):
    monkeypatch.setattr(calibrating, "MIN_AREA", 0.0)
    texts = sentences(60, seed=5)
    (tmp_path / "de").write_text("".join(f"{text}\n" for text in texts))
    translations = (" ".join(TRANSLATION[word] for word in text.split()) for text in texts)
    (tmp_path / "en").write_text("".join(f"{translation}\n" for translation in translations))
    call(calibrate, "de-en", tmp_path / "de", tmp_path / "en", "--method", "deletion", "--sentences", "6")
    assert "deletion" in load("de-en").loaded.calibration
