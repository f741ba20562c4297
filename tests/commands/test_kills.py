"""The commands that need torch, killed before each change of their folder: they then end as if none was."""

import shutil
import sys

import pytest
import torch

from tests.fixtures.kills import count_kills
from tests.fixtures.tiny import save_tiny_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="forks")]

COMMANDS = {
    "average": "average --checkpoints first second --output out/average",
    "shortlist": "shortlist out/own in.en in.de",
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    for name in ("first", "second"):
        save_tiny_checkpoint(folder / name)
    (folder / "in.en").write_text("a man sleeps\na dog\nthe cat sees a dog\n")
    (folder / "in.de").write_text("ein Mann schläft\nein Hund\ndie Katze sieht einen Hund\n")
    return folder


@pytest.fixture
def prepare(checkpoints, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)  # a fork has no other threads
    for path in checkpoints.iterdir():
        (tmp_path / path.name).symlink_to(path)

    def prepare():
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.copytree(checkpoints / "first", tmp_path / "out" / "own")

    return prepare


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_runs_again(name, prepare, tmp_path):
    num_kills = count_kills(COMMANDS[name], tmp_path / "out", prepare, max_kills=8)
    assert num_kills >= 2
    print(f"{name}: {num_kills} kills")
