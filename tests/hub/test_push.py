"""Pushing: what is sent, and what is refused."""

import sys

import pytest
import torch
from huggingface_hub import HfApi

from hf_capsule_mt.hub import LoadTestError, export, model_card, push
from hf_capsule_mt.hub.pushing import files_to_send
from tests.fixtures.tiny import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """An exported checkpoint with a card, in a folder where training has left other files."""
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, layer_aggregation="em_routing").eval()
    folder = export(model, tokenizer, tmp_path_factory.mktemp("export"))
    (folder / "README.md").write_text(str(model_card("tester/ours", model.config.to_dict())), encoding="utf-8")
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "model.pkl", "notes.txt"):
        (folder / name).write_bytes(b"\x80\x04.")
    (folder / "checkpoint-1").mkdir()
    (folder / "checkpoint-1" / "optimizer.pt").write_bytes(b"\x80\x04.")
    return folder


def test_a_folder_without_a_card_is_refused(exported, tmp_path):
    with pytest.raises(ValueError, match=r"has no README\.md"):
        push(tmp_path, "tester/none")


def test_a_folder_that_fails_its_load_test_is_refused(exported, tmp_path, monkeypatch):
    for name in ("README.md", "config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((exported / name).read_bytes())
    monkeypatch.setattr(HfApi, "create_repo", None)
    with pytest.raises(LoadTestError):
        push(tmp_path, "tester/broken")


def test_links_are_refused(exported, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("anything")
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("README.md", "config.json", "tokenizer.json"):
        (folder / name).write_bytes((exported / name).read_bytes())
    with open(folder / "README.md", "a", encoding="utf-8") as card:
        card.write("\n![routings](picture.png)\n")
    (folder / "vocab.json").symlink_to(secret)
    (folder / "picture.png").symlink_to(secret)
    (folder / "notes.txt").symlink_to(secret)  # is not sent
    with pytest.raises(ValueError, match=r"has links, .*: replace picture\.png, vocab\.json by copies"):
        push(folder, "tester/links")


def test_only_known_files_are_sent(tmp_path):
    """Not whatever is named like weights or a picture: shards that the index names, pictures that the card shows."""
    shown, shard = "shown.png", "model-00001-of-00002.safetensors"
    for name in (shown, "private.png", shard, "model-of-my-of-bank.safetensors", "config.json", "model.safetensors"):
        (tmp_path / name).touch()
    (tmp_path / "README.md").write_text(f"# Model\n\n![curves]({shown})\n", encoding="utf-8")
    assert files_to_send(tmp_path) == ["README.md", "config.json", "model.safetensors", shown]
    (tmp_path / "model.safetensors.index.json").write_text(f'{{"weight_map": {{"a": "{shard}", "b": "../x"}}}}')
    sent = ["README.md", "config.json", shard, "model.safetensors.index.json", shown]
    assert files_to_send(tmp_path) == sent


def test_what_is_sent_in_one_commit(exported, monkeypatch):
    sent = []
    monkeypatch.setattr(HfApi, "create_repo", lambda *args, **settings: None)
    monkeypatch.setattr(HfApi, "upload_folder", lambda self, **settings: sent.append(settings))
    monkeypatch.setattr(sys.modules["hf_capsule_mt.hub.pushing"], "check_export", lambda folder: None)
    push(exported, "tester/ours")
    (settings,) = sent
    files = ["README.md", "config.json", "generation_config.json", "model.safetensors", "modeling_hf_capsule_mt.py"]
    assert settings["allow_patterns"] == [*files, "tokenizer.json", "tokenizer_config.json"]
    # an old single file would win over new shards on loading
    assert {"model.safetensors", "model-*-of-*.safetensors"} <= set(settings["delete_patterns"])
