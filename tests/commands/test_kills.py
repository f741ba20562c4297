"""The commands that need torch, killed before each change of their folder: they then end as if none was."""

import re
import shutil
import sys

import pytest
import torch

from hf_capsule_mt.hub import pushing
from tests.fixtures.kills import KILLS, contents, count_kills, refusal_by_a_full_disk
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="forks")]

COMMANDS = {
    "average": "average --checkpoints first second --output out/average",
    "shortlist": "shortlist out/own in.en in.de",
    "marianmt": "convert first out/marianmt --to marianmt",
    "capsules": "convert marian out/capsules --from marian --set guided_routing=guided",
    "evaluation": "evaluate --hypotheses other.de --references in.de --output out/evaluation.json",
    "comparison": "compare a=in.de b=other.de --references in.de --output out/comparison.json",
    "export": "export first out/export",
    "analysis": "analyze guided --sources in.en --targets in.de --output out/analysis",
}
TEXTS = {
    "in.en": "a man sleeps\na dog\nthe cat sees a dog\n",
    "in.de": "ein Mann schläft\nein Hund\ndie Katze sieht einen Hund\n",
    "other.de": "ein Mann\nein Hund sieht\ndie Katze sieht den Hund\n",
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    for name in ("first", "second"):
        save_tiny_checkpoint(folder / name)
    save_tiny_checkpoint(folder / "guided", guided_routing="guided", guided_capsule_dim=8)
    save_tiny_marian(folder / "marian")
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def prepare(inputs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)  # a fork has no other threads
    monkeypatch.setattr(pushing, "check_export", lambda folder: None)  # takes seconds, and writes nothing there
    for path in inputs.iterdir():
        (tmp_path / path.name).symlink_to(path)

    def prepare():
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.copytree(inputs / "first", tmp_path / "out" / "own")

    return prepare


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_runs_again(name, prepare, tmp_path):
    num_kills = count_kills(COMMANDS[name], tmp_path / "out", prepare)
    print(f"{name}: {num_kills} kills")
    assert num_kills >= KILLS[name]


@pytest.mark.parametrize("most_bytes", [100, 40_000])  # what the configuration exceeds, and only the weights
@pytest.mark.parametrize("name", ["marianmt", "capsules", "export"])
def test_a_full_disk_is_one_error_and_leaves_nothing(name, most_bytes, prepare, tmp_path):
    prepare()
    original = contents(tmp_path / "out")
    status, message = refusal_by_a_full_disk(COMMANDS[name], most_bytes)
    assert (status, "Traceback" in message) == (1, False), message
    assert re.search(r"error: \[Errno 27\] File too large: '(.*/)?out/", message.splitlines()[-1]), message
    assert contents(tmp_path / "out") == original
