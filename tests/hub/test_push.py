"""Pushing and loading over HTTP: the real client of the hub, and a local server that speaks its protocol."""

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi
from transformers import AutoModelForSeq2SeqLM, pipeline

from hf_capsule_mt.commands.push import write_folder
from hf_capsule_mt.data import sentence_pairs, train_separate_tokenizers
from hf_capsule_mt.hub import LoadTestError, export, model_card, push
from hf_capsule_mt.hub.pushing import files_to_send
from tests.fixtures.local_hub import LocalHub
from tests.fixtures.tiny import tiny_model, tiny_tokenizer

ROOT = Path(__file__).resolve().parents[2]
TEXT = "The child sleeps. Who laughs?"


@pytest.fixture(scope="module")
def hub():
    server = LocalHub().start()
    yield server
    server.stop()


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


def run(hub, home, program, *arguments, isolated=False):
    """Runs a program with the local hub in the place of the real one; its last line is its result."""
    guard = ""
    if isolated:
        guard = f"""
import sys
sys.path.insert(0, {str(ROOT / "hf_capsule_mt" / "hub")!r})
from load_test import Absent
sys.meta_path.insert(0, Absent("hf_capsule_mt"))
"""
    done = subprocess.run(
        [sys.executable, *(["-I"] if isolated else []), "-c", guard + program, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **hub.environment(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.slow
def test_ours_from_push_to_a_process_without_the_package(hub, exported, tmp_path):
    # the first upload is refused once and hung up on once, and so is the first commit; the repository fails once, too
    hub.fail_next = [("PUT", "/lfs/upload/"), ("POST", "/tester/ours/commit/"), ("POST", "/api/repos/create")]
    hub.drop_next = [("PUT", "/lfs/upload/"), ("POST", "/tester/ours/commit/")]
    first = run(
        hub,
        tmp_path / "home",
        """
import json, sys
from hf_capsule_mt.hub import push
print(json.dumps(push(sys.argv[1], "tester/ours", wait=0.1).oid))
""",
        exported,
    )
    assert not hub.fail_next
    assert not hub.drop_next
    repository = hub.repositories["tester/ours"]
    assert repository.head == first
    assert sorted(repository.files) == [
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "modeling_hf_capsule_mt.py",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    for name, data in repository.files.items():
        assert data == (exported / name).read_bytes(), name

    expected = pipeline("translation", model=str(exported))(TEXT, split_sentences=False)
    # another commit follows, which the pinned revision does not see
    repository.files["config.json"] = b"{}"
    repository.commit()
    loaded = run(
        hub,
        tmp_path / "other home",
        """
import json, sys
from transformers import pipeline
translator = pipeline("translation", model="tester/ours", revision=sys.argv[1], trust_remote_code=True)
print(json.dumps([type(translator.model).__name__, translator(sys.argv[2])]))
""",
        first,
        TEXT,
        isolated=True,
    )
    assert loaded == ["CapsuleMarianMTModel", expected]


@pytest.mark.slow
def test_push_to_hub_of_models(hub, exported, tmp_path):
    hub.drop_next = [("PUT", "/lfs/upload/")]
    results = run(
        hub,
        tmp_path / "home",
        """
import json, sys
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
import hf_capsule_mt
folder, text = sys.argv[1:]
model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
first = model.push_to_hub("tester/plain").oid
tokenizer.push_to_hub("tester/plain")
with torch.no_grad():
    model.final_logits_bias[0, 300] = 100.0
model.push_to_hub("tester/plain")
pinned = pipeline("translation", model="tester/plain", revision=first, tokenizer=tokenizer)(text)
newest = pipeline("translation", model="tester/plain")(text)
print(json.dumps([pinned, newest]))
""",
        exported,
        TEXT,
    )
    expected = pipeline("translation", model=str(exported))(TEXT)
    pinned, newest = results
    assert pinned == expected
    assert newest != expected
    # of the package only its import leaves with `push_to_hub`, and no pointer to code that is not there
    files = hub.repositories["tester/plain"].files
    assert [name for name in files if name.endswith(".py")] == ["modeling_hf_capsule_mt.py"]
    for reference in json.loads(files["config.json"])["auto_map"].values():
        assert reference.removeprefix("modeling_hf_capsule_mt.").encode() in files["modeling_hf_capsule_mt.py"]


@pytest.mark.slow
def test_push_to_hub_of_the_trainer(hub, exported, tmp_path):
    trained = run(
        hub,
        tmp_path / "home",
        """
import json, sys
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq, pipeline
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments
import hf_capsule_mt
folder, work, text = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
trainer = Seq2SeqTrainer(
    model=AutoModelForSeq2SeqLM.from_pretrained(folder),
    args=Seq2SeqTrainingArguments(work, max_steps=1, report_to="none", use_cpu=True, hub_model_id="tester/trained",
                                  learning_rate=0.0),
    train_dataset=[dict(tokenizer(text, text_target=text))] * 8,
    data_collator=DataCollatorForSeq2Seq(tokenizer),
    processing_class=tokenizer,
)
trainer.train()
trainer.push_to_hub()
print(json.dumps(pipeline("translation", model="tester/trained")(text)))
""",
        exported,
        tmp_path / "work",
        TEXT,
    )
    assert trained == pipeline("translation", model=str(exported))(TEXT)


def test_a_folder_without_a_card_is_refused(exported, tmp_path):
    with pytest.raises(ValueError, match=r"has no README\.md"):
        push(tmp_path, "tester/none")


def test_a_folder_that_fails_its_load_test_is_refused(hub, exported, tmp_path):
    for name in ("README.md", "config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((exported / name).read_bytes())
    with pytest.raises(LoadTestError):
        push(tmp_path, "tester/broken")
    assert "tester/broken" not in hub.repositories


def test_links_are_refused(exported, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("anything")
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("README.md", "config.json", "tokenizer.json"):
        (folder / name).write_bytes((exported / name).read_bytes())
    (folder / "vocab.json").symlink_to(secret)
    (folder / "picture.png").symlink_to(secret)
    (folder / "notes.txt").symlink_to(secret)  # is not sent
    with pytest.raises(ValueError, match=r"has links, .*: replace picture\.png, vocab\.json by copies"):
        push(folder, "tester/links")
    with pytest.raises(ValueError, match=r"picture\.png is a link, whose target would be published"):
        write_folder(
            argparse.Namespace(checkpoint=linked(exported, secret), results=[], license=None), tmp_path / "a", "a"
        )


def linked(exported, secret):
    """The exported checkpoint with a picture that is a link."""
    folder = secret.with_name("linked")
    shutil.copytree(exported, folder)
    (folder / "picture.png").symlink_to(secret)
    return folder


def test_a_tokenizer_of_two_vocabularies_is_sent_whole(tmp_path):
    pairs = zip(*itertools.islice(sentence_pairs(), 50), strict=True)
    train_separate_tokenizers(*pairs, 400).save_pretrained(tmp_path)
    assert files_to_send(tmp_path) == sorted(path.name for path in tmp_path.iterdir())
    assert {"separate_tokenizer.py", "target_tokenizer.json"} <= set(files_to_send(tmp_path))


@pytest.mark.slow
def test_weights_that_a_push_does_not_replace_are_removed(hub, exported, tmp_path):
    """An old single file would win over new shards on loading."""
    old = tmp_path / "old"
    (old / "other").mkdir(parents=True)
    files = ["model.safetensors", "pytorch_model.bin", "model-00001-of-00099.safetensors", "notes.txt"]
    for name in (*files, "config.json", "other/model.safetensors"):
        (old / name).write_bytes(b"old")
    hub.add_folder("tester/sharded", old)
    folder = tmp_path / "sharded"
    AutoModelForSeq2SeqLM.from_pretrained(exported).save_pretrained(folder, max_shard_size="20KB")
    for file in exported.iterdir():
        if file.is_file() and file.name != "model.safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    shards = {name for name in files_to_send(folder) if name.startswith("model-")}
    assert len(shards) > 1
    run(
        hub,
        tmp_path / "home",
        """
import json, sys
from hf_capsule_mt.hub import push
sys.modules["hf_capsule_mt.hub.pushing"].check_export = lambda folder: None
print(json.dumps(push(sys.argv[1], "tester/sharded").oid))
""",
        folder,
    )
    found = hub.repositories["tester/sharded"].files
    assert {name for name in found if name.endswith((".safetensors", ".bin"))} == shards | {"other/model.safetensors"}
    assert found["config.json"] != b"old"
    assert found["notes.txt"] == b"old"


@pytest.mark.parametrize("failures", [2, 4])
def test_attempts(exported, monkeypatch, failures):
    tried = []

    def upload_folder(self, **settings):
        tried.append(settings)
        if len(tried) <= failures:
            raise ConnectionError("the line is dead")
        return "done"

    monkeypatch.setattr(HfApi, "create_repo", lambda *args, **settings: None)
    monkeypatch.setattr(HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr(sys.modules["hf_capsule_mt.hub.pushing"], "check_export", lambda folder: None)
    if failures == 2:
        assert push(exported, "tester/ours", wait=0.0) == "done"
        assert len(tried) == 3
    else:
        with pytest.raises(ConnectionError, match="the line is dead"):
            push(exported, "tester/ours", wait=0.0)
        assert len(tried) == 4


@pytest.mark.slow
def test_the_script(hub, exported, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    for name in (
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ):
        (checkpoint / name).write_bytes((exported / name).read_bytes())
    program = """
import json, runpy, sys
sys.argv = ["scripts/push_to_hub.py", *sys.argv[1:]]
sys.path.insert(0, "")
runpy.run_path(sys.argv[0], run_name="__main__")
print(json.dumps("done"))
"""
    assert run(hub, tmp_path / "home", program, checkpoint, "tester/script") == "done"
    files = hub.repositories["tester/script"].files
    assert {"README.md", "modeling_hf_capsule_mt.py", "model.safetensors"} <= files.keys()
    assert b"tester/script" in files["README.md"]
