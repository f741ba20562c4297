"""Averaging of checkpoints, and starting from one."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt import CapsuleMarianMTModel
from hf_capsule_mt.training import average_checkpoints, average_weights, build_model, choose_checkpoints
from hf_capsule_mt.training.checkpoints import mark_complete, read_weights, save_atomically
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian, tiny_model
from tests.training.small import TOKENIZER


def save_run(folder, scores):
    """Checkpoints of other weights, at steps 1, 2, ..., with BLEU scores in their logs."""
    history = []
    for step, score in enumerate(scores, start=1):
        checkpoint = folder / f"checkpoint-{step}"
        model = tiny_model(TOKENIZER)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(step)
        model.save_pretrained(checkpoint)
        TOKENIZER.save_pretrained(checkpoint)
        history.append({"step": step, "eval_bleu": score})
        (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": history}))
        mark_complete(checkpoint)
    return folder


def names(checkpoints):
    return [checkpoint.name for checkpoint in checkpoints]


def test_the_mean_of_the_last_and_of_the_best(tmp_path):
    run = save_run(tmp_path / "run", [5.0, 1.0, 7.0, 5.0])
    assert names(choose_checkpoints(run, last=2)) == ["checkpoint-3", "checkpoint-4"]
    assert names(choose_checkpoints(run, best=2)) == ["checkpoint-3", "checkpoint-1"]
    assert names(choose_checkpoints(run, best=1, greater_is_better=False)) == ["checkpoint-2"]
    average_checkpoints(choose_checkpoints(run, last=3), tmp_path / "mean")
    weights = read_weights(tmp_path / "mean")
    weights.pop("final_logits_bias")  # of which there is nothing to learn
    assert weights.keys() == dict(tiny_model(TOKENIZER).named_parameters()).keys() & weights.keys()
    assert all(torch.equal(value, torch.full_like(value, 3.0)) for value in weights.values())
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "mean")
    assert not (tmp_path / "mean" / "partial").exists()
    assert (tmp_path / "mean" / "tokenizer.json").exists()
    saved = [folder / "tokenizer_config.json" for folder in (tmp_path / "mean", run / "checkpoint-4")]
    assert saved[0].read_text() == saved[1].read_text()  # and not how it was loaded in between


def test_only_complete_checkpoints_are_averaged(tmp_path):
    run = save_run(tmp_path, [1.0, 2.0])
    (run / "checkpoint-2" / "model.safetensors").unlink()
    assert names(choose_checkpoints(run, last=1)) == ["checkpoint-1"]
    with pytest.raises(ValueError, match=r"2 checkpoints are asked for, .* has 1 that are complete"):
        choose_checkpoints(run, last=2)
    with pytest.raises(ValueError, match=r"complete and scored \(`eval_chrf`\)"):
        choose_checkpoints(run, best=1, metric="chrf")
    with pytest.raises(ValueError, match="either `last` or `best` must be given, got 1 and 1"):
        choose_checkpoints(run, last=1, best=1)


def test_damaged_checkpoints_are_not_averaged(tmp_path):
    run = save_run(tmp_path, [1.0, 2.0])
    file = run / "checkpoint-1" / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([255 - content[-1]]))
    with pytest.raises(
        ValueError, match=r"checkpoint-1 is damaged: model\.safetensors has other bytes than were saved"
    ):
        choose_checkpoints(run, last=2)
    assert names(choose_checkpoints(run, last=1)) == ["checkpoint-2"]
    file.write_bytes(content[:50])
    with pytest.raises(ValueError, match=r"model\.safetensors is no safetensors file, or it is cut off"):
        read_weights(run / "checkpoint-1")


def test_other_models_cannot_be_averaged(tmp_path):
    folders = [save_tiny_checkpoint(tmp_path / "a"), save_tiny_checkpoint(tmp_path / "b", layer_aggregation="linear")]
    with pytest.raises(ValueError, match="is a checkpoint of another model"):
        average_weights(folders)


def test_a_checkpoint_in_several_files_is_read_whole(tmp_path):
    model = tiny_model(TOKENIZER)
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "parts", max_shard_size="10KB")
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    whole, parts = read_weights(tmp_path / "whole"), read_weights(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert all(torch.equal(value, parts[name]) for name, value in whole.items())


def test_saving_leaves_the_old_files_until_the_new_ones_are_there(tmp_path):
    (tmp_path / "a.txt").write_text("old")

    def fail(folder):
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        save_atomically(tmp_path, fail)
    assert (tmp_path / "a.txt").read_text() == "old"
    save_atomically(tmp_path, lambda folder: Path(folder, "a.txt").write_text("new"))
    assert (tmp_path / "a.txt").read_text() == "new"


@pytest.mark.parametrize("source", ["marian", "capsule_marian"])
def test_staged_training_starts_at_the_function_of_the_baseline(tmp_path, source):
    save = save_tiny_marian if source == "marian" else save_tiny_checkpoint
    folder = str(save(tmp_path / "baseline"))
    fields = {"model_type": "capsule_marian", "layer_aggregation": "em_routing", "layer_aggregation_residual": True}
    model = build_model(fields, TOKENIZER, init_from=folder).eval()
    assert isinstance(model, CapsuleMarianMTModel)
    batch = TOKENIZER(["The old man sleeps."], text_target=["Der Mann schläft."], return_tensors="pt")
    baseline = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits, baseline(**batch).logits, rtol=1e-4, atol=1e-4)


def test_a_model_of_another_family_is_no_start(tmp_path):
    folder = str(save_tiny_checkpoint(tmp_path))
    with pytest.raises(ValueError, match=r"a t5 cannot start from .*, which is a capsule_marian"):
        build_model({"model_type": "t5"}, TOKENIZER, init_from=folder)
