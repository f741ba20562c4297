"""Models that are built to be hostile: one error names the file, within limits of time and memory."""

import os
import shutil
import sys

import pytest

from capsule_mt import Translator
from capsule_mt.engine.library import NativeUnavailableError
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.files.sandbox import worker
from capsule_mt.models import pickled, probe, probing
from capsule_mt.models.loading import load_model
from capsule_mt.models.opening import CheckpointError
from capsule_mt.models.state_dict import MAX_MARKS, MAX_PICKLE, state_dict
from capsule_mt.models.weights import MAX_TENSORS
from tests.fixtures.marian_models import marian_folder
from tests.fuzz.pickles import SOUND, archive
from tests.fuzz.strangers import check_stranger
from tests.hostile.builders import FILES, PROTOCOL, tensors, write_hostile
from tests.light.models.answers import crash, fail, lack_engine, lack_library
from tests.light.models.files import golden

# a tuple a million deep, tuples that share tuples, and marks that are closed one by one
ISSUED = {
    "deep": b"})" + b"\x85" * 1_000_000 + b"Ns",
    "shared": b"})" + b"q\x00h\x00\x86" * 129 + b"Ns",
    "marks": b"(" * 300_000 + b"t" * 300_000,
}
NOT_ITS_OWN = r"takes longer than|takes more than|ended with code"  # a limit of the sandbox had to stop it


@pytest.fixture
def pickled_folder(tmp_path):
    """Return a function that makes the folder of a model with a pickle."""

    def make(pickle):
        folder = golden("capsule_marian", tmp_path / "model")
        (folder / "model.safetensors").unlink()
        archive(pickle, folder / "pytorch_model.bin")
        return folder

    return make


@pytest.fixture
def unprobed(monkeypatch):
    monkeypatch.setattr(probing, "_loaded", set())


@pytest.mark.parametrize("name", ISSUED)
def test_a_pickle_that_ended_the_process_is_one_error(name, pickled_folder):
    folder = pickled_folder(PROTOCOL + ISSUED[name] + b".")
    with pytest.raises(CheckpointError) as refusal:
        Translator.from_pretrained(folder)
    assert str(refusal.value).startswith(f"{folder / 'pytorch_model.bin'}: is damaged, or not a state dict of torch (")


@pytest.mark.parametrize(("kind", "builder"), [(kind, name) for kind, (*_, names) in FILES.items() for name in names])
def test_a_hostile_file_loads_or_is_one_error(kind, builder):
    check_stranger({"kind": kind, "builder": builder, "size": 5000})


@pytest.mark.parametrize("builder", FILES["pickle"][2])
def test_the_grammar_ends_every_pickle_itself(builder, tmp_path):
    """It does not leave the work to the limits of the process."""
    write_hostile("pickle", builder, 70_000, tmp_path / "model")
    with pytest.raises(CheckpointError) as refusal:
        load_model(tmp_path / "model")
    assert str(refusal.value).startswith(str(tmp_path / "model" / "pytorch_model.bin"))
    assert not any(words in str(refusal.value) for words in NOT_ITS_OWN.split("|"))


def test_limits_of_pickles():
    def opcodes(count):
        return PROTOCOL + b"(" * count + b"t" * count + b"."

    with pytest.raises(ValueError, match="is not a dictionary of named tensors"):  # read to its end
        state_dict(PROTOCOL + b"((((tttt.")
    with pytest.raises(ValueError, match="nested more than 4 deep"):
        state_dict(PROTOCOL + b"(((((ttttt.")
    with pytest.raises(ValueError, match=f"more than {MAX_MARKS} marks at once"):
        state_dict(opcodes(MAX_MARKS + 1))
    assert len(state_dict(PROTOCOL + tensors(1000) + b".")) == 1001
    with pytest.raises(ValueError, match=f"more than {MAX_TENSORS} tensors"):
        state_dict(PROTOCOL + tensors(MAX_TENSORS) + b".")


