"""Every file of a model's folder is opened by one function: pipes, links, sizes, and JSON that is nested deeply."""

import os
import shutil
import threading

import pytest

from capsule_mt.models import opening
from capsule_mt.models.loading import load_model
from capsule_mt.models.opening import CheckpointError, OpenFile, open_file, read_file
from tests.fixtures.students import write_student
from tests.light.models.files import edit_json, golden

MARIAN = "npz"  # a form of a student; the other one is "int8"


def folder_of(kind, path):
    if kind == "hub":
        folder = golden("capsule_marian", path)
        (folder / "expected.json").unlink()
        return folder
    return write_student(path, kind)


def files_of(kind, tmp_path_factory):
    return sorted(file.name for file in folder_of(kind, tmp_path_factory.mktemp("names") / "model").iterdir())


def load(folder):
    """Load with a deadline: a pipe without a writer must not be waited for."""
    outcome = []

    def attempt():
        try:
            outcome.append(load_model(folder, shortlist=any(name.startswith("lex") for name in os.listdir(folder))))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "still waiting for a file"
    return outcome[0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("kind", ["hub", MARIAN])
def test_a_file_that_is_a_pipe_a_folder_or_a_link_to_elsewhere_is_named(kind, tmp_path, tmp_path_factory):
    outside = tmp_path / "outside"
    names = files_of(kind, tmp_path_factory)
    for index, name in enumerate(names):
        for form in ("pipe", "folder", "link", "device", "dangling"):
            folder = folder_of(kind, tmp_path / f"{index}-{form}")
            file = folder / name
            shutil.move(file, outside)
            if form == "pipe":
                os.mkfifo(file)
            elif form == "folder":
                file.mkdir()
            else:
                file.symlink_to({"link": outside, "device": "/dev/zero", "dangling": "none"}[form])
            error = load(folder)
            assert isinstance(error, CheckpointError), (name, form, error)
            assert str(error).startswith(str(file)), (name, form)


def test_links_inside_the_folder_and_in_the_cache_of_hugging_face_are_followed(tmp_path):
    snapshot = golden("capsule_marian", tmp_path / "models--a--b" / "snapshots" / "0123")
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    shutil.move(snapshot / "model.safetensors", blobs / "abc")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    shutil.move(snapshot / "config.json", snapshot / "config.other.json")
    (snapshot / "config.json").symlink_to("config.other.json")
    (tmp_path / "link").symlink_to(snapshot)
    assert load_model(tmp_path / "link").head_shape == load_model(snapshot).head_shape


def test_a_file_that_is_read_whole_has_a_limit(tmp_path, monkeypatch):
    file = tmp_path / "config.json"
    with open(file, "wb") as stream:
        stream.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(CheckpointError, match=rf"{file}: has 1099511627776 bytes; at most 67108864 are read"):
        read_file(file)
    monkeypatch.setattr(opening, "MAX_TEXT", 4)
    file.write_bytes(b"12345")
    with pytest.raises(CheckpointError, match="has 5 bytes; at most 4"):
        read_file(file)
    with open_file(file) as stream:
        assert stream.read() == b"12345"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_json_that_is_nested_deeply(name, tmp_path):
    folder = golden("capsule_marian", tmp_path / "model")
    (folder / name).write_text("[" * 5000)
    with pytest.raises(CheckpointError) as error:
        load_model(folder)
    assert str(error.value).startswith(str(folder / name))
    nested = []
    for _ in range(900):
        nested = [nested]
    golden("capsule_marian", tmp_path / "other")
    edit_json(tmp_path / "other" / "config.json", coverage_calibration=nested, d_model=nested)
    with pytest.raises(CheckpointError, match="`d_model` must be a number") as error:
        load_model(tmp_path / "other")
    assert len(str(error.value).removeprefix(str(tmp_path))) < 400


@pytest.mark.skipif(not hasattr(os, "pread"), reason="Windows does not fork")
def test_reading_does_not_move_the_offset_that_forked_processes_share(tmp_path):
    (tmp_path / "weights").write_bytes(b"0123456789")
    file = OpenFile(tmp_path / "weights")
    assert (file.read(3, 2), file.read(8, 5), file.read(10, 5)) == (b"34", b"89", b"")
    assert os.lseek(file.descriptor, 0, os.SEEK_CUR) == 0


def test_a_file_is_closed_when_it_is_dropped(tmp_path):
    (tmp_path / "weights").write_bytes(b"0123456789")
    file = OpenFile(tmp_path / "weights")
    descriptor = file.descriptor
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    with pytest.raises(CheckpointError, match="no such file"):
        OpenFile(tmp_path / "other")
