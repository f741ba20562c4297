"""The check of a downloaded model at its first use; the released model of de-en stands in for a student."""

import contextlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from capsule_mt import Translator, load
from capsule_mt.catalog.entries import FACTS_FILE, cache_folder
from capsule_mt.catalog.store import resolve
from capsule_mt.commands import convert, models
from capsule_mt.files.digests import file_digest
from capsule_mt.models import probe, probing
from capsule_mt.models.weights import CheckpointError
from capsule_mt.translate import first_use
from tests.fixtures.marian_models import marian_folder
from tests.fixtures.students import write_student
from tests.light.catalog.test_students import registry_files

RELEASED = Path(__file__).parents[3] / "checkpoints" / "capsule-marian-de-en"
PROBES = ("Das kostet 20 Euro.", "Es ist 10 Uhr.", "Ich habe 3 Katzen.")  # which this small model can translate


def put_into_cache(**changes):
    """Put the released model into the cache as de-en, with another configuration; return its folder."""
    folder = shutil.copytree(RELEASED, cache_folder() / "mozilla" / "de-en")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    files = {file.name: {"size": file.stat().st_size, "sha256": file_digest(file)} for file in folder.iterdir()}
    (folder / FACTS_FILE).write_text(json.dumps({"name": "de-en", "licence": "MPL-2.0", "files": files}))
    return folder


@pytest.fixture(autouse=True)
def probes(hub, monkeypatch):
    monkeypatch.setattr(first_use, "PROBES", PROBES)
    monkeypatch.setattr(first_use, "MIN_KEPT", 2)


def test_the_first_use_keeps_a_record(monkeypatch):
    folder = put_into_cache()
    translations = {
        PROBES[0]: "It costs 20 euros.",
        PROBES[1]: "It's 10 o'clock.",
        PROBES[2]: "I have 3 cats.",
    }
    first = load("de-en")
    facts = json.loads((folder / FACTS_FILE).read_text())
    record = facts.pop("checked")
    assert set(record.pop("times")) == set(facts["files"])
    assert record == {"version": first_use.__version__, "translations": translations}
    assert set(facts) == {"name", "licence", "files"}
    with monkeypatch.context() as patched:
        for name in ("translate_probes", "file_digest"):
            patched.delattr(first_use, name)  # nothing is checked twice
        assert load("de-en")(PROBES[0]) == first(PROBES[0])
    monkeypatch.setattr(first_use, "__version__", "99.0.0")  # which may read the files in another way
    load("de-en")
    assert json.loads((folder / FACTS_FILE).read_text())["checked"]["version"] == "99.0.0"


@pytest.mark.parametrize("changes", [{"activation_function": "swish"}, {"scale_embedding": False}], ids=str)
def test_a_model_that_is_read_wrongly_is_refused(changes, call, tmp_path):
    folder = put_into_cache(**changes)
    message = r"^de-en: does not translate, .* of 3 probes it keeps the digits of 0, and translates 'Das kostet"
    for use in (load, Translator.from_pretrained):
        with pytest.raises(CheckpointError, match=message):
            use("de-en")
    with pytest.raises(CheckpointError, match="`capsule-mt models --check de-en` prints"):
        call(convert, "de-en", tmp_path / "out", "--to", "web")
    code, printed, complaint = call(models, "--check", "de-en")
    assert code == 1
    assert printed.splitlines()[-1] == "| de-en | capsule_marian | - | 6 + 3 layers of 256 | 8,000 | 0 of 3 |"
    assert complaint.startswith("de-en: translates the probes by [")
    assert "checked" not in json.loads((folder / FACTS_FILE).read_text())
    (folder / FACTS_FILE).unlink()
    Translator.from_pretrained(folder)  # as the error says


def test_files_that_changed_on_the_disk_are_refused():
    folder = put_into_cache()
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"model\.safetensors: its content has changed since .* remove de-en`"):
        load("de-en")
    for file, problem in ((content[:-1], "has 21373503 bytes, but had 21373504 when"), (None, "no such file")):
        weights.unlink()
        if file is not None:
            weights.write_bytes(file)
        with pytest.raises(CheckpointError, match=rf"model\.safetensors: {problem}"):
            load("de-en")