def test_a_pickle_of_17_megabytes_is_refused_unread(pickled_folder):
    folder = pickled_folder(PROTOCOL + b"N" * MAX_PICKLE)
    with pytest.raises(CheckpointError, match=rf"bin: its pickle is longer than {MAX_PICKLE} bytes$"):
        load_model(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_pickle_is_read_in_another_process(pickled_folder, monkeypatch):
    folder = pickled_folder(SOUND)
    monkeypatch.setattr(pickled.PickleSandbox, "answer", staticmethod(crash))
    with pytest.raises(CheckpointError, match=r"bin: the process that read it ended with code -11$"):
        load_model(folder)


@pytest.mark.parametrize("executable", ["", None, "/nowhere/python", "frozen"])
def test_a_machine_that_starts_no_process_is_one_error(executable, pickled_folder, unprobed, monkeypatch):
    monkeypatch.setattr(worker, "can_fork", lambda: False)
    if executable == "frozen":  # it would start this program once more
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    else:
        monkeypatch.setattr(sys, "executable", executable)
    folder = pickled_folder(SOUND)
    message = r": needs a process of its own to be read, but Python cannot be started \(.*\)"
    with pytest.raises(CheckpointError, match=rf"pytorch_model\.bin{message}: save the model as safetensors$"):
        load_model(folder)
    with pytest.raises(CheckpointError, match=rf"model{message}$"):
        probing.probe(str(folder))
    sandbox = worker.Sandbox()
    sandbox.answer = fail
    with pytest.raises(ValueError, match=f"^page.html{message}$"):
        sandbox._send("page.html")


def test_a_fork_that_fails_is_one_error(pickled_folder, monkeypatch):
    def refuse(serve):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(worker, "can_fork", lambda: True)
    monkeypatch.setattr(worker, "Forked", refuse)
    with pytest.raises(CheckpointError, match=r"bin: needs a process .* \(.*unavailable\): save the model as saf"):
        pickled.PickleSandbox(1.0, 1 << 30).tensors_in(str(pickled_folder(SOUND) / "pytorch_model.bin"))


@pytest.mark.parametrize(
    ("kind", "builder", "size", "message"),
    [
        ("decoder", "keys", 200_000, r"decoder\.yml: has \d+ characters; at most 1048576 are read$"),
        ("header", "wide shape", 65, r"safetensors: `a` is .*, which is not a tensor: its `data_offsets` must span"),
        ("header", "long name", 1001, r"safetensors: `a{200}` is .*, which is not a tensor"),
        ("header", "many tensors", 50_001, r"safetensors: has 100002 tensors, at most 100000 are read$"),
        ("bin", "long name", 401, r"bin: the name of a tensor has 401 bytes; at most 400 are read$"),
        ("bin", "many", 100_001, r"bin: has 100001 tensors; at most 100000 are read$"),
    ],
)
def test_counts_and_names_are_bounded(kind, builder, size, message, tmp_path):
    write_hostile(kind, builder, size, tmp_path / "model")
    with pytest.raises(CheckpointError, match=message):
        load_model(tmp_path / "model")


# ---- models that a process of its own loads first
@pytest.mark.parametrize("forks", [True, False])
def test_a_probe_raises_what_loading_raises(forks, tmp_path, unprobed, monkeypatch):
    if not forks:
        monkeypatch.setattr(worker, "can_fork", lambda: False)
    sound = golden("capsule_marian", tmp_path / "sound")
    probing.probe(str(sound), int8=True, shortlist=False)
    probing.probe(str(marian_folder("yml", tmp_path / "yml")))
    for name, error_type in (("config.json", CheckpointError), ("tokenizer.json", UnsupportedModelError)):
        damaged = shutil.copytree(sound, tmp_path / name)
        (damaged / name).unlink()
        with pytest.raises(error_type) as expected:
            load_model(damaged)
        with pytest.raises(error_type) as refusal:
            probing.probe(str(damaged))
        assert str(refusal.value) == str(expected.value)
    with pytest.raises(FileNotFoundError, match="there is no shortlist"):
        probing.probe(str(sound), shortlist=True)
    with pytest.raises(CheckpointError, match=r"nowhere: no such folder"):
        probing.probe(str(tmp_path / "nowhere"))


@pytest.mark.skipif(sys.platform == "win32", reason="the system does not limit the time of a process")
def test_a_probe_that_takes_too_long_is_killed(tmp_path, unprobed, monkeypatch):
    write_hostile("vocabulary", "tokens", 400_000, tmp_path / "model")
    monkeypatch.setattr(probe, "SECONDS", 0.3)
    with pytest.raises(CheckpointError, match=r"model: takes longer than [\d.]+ s to read or write$"):
        probing.probe(str(tmp_path / "model"))


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the system does not limit memory")
def test_a_probe_that_takes_too_much_memory_ends(tmp_path, unprobed, monkeypatch):
    write_hostile("configuration", "keys", 800_000, tmp_path / "model")
    monkeypatch.setattr(probe, "MEMORY", 40 << 20)
    monkeypatch.setattr(probe, "MEMORY_PER_BYTE", 0)
    with pytest.raises(CheckpointError, match=r"model: takes more than 40 MB of memory to read or write$"):
        probing.probe(str(tmp_path / "model"))


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_probe_that_crashes_is_one_error(tmp_path, unprobed, monkeypatch):
    folder = golden("capsule_marian", tmp_path / "model")
    monkeypatch.setattr(probe.ProbeProcess, "answer", staticmethod(crash))
    with pytest.raises(CheckpointError, match=r"model: the process that read it ended with code -11$"):
        probing.probe(str(folder))
    monkeypatch.setattr(worker, "can_fork", lambda: False)
    with pytest.raises(CheckpointError, match=r"model: the process that read it ended with code -11$"):
        probing.probe(str(folder))
    monkeypatch.setattr(probe.ProbeProcess, "answer", staticmethod(fail))
    with pytest.raises(CheckpointError, match=r"model: is damaged \(KeyError: "):
        probing.probe(str(folder))


@pytest.mark.parametrize(
    ("answer", "error_type"), [(lack_engine, NativeUnavailableError), (lack_library, ModuleNotFoundError)]
)
def test_what_the_machine_lacks_is_not_a_damaged_model(answer, error_type, tmp_path, unprobed, monkeypatch):
    monkeypatch.setattr(probe.ProbeProcess, "answer", staticmethod(answer))
    with pytest.raises(error_type, match=r"^there is no engine for|^No module named"):
        probing.probe(str(golden("capsule_marian", tmp_path / "model")))


def test_a_model_is_probed_again_when_it_has_changed(tmp_path, unprobed, monkeypatch):
    folder = golden("capsule_marian", tmp_path / "model")
    probing.probe(str(folder))
    with monkeypatch.context() as patched:
        patched.setattr(probe, "ProbeProcess", None)
        probing.probe(str(folder))
        os.utime(folder / "config.json", ns=(1, 1))
        with pytest.raises(TypeError):
            probing.probe(str(folder))
    identities = iter([(), (("a", 1, 1, 1, 1, 1),)])
    monkeypatch.setattr(probing, "identity_of", lambda folder: next(identities))
    with pytest.raises(CheckpointError, match=r"model: has changed while it was read: load it again$"):
        probing.probe(str(folder))


def test_a_folder_of_the_user_starts_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "ProbeProcess", None)
    folder = golden("capsule_marian", tmp_path / "model")
    Translator.from_pretrained(folder)
    monkeypatch.setattr(probing, "_loaded", set())
    with probing.probing_every_model(), pytest.raises(TypeError):
        Translator.from_pretrained(folder)
    Translator.from_pretrained(folder)


@pytest.mark.skipif(not hasattr(os.stat_result, "st_blocks"), reason="the system does not count blocks")
def test_holes_and_links_do_not_raise_the_limits(tmp_path):
    folder = golden("capsule_marian", tmp_path / "model")
    size = probing.size_of(str(folder))
    assert 0 < size <= sum(file.stat().st_size for file in folder.iterdir())
    with open(folder / "junk", "wb") as stream:
        stream.truncate(8 << 40)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "nowhere").symlink_to(tmp_path / "nowhere")
    assert probing.size_of(str(folder)) == size


def test_limits_have_a_limit(tmp_path, monkeypatch):
    folder = golden("capsule_marian", tmp_path / "model")
    assert probing.MAX_SIZE == 64 << 30
    monkeypatch.setattr(probing, "MAX_SIZE", 1000)
    assert probing.size_of(str(folder)) == 1000
    assert probing.size_of(str(tmp_path / "nowhere")) == 0
