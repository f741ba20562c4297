"""Pushing: a checkpoint is exported, tested and sent in one commit, without the other files of its folder."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError

from hf_capsule_mt.hub import LoadTestError, push, pushing
from tests.fixtures.local_hub import LocalHub
from tests.fixtures.tiny import save_tiny_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint in a folder where training has left other files."""
    folder = save_tiny_checkpoint(tmp_path / "checkpoint", layer_aggregation="em_routing")
    for name in ("training_args.bin", "optimizer.pt", "private.png", "model-of-my-of-bank.safetensors"):
        (folder / name).write_bytes(b"\x80\x04.")
    return folder


@pytest.fixture
def sent(monkeypatch):
    """What the hub is sent: the names of the files and the settings of each commit."""
    commits = []

    def upload(self, *, folder_path, **settings):
        commits.append((sorted(file.name for file in Path(folder_path).iterdir()), settings))

    monkeypatch.setattr(HfApi, "create_repo", lambda *args, **settings: None)
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    return commits


def test_what_is_sent(checkpoint, sent, monkeypatch):
    monkeypatch.setattr(pushing, "check_export", lambda folder: None)
    push(checkpoint, "tester/ours")
    ((names, settings),) = sent
    files = ["README.md", "config.json", "generation_config.json", "model.safetensors", "modeling_hf_capsule_mt.py"]
    assert names == [*files, "tokenizer.json", "tokenizer_config.json"]
    # an old single file would win over new shards on loading
    assert "model*.safetensors" in settings["delete_patterns"]


def test_nothing_is_sent_that_fails_its_load_test(checkpoint, sent, monkeypatch):
    def fail(folder):
        raise LoadTestError("it fails")

    monkeypatch.setattr(pushing, "check_export", fail)
    with pytest.raises(LoadTestError):
        push(checkpoint, "tester/broken")
    with pytest.raises(HFValidationError):
        push(checkpoint, "no name")
    assert not sent


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("no route to the hub"),
        RuntimeError("Error while uploading 'model.safetensors' to the Hub."),
        Exception("an error of the client's HTTP library"),
    ],
)
def test_an_upload_that_fails_says_what_the_hub_has_and_what_to_do(checkpoint, monkeypatch, error):
    def upload(self, **settings):
        raise error from TimeoutError("timed out")

    monkeypatch.setattr(pushing, "check_export", lambda folder: None)
    monkeypatch.setattr(HfApi, "create_repo", lambda *args, **settings: None)
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    with pytest.raises(
        OSError, match=r"^tester/ours: the upload failed \(.*: timed out\); the repository has"
    ) as raised:
        push(checkpoint, "tester/ours")
    assert str(error) in str(raised.value)
    assert str(raised.value).endswith("run the same command: files that arrived are not sent twice")


def test_ctrl_c_says_what_the_hub_has_and_what_to_do(checkpoint, monkeypatch):
    def upload(self, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(pushing, "check_export", lambda folder: None)
    monkeypatch.setattr(HfApi, "create_repo", lambda *args, **settings: None)
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    with pytest.raises(KeyboardInterrupt, match=r"^the repository has its old files or all of the new ones"):
        push(checkpoint, "tester/ours")


# pushes the folders that it reads from stdin, each in a process of its own, whose number and code it prints
PUSHER = """
import os, shutil, sys
from hf_capsule_mt.hub import pushing
pushing.write_folder = lambda checkpoint, folder, *_: shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
for line in sys.stdin:
    process = os.fork()
    if process == 0:
        pushing.push(line.strip(), "tester/model")
        os._exit(0)
    print(process, flush=True)
    print(os.waitpid(process, 0)[1], flush=True)
"""


class Killer:
    """Pushes folders to a hub, and kills the push at a step of its requests."""

    def __init__(self, hub: LocalHub, pusher: "subprocess.Popen[str]") -> None:
        self.hub, self.pusher = hub, pusher
        self.steps: list[tuple[str, str, str]] = []
        self.kill_at: int | None = None
        hub.on_step = self.on_step

    def on_step(self, *step: str) -> None:
        is_killed, position = self.kill_at is not None and len(self.steps) > self.kill_at, len(self.steps)
        self.steps.append(step)
        if position == self.kill_at:
            os.kill(self.process, signal.SIGKILL)
        if is_killed or (position == self.kill_at and step[2] != "handled"):
            raise ConnectionAbortedError  # the rest of the request never arrives

    def push(self, folder: Path, kill_at: int | None = None) -> int:
        """Return the code of the push: 0, or the signal that killed it."""
        self.steps, self.kill_at = [], kill_at
        self.pusher.stdin.write(f"{folder}\n")
        self.pusher.stdin.flush()
        self.process = int(self.pusher.stdout.readline())
        return int(self.pusher.stdout.readline())


@pytest.fixture
def killer(tmp_path):
    hub = LocalHub().start()
    hub.server.handle_error = lambda *_: None  # a request of a killed push
    with subprocess.Popen(
        [sys.executable, "-c", PUSHER],
        env={**os.environ, **hub.environment(tmp_path / "home")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as pusher:
        yield Killer(hub, pusher)
        pusher.stdin.close()
    hub.stop()


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def write_files(folder: Path, weights: list[str], version: str) -> Path:
    folder.mkdir()
    for name in ["README.md", "config.json", "tokenizer.json", *weights]:
        folder.joinpath(name).write_text(f"{name} of the {version} version")
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.timeout(300)
def test_a_push_that_is_killed_at_any_step_leaves_the_old_or_the_new_repository(killer, tmp_path):
    old_folder = write_files(tmp_path / "old", ["model.safetensors"], "old")
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    new_folder = write_files(tmp_path / "new", [*shards, "model.safetensors.index.json"], "new")
    old_files, new_files = files_of(old_folder), files_of(new_folder)
    repositories = killer.hub.repositories

    assert killer.push(old_folder) == 0
    assert repositories["tester/model"].files == old_files
    assert killer.push(new_folder) == 0
    assert repositories["tester/model"].files == new_files
    steps = killer.steps
    assert len(steps) >= 20
    assert {moment for *_, moment in steps} == {"arrives", "half sent", "handled"}

    for has_old_files in (True, False):
        states = []
        for kill_at in range(len(steps)):
            repositories.clear()
            killer.hub.uploads.clear()
            if has_old_files:
                killer.hub.add_folder("tester/model", old_folder)
            assert killer.push(new_folder, kill_at) == signal.SIGKILL
            repository = repositories.get("tester/model")
            files = {} if repository is None else repository.files
            assert files in (old_files if has_old_files else {}, new_files), steps[kill_at]
            states.append(files == new_files)
            arrived = set(killer.hub.uploads)

            assert killer.push(new_folder) == 0
            assert repositories["tester/model"].files == new_files, steps[kill_at]
            sent = {path.rpartition("/")[2] for method, path, _ in killer.steps if method == "PUT"}
            assert not sent & arrived
        assert states == [False] * (len(steps) - 1) + [True]  # only the last step, of the commit, changes the files
