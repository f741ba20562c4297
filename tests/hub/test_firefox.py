"""Students of Firefox on the hub: converted, compared with the original, described by Mozilla's metadata, and sent."""

import json
import os
import subprocess
import sys

import pytest
import torch

from hf_capsule_mt import CapsuleMarianMTModel
from hf_capsule_mt.hub import firefox, pushing
from hf_capsule_mt.hub.firefox import StudentCheckError, push_from_firefox, write_student
from tests.fixtures.local_hub import LocalHub
from tests.fixtures.students import write_student as write_original
from tests.light.models.test_marian_checkpoint import KINDS

METADATA = {"version": "1.0", "architecture": "tiny", "flores": {"bleu": 40.2, "comet": 0.8911}}


@pytest.fixture
def original(tmp_path):
    folder = write_original(tmp_path / "enpt-1693087644")
    (folder / "vocab.xxyy.spm").rename(folder / "vocab.enpt.spm")
    (folder / "config.yml").write_text((folder / "config.yml").read_text().replace("vocab.xxyy", "vocab.enpt"))
    (folder / "metadata.json").write_text(json.dumps(METADATA))
    return folder


@pytest.fixture
def sent(monkeypatch):
    """The names of the repositories that a push creates."""
    names = []
    monkeypatch.setattr(pushing.HfApi, "create_repo", lambda self, name, **settings: names.append(name))
    return names


def test_the_card_says_what_mozilla_says(original, tmp_path):
    write_student(original, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlanguage:\n- en\n- pt\nlicense: mpl-2.0\n")
    for line in ("- Version: 1.0.", "- Build: 1693087644.", "- Kind: tiny.", "| flores bleu | 40.2 |"):
        assert line in card.splitlines()
    assert "Translates English to Portuguese." in card
    assert "- Check: the tokens of 20 English sentences" in card
    tokenizer_config = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert (tokenizer_config["source_lang"], tokenizer_config["target_lang"]) == ("en", "pt")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_student_is_the_original(kind, tmp_path):
    options, targets = KINDS[kind]
    write_student(write_original(tmp_path / "en-pt", options=options, targets=targets), tmp_path / "out")


@pytest.mark.parametrize("weight", ["model.decoder.layers.1.fc1.weight", "model.encoder.layers.0.fc1.bias"])
def test_a_student_that_was_converted_wrongly_is_not_sent(weight, original, sent, monkeypatch):
    convert = firefox.write_huggingface

    def convert_wrongly(folder, out, **settings):
        convert(folder, out, **settings)
        model = CapsuleMarianMTModel.from_pretrained(out)
        with torch.no_grad():
            model.get_parameter(weight).mul_(-1)
        model.save_pretrained(out)

    monkeypatch.setattr(firefox, "write_huggingface", convert_wrongly)
    with pytest.raises(StudentCheckError, match=r"transformers writes|log-probability differs"):
        push_from_firefox(original, "tester/student")
    assert not sent


def test_a_student_of_unknown_languages_is_not_sent(tmp_path, sent):
    folder = write_original(tmp_path / "student", configuration=False)
    (folder / "vocab.xxyy.spm").rename(folder / "vocab.spm")
    with pytest.raises(ValueError, match="its languages are not known"):
        push_from_firefox(folder, "tester/student")
    assert not sent


def test_a_repository_without_an_owner_is_refused_before_it_is_created(original, sent):
    with pytest.raises(ValueError, match=r"must be owner/name, such as your-name/student, got 'student'"):
        pushing.push(original, "student")
    with pytest.raises(ValueError, match=r"must be owner/name"):
        push_from_firefox(original, "student")
    assert not sent


LOADS = """
import sys
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
model = AutoModelForSeq2SeqLM.from_pretrained("tester/student", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("tester/student", trust_remote_code=True)
batch = tokenizer(["the old man"], text_target=["a red hat"], return_tensors="pt")
assert model.train()(**batch).loss == model.eval()(**batch).loss
assert "hf_capsule_mt" not in sys.modules
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["ssru", "two of other sizes"])
def test_a_student_by_one_command_on_the_hub(kind, tmp_path):
    options, targets = KINDS[kind]
    original = write_original(tmp_path / "en-pt", options=options, targets=targets)
    hub = LocalHub().start()
    environment = {**os.environ, **hub.environment(tmp_path / "home")}

    def run(*arguments):
        return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)

    pushed = run("-m", "capsule_mt", "push", "--from-firefox", str(original), "tester/student")
    assert pushed.returncode == 0, pushed.stderr
    assert "/tester/student/commit/" in pushed.stdout
    files = hub.repositories["tester/student"].files
    assert {"README.md", "model.safetensors", "modeling_hf_capsule_mt.py", "tokenizer.json"} <= set(files)
    card = files["README.md"].decode()
    assert "license: mpl-2.0\n" in card
    assert "\n# tester/student\n" in card
    assert '"tester/student", trust_remote_code=True' in card
    loaded = run("-c", LOADS)
    assert loaded.returncode == 0, loaded.stderr
    assert "UNEXPECTED" not in loaded.stderr
    refused = run("-m", "capsule_mt", "push", "--from-firefox", str(original), "student")
    assert refused.returncode != 0
    assert "must be owner/name" in refused.stderr
    assert list(hub.repositories) == ["tester/student"]
    hub.stop()
