"""Pushing: a checkpoint is exported, tested and sent in one commit, without the other files of its folder."""

from pathlib import Path

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError

from hf_capsule_mt.hub import LoadTestError, push, pushing
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