@pytest.mark.parametrize(
    "files", [{"config.json": 5}, {"config.json": {"size": 5}}, {"../config.json": {"size": 5, "sha256": ""}}]
)
def test_facts_of_a_stranger_are_one_error(files):
    folder = put_into_cache()
    (folder / FACTS_FILE).write_text(json.dumps({"name": "de-en", "files": files}))
    with pytest.raises(CheckpointError, match=r"capsule-mt\.json: `files` must give the size and the SHA-256"):
        load("de-en")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "%s"}' % ("a" * (1 << 20))], ids=len)
def test_damaged_facts_are_named(content):
    folder = put_into_cache()
    (folder / FACTS_FILE).write_text(content)
    with pytest.raises(CheckpointError, match=r"json: cannot be read as a JSON .*: to load .*, delete this file$"):
        load("de-en")


def test_a_download_is_loaded_by_another_process_first(monkeypatch):
    folder, probed = put_into_cache(), []
    monkeypatch.setattr(first_use.probing, "probe", lambda folder, **options: probed.append((folder, options)))
    load("de-en", int8=True)
    load("de-en")
    assert probed == [(str(folder), {"int8": True, "shortlist": None})]


@pytest.mark.parametrize("is_serving", [True, False])
def test_a_download_is_loaded_there_once_with_the_options_of_its_use(is_serving, monkeypatch):
    """Without int8, it would take four times the memory."""
    put_into_cache()
    monkeypatch.setattr(probing, "_loaded", set())
    jobs, probe_load = [], probe.ProbeProcess.load
    monkeypatch.setattr(
        probe.ProbeProcess, "load", lambda self, folder, **job: (jobs.append(job), probe_load(self, folder, **job))
    )
    with probing.probing_every_model() if is_serving else contextlib.nullcontext():
        load("de-en", int8=True)
    assert jobs == [{"int8": True, "shortlist": None}]


def test_a_student_with_random_weights_is_refused(registry, tmp_path):
    registry.add("en-cs", content=registry_files(write_student(tmp_path / "student")))
    registry.publish()
    with pytest.raises(CheckpointError, match="en-cs: does not translate, so its files are damaged or read wrongly"):
        load("en-cs")
    Translator.from_pretrained(shutil.copytree(resolve("en-cs"), tmp_path / "copy", ignore=lambda *_: [FACTS_FILE]))


def test_probes_without_a_hypothesis_have_an_empty_translation():
    model = Translator.from_pretrained(RELEASED).loaded
    decoder = SimpleNamespace(translate=lambda sources, options: [[] for _ in sources])  # logits that are not finite
    assert first_use.translate_probes(model._replace(decoder=decoder)) == dict.fromkeys(PROBES, "")


def test_digits_count_in_any_script():
    assert first_use.num_kept({"Paris, 1998": "पेरिस, १९९८", "10": "\u06f1\u06f0", "747": "74", "2": ""}) == 2


def test_the_row_of_a_folder_of_marian(call, tmp_path):
    folder = marian_folder("two-spm", tmp_path / "two-spm")
    code, printed, _ = call(models, "--check", folder)
    digest = file_digest(folder / "model.npz")[:12]
    assert code == 1  # it was trained for a second
    row = f"| two-spm | model.npz, {digest} | v1.12.42 | 2 + 2 layers of 32, attention | 340 and 340 | 0 of 3 |"
    assert printed.splitlines() == [*models.CHECK_HEADER.splitlines(), row]


def test_a_model_of_many_languages_is_not_probed(call, tmp_path):
    folder = marian_folder("yml", tmp_path / "yml")
    text = (folder / "joint.yml").read_text("utf-8")
    (folder / "joint.yml").write_text(text.replace('"\u2581auf": 2', '">>eng<<": 2'), "utf-8")
    with pytest.raises(ValueError, match="yml: is a model of many languages; only models of one pair"):
        call(models, "--check", folder)
