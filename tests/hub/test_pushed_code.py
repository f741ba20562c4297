"""What transformers pushes by itself, a model or a Trainer's, loads where the package is not installed."""

import json
import shutil
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from huggingface_hub import HfApi
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments

from capsule_mt.models.loading import load_model
from capsule_mt.models.weights import CheckpointError
from hf_capsule_mt.hub import PushedCode, export
from tests.fixtures.tiny import tiny_model, tiny_tokenizer
from tests.hub.hidden import check_without_the_packages

CALIBRATION = {"attention": {"head": [0, 1]}}


@pytest.fixture
def pushed(monkeypatch, tmp_path):
    """The folders of commits, as they are sent."""
    folders = []

    def upload(self, *, folder_path, **settings):
        folders.append(tmp_path / f"pushed-{len(folders)}")
        shutil.copytree(folder_path, folders[-1], ignore=shutil.ignore_patterns("checkpoint-*", "_*"))
        sent: Future[None] = Future()
        sent.set_result(None)
        return sent

    def commit(self, *, operations, **settings):
        folders.append(tmp_path / f"pushed-{len(folders)}")
        folders[-1].mkdir()
        for operation in operations:
            shutil.copy(operation.path_or_fileobj, folders[-1] / operation.path_in_repo)

    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **_: SimpleNamespace(repo_id=repo_id))
    monkeypatch.setattr(HfApi, "create_commit", commit)
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    return folders


@pytest.mark.slow
def test_what_transformers_pushes_loads_without_the_package(pushed, tmp_path):
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, layer_aggregation="grn")
    model.push_to_hub("tester/model")
    model.save_pretrained(tmp_path / "saved", push_to_hub=True, repo_id="tester/model")
    assert len(pushed) == 2
    assert not hasattr(model.config, "auto_map")  # what is saved elsewhere has no code beside it
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path / "run"),
        max_steps=2,
        save_steps=1,
        push_to_hub=True,
        hub_always_push=True,
        hub_model_id="tester/model",
        use_cpu=True,
        report_to=[],
    )
    examples = [{"input_ids": [5, 6, 2], "attention_mask": [1, 1, 1], "labels": [7, 8, 2]}] * 4
    trainer = Seq2SeqTrainer(model, arguments, train_dataset=examples, callbacks=[PushedCode()])
    trainer.train()
    trainer.push_to_hub()
    assert len(pushed) >= 4
    check_without_the_packages([pushed[0], pushed[1], pushed[2], pushed[-1]], tmp_path / "modules")


def test_a_calibration_is_beside_a_short_configuration(tmp_path):
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer)
    model.config.coverage_calibration = CALIBRATION
    folder = export(model, tokenizer, tmp_path / "export")
    values = json.loads((folder / "config.json").read_text())
    assert "coverage_calibration" not in values
    assert len((folder / "config.json").read_text()) <= 1500
    assert json.loads((folder / "coverage.json").read_text()) == CALIBRATION
    assert AutoModelForSeq2SeqLM.from_pretrained(folder).config.coverage_calibration == CALIBRATION
    assert load_model(folder).calibration == CALIBRATION
    values["coverage_calibration"] = {"attention": {"head": [1, 1]}}
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"coverage\.json: differs from `coverage_calibration` of"):
        load_model(folder)
