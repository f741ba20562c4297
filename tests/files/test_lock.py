import os
import signal
import subprocess
import sys

import pytest

from hf_capsule_mt.files import lock
from hf_capsule_mt.files.lock import lock_output

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


def test_two_names_of_one_output_are_one(holder, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "output")
    holder(tmp_path / "output")
    with pytest.raises(BlockingIOError, match="link is being written"):
        lock_output(tmp_path / "link").__enter__()


def test_other_outputs_are_free(holder, tmp_path):
    holder(tmp_path / "one")
    with lock_output(tmp_path / "two"), lock_output(tmp_path / "new" / "three"):
        pass
    assert (tmp_path / "new").is_dir()


def test_a_lock_that_cannot_be_described_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="File name too long"):
        lock_output(tmp_path / ("x" * 246)).__enter__()
    assert list(tmp_path.iterdir()) == []
