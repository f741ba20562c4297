"""Output files are whole or not there, and locked; links and devices stay what they are."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from capsule_mt.files import lock
from capsule_mt.files.lock import lock_output, open_folder
from capsule_mt.files.outputs import (
    check_output_folder,
    check_outputs,
    open_output,
    remove_partials,
    write_output,
)


def test_a_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "new" / "file"
    write_output(path, "ä\n")
    path.chmod(0o640)

    def interrupted():
        with open_output(path) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text(encoding="utf-8") == "ä\n"
    write_output(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(path.parent.iterdir()) == [path]


def test_a_file_reaches_the_disk_before_its_name(tmp_path, monkeypatch):
    """A loss of power leaves the old file or the new one."""
    calls = []
    for module, name in ((os, "fsync"), (Path, "replace")):
        call = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *arguments, call=call, name=name: calls.append(name) or call(*arguments)
        )
    write_output(tmp_path / "file", "text")
    assert calls == ["fsync", "replace", *(["fsync"] if os.name == "posix" else [])]  # then the folder


def test_only_partial_files_of_this_name_are_removed(tmp_path):
    names = ["out.de", "out.de.tsv", "x" * 45 + "1", "x" * 45 + "2"]
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(open_output(tmp_path / name)).write(name.encode())
        written = set(tmp_path.iterdir())
        other_partial = tmp_path / "out.77.0.partial"
        other_partial.touch()
        for name in ("out", "out.d", "x" * 45):
            remove_partials(tmp_path / name)
        assert set(tmp_path.iterdir()) == written
    assert {path.name for path in tmp_path.iterdir()} == set(names)


def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch):
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch()
    link.symlink_to(file)
    os.link(file, tmp_path / "hard link")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "lost").symlink_to(tmp_path / "none" / "target")
    for outputs, message in (
        ([tmp_path / "loop"], "loop cannot be written"),
        ([tmp_path / "lost"], "lost is a link to .*target, whose folder does not exist"),
        ([tmp_path / ("x" * 300)], "xxx cannot be written: .*File name too long"),
        ([tmp_path], f"{tmp_path} is a folder; a file is needed"),
        ([Path("")], "is a folder"),
        ([file / "below"], f"{file} is a file; a folder is needed"),
        ([file / "deep" / "below"], f"{file} is a file; a folder is needed"),
        ([file, None, file], "are the same file: give each output its own file"),
        ([file, link], "are the same file"),
        ([file, tmp_path / "hard link"], "are the same file"),
        ([tmp_path / "new", tmp_path / "." / "new"], "are the same file"),
    ):
        with pytest.raises(ValueError, match=message):
            check_outputs(outputs)
    with pytest.raises(ValueError, match="link is read and written"):
        check_outputs([link], [None, file])
    with pytest.raises(ValueError, match=f"{file} is a file; a folder is needed"):
        check_output_folder(file)
    check_outputs([file, None, tmp_path / "a" / "b", Path(os.devnull), Path(os.devnull)], [Path(os.devnull)])
    check_output_folder(tmp_path / "a" / "b")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    for check in (lambda: check_outputs([file]), lambda: check_output_folder(tmp_path)):
        with pytest.raises(ValueError, match="no permission to write"):
            check()
    assert not (tmp_path / "a").exists()


def test_an_empty_folder_is_written_and_another_one_refused(tmp_path):
    """The lock of a folder that exists would be in it."""
    (tmp_path / "out").mkdir()
    with open_folder(tmp_path / "out") as partial:
        partial.mkdir()
        (partial / "file").write_text("new")
        assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "file"]
    with pytest.raises(ValueError, match="out: exists and is not empty; name a new folder"):
        open_folder(tmp_path / "out").__enter__()
    with pytest.raises(FileNotFoundError), open_folder(tmp_path / "other") as partial:
        (partial / "file").write_text("in no folder")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_after_an_error_an_empty_folder_is_there_again_and_nothing_of_the_users_is_gone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out.partial").mkdir()
    with pytest.raises(FileNotFoundError), open_folder(tmp_path / "out") as partial:
        (partial / "file").write_text("in no folder")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["out", "out.partial"]


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (Path(), tmp_path):
        with pytest.raises(ValueError, match="is the current folder, which cannot be replaced; name a new folder"):
            open_folder(name).__enter__()
    assert Path().exists()


def test_of_the_errors_of_rust_only_a_full_disk_names_the_output(tmp_path):
    with pytest.raises(OSError, match=r"No space left on device: '.*out'"), open_folder(tmp_path / "out"):
        raise RuntimeError("I/O error: No space left on device (os error 28)")
    with pytest.raises(RuntimeError, match=r"tokenizer\.json"), open_folder(tmp_path / "out"):
        raise RuntimeError("tokenizer.json: Permission denied (os error 13)")


# without the package, whose imports take seconds
HOLD = """
import runpy, sys
with runpy.run_path(sys.argv[1])["lock_output"](sys.argv[2]):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder():
    """Start a process that holds a lock until its input ends."""
    processes = []

    def start(path):
        command = [sys.executable, "-c", HOLD, lock.__file__, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_the_second_process_is_told_who_holds_the_output(kind, holder, tmp_path):
    output = tmp_path / "output"
    if kind == "folder":
        output.mkdir()
    first = holder(output)
    for _ in range(2):  # the refused one leaves the lock as it is
        with pytest.raises(BlockingIOError, match=f"{output} is being written by process {first.pid} on .+ since"):
            lock_output(output).__enter__()
    first.communicate("\n")
    assert first.returncode == 0
    with lock_output(output), pytest.raises(BlockingIOError, match=f"process {os.getpid()} on"):
        lock_output(output).__enter__()
    assert [path.name for path in tmp_path.rglob("*")] == (["output"] if kind == "folder" else [])


def test_a_killed_process_holds_nothing(holder, tmp_path):
    first = holder(tmp_path / "output")
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert (tmp_path / ".output.lock").exists()
    with lock_output(tmp_path / "output"):
        pass
    assert list(tmp_path.iterdir()) == []
