"""Averaging of checkpoints, starting from one, and training a part of it."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM

from capsule_mt.coverage.methods import Calibration
from capsule_mt.models.checking import check_calibration
from capsule_mt.web.model_file import _coverage
from hf_capsule_mt import CapsuleMarianMTModel
from hf_capsule_mt.commands import average
from hf_capsule_mt.decoding.fast import takes_fast
from hf_capsule_mt.loading import drop_measurements
from hf_capsule_mt.training import (
    average_checkpoints,
    average_weights,
    build_model,
    last_checkpoints,
    train_only,
)
from hf_capsule_mt.training.checkpoints import (
    MARKER,
    find_damage,
    mark_complete,
    read_weights,
    save_atomically,
)
from hf_capsule_mt.training.models import models_logger
from tests.decoding.models import batch, build
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian, tiny_model
from tests.mixes import FAST
from tests.training.small import CHECKPOINTING, TOKENIZER, make_trainer, weights

CALIBRATION = {
    "attention": {"head": [0, 1], "words": [[0, 0], [1, 1]], "sentences": [[0, 0], [1, 1]], "threshold": 0.3},
    "deletion": {"words": [[0, 0]], "sentences": [[0, 0]]},
    "verified": {
        "reverse": "de-en",
        "shortness": 1.5,
        "alarm": {"score": 0.5, "flagged": 0.01, "caught": {}},
        "right_marks": {"all": [9, 20]},
        "retries_marks": True,
    },
    "length": {"start": 1, "slope": 1, "more": {}},
    "optional_words": ["so"],
    "support": {"optional_words": ["er"]},
}
UNMEASURED = {
    "attention": {"head": [0, 1]},
    "verified": {"reverse": "de-en"},
    "optional_words": ["so"],
    "support": {"optional_words": ["er"]},
}


@pytest.mark.parametrize(
    ("calibration", "expected"),
    [
        (CALIBRATION, UNMEASURED),
        (UNMEASURED, UNMEASURED),
        ({"deletion": CALIBRATION["deletion"]}, None),
        (None, None),
    ],
)
def test_what_was_measured_of_other_weights_is_dropped(calibration, expected):
    config = SimpleNamespace(coverage_calibration=calibration)
    assert drop_measurements(config) is (calibration != expected)
    assert config.coverage_calibration == expected
    check_calibration(expected or {}, (1, 2), "config.json")
    translated = Calibration.of_config(expected)
    assert (translated.precision, translated.alarm("verified"), translated.retries_marks) == ({}, None, False)
    assert _coverage(SimpleNamespace(calibration=expected or {})) is None  # a page has no coverage without curves
    assert drop_measurements(SimpleNamespace()) is False


def save_run(folder, steps):
    """Checkpoints of other weights, at steps 1, 2, ..."""
    for step in range(1, steps + 1):
        checkpoint = folder / f"checkpoint-{step}"
        model = tiny_model(TOKENIZER, coverage_calibration=CALIBRATION)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(step)
        model.save_pretrained(checkpoint)
        TOKENIZER.save_pretrained(checkpoint)
        mark_complete(checkpoint)
    return folder


def names(checkpoints):
    return [checkpoint.name for checkpoint in checkpoints]


def test_the_mean_of_the_last(tmp_path):
    run = save_run(tmp_path / "run", 4)
    assert names(last_checkpoints(run, 2)) == ["checkpoint-3", "checkpoint-4"]
    average_checkpoints(last_checkpoints(run, 3), tmp_path / "mean")
    weights = read_weights(tmp_path / "mean")
    weights.pop("final_logits_bias")  # of which there is nothing to learn
    assert weights.keys() == dict(tiny_model(TOKENIZER).named_parameters()).keys() & weights.keys()
    assert all(torch.equal(value, torch.full_like(value, 3.0)) for value in weights.values())
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "mean").config.coverage_calibration == UNMEASURED
    average_checkpoints(last_checkpoints(run, 1), tmp_path / "same")
    assert json.loads((tmp_path / "same" / "config.json").read_text())["coverage_calibration"] == CALIBRATION
    assert not (tmp_path / "mean" / "partial").exists()
    assert (tmp_path / "mean" / "tokenizer.json").exists()
    saved = [folder / "tokenizer_config.json" for folder in (tmp_path / "mean", run / "checkpoint-4")]
    assert saved[0].read_text() == saved[1].read_text()  # and not how it was loaded in between


def test_an_average_never_replaces_the_weights_of_its_run(tmp_path, call):
    run = save_run(tmp_path / "run", 2)
    weights = (run / "checkpoint-2" / "model.safetensors").read_bytes()
    for output in (run, run / "checkpoint-2"):
        with pytest.raises(SystemExit):
            call(average, str(run), "--last", "2", "--output", str(output))
    assert not (run / "model.safetensors").exists()
    assert (run / "checkpoint-2" / "model.safetensors").read_bytes() == weights


def test_only_complete_checkpoints_are_averaged(tmp_path):
    run = save_run(tmp_path, 2)
    (run / "checkpoint-2" / "model.safetensors").unlink()
    assert names(last_checkpoints(run, 1)) == ["checkpoint-1"]
    with pytest.raises(ValueError, match=r"2 checkpoints are to be averaged, but .* has 1 .* number \(`--last`, or "):
        last_checkpoints(run, 2)


def test_an_average_names_the_origin_of_its_run(tmp_path, call):
    run, recipe = save_run(tmp_path / "run", 3), {"languages": {"source": "en", "target": "de"}}
    result = {"recipe": recipe, "scores": {"test_bleu": 9.0}, "log": [{"eval_bleu": 9.0}], "steps": 3}
    (run / "train_result.json").write_text(json.dumps(result))
    call(average, run, "--last", "2", "--output", tmp_path / "mean")
    origin = json.loads((tmp_path / "mean" / "train_result.json").read_text())
    averaged = ["checkpoint-2", "checkpoint-3"]
    assert origin == {"recipe": recipe, "scores": {}, "log": [], "steps": 3, "averaged": averaged}


def test_an_average_of_a_run_that_is_not_there(tmp_path, refusal_of):
    complaint = refusal_of(average, tmp_path / "no", "--last", "2", "--output", tmp_path / "mean")
    assert f"argument run: {tmp_path}/no: no such folder" in complaint


@pytest.mark.parametrize("content", [b"[]", b"{}", b"[" * 100_000, b"\xff\x00"])
def test_damage_is_named(tmp_path, content):
    checkpoint = save_run(tmp_path, 1) / "checkpoint-1"
    (checkpoint / "config.json").write_text("{")
    assert "config.json has 1 bytes, it had" in find_damage(checkpoint)
    (checkpoint / MARKER).write_bytes(content)
    assert f"{MARKER} is damaged" in find_damage(checkpoint)


def test_other_models_cannot_be_averaged(tmp_path):
    folders = [save_tiny_checkpoint(tmp_path / "a"), save_tiny_checkpoint(tmp_path / "b", layer_aggregation="linear")]
    with pytest.raises(ValueError, match="is a checkpoint of another model"):
        average_weights(folders)


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
    fields = {"model_type": "capsule_marian", "layer_aggregation": "em_routing", "layer_aggregation_placement": "adds"}
    model = build_model(fields, TOKENIZER, init_from=folder).eval()
    assert isinstance(model, CapsuleMarianMTModel)
    batch = TOKENIZER(["The old man sleeps."], text_target=["Der Mann schläft."], return_tensors="pt")
    baseline = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits, baseline(**batch).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fields", [{"model_type": "capsule_marian"}, {"model_type": "capsnmt", "hidden_size": 16}])
def test_training_starts_in_float32_from_half_weights(tmp_path, fields):
    if fields["model_type"] == "capsnmt":
        source = build_model(fields, TOKENIZER)
    else:
        source = AutoModelForSeq2SeqLM.from_pretrained(save_tiny_marian(tmp_path / "marian"))
    source.half().save_pretrained(tmp_path)
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path).dtype == torch.float16
    assert build_model(fields, TOKENIZER, init_from=str(tmp_path)).dtype == torch.float32


def test_a_start_names_the_settings_that_differ(tmp_path, monkeypatch):
    """New weights or not, a changed setting changes what the old weights compute."""
    build_model({"model_type": "capsnmt", "hidden_size": 16, "dropout": 0.2}, TOKENIZER).save_pretrained(tmp_path)
    messages = []
    monkeypatch.setattr(models_logger, "warning", messages.append)
    changed = {"model_type": "capsnmt", "hidden_size": 16, "score_scale": 0.5}
    build_model(changed, TOKENIZER, init_from=str(tmp_path))
    assert messages == [f"Other settings than those of {tmp_path}: `score_scale` 0.5 (there 1.0)."]


def test_a_model_of_another_family_is_no_start(tmp_path):
    folder = str(save_tiny_checkpoint(tmp_path))
    with pytest.raises(ValueError, match=r"a t5 cannot start from .*, which is a capsule_marian"):
        build_model({"model_type": "t5"}, TOKENIZER, init_from=folder)


CAPSULES = {"layer_aggregation": "em_routing", "layer_aggregation_placement": "adds", "guided_routing": "guided"}


def trained(model):
    return sorted(name for name, parameter in model.named_parameters() if parameter.requires_grad)


def test_the_old_weights_stay_and_the_capsules_learn(tmp_path):
    folder = str(save_tiny_marian(tmp_path / "opus"))
    model = build_model({"model_type": "capsule_marian", **CAPSULES}, TOKENIZER, folder, "old")
    _, info = CapsuleMarianMTModel.from_marian(folder, output_loading_info=True, **CAPSULES)
    assert trained(model) == sorted(info["new_weights"])
    trainer = make_trainer(tmp_path / "run", model=model, max_steps=3, warmup_steps=0, **{CHECKPOINTING: True})
    old_weights = weights(trainer)
    trainer.train()
    changed = {name for name, value in weights(trainer).items() if not torch.equal(value, old_weights[name])}
    assert changed
    assert changed <= set(info["new_weights"])


def test_a_weight_to_train_that_the_model_lacks_is_named(tmp_path):
    model = AutoModelForSeq2SeqLM.from_pretrained(save_tiny_checkpoint(tmp_path))
    name = next(name for name, _ in model.named_parameters())
    with pytest.raises(ValueError, match=r"`weights` has 'model\.votes', but the model has no weight of this name"):
        train_only(model, [name, "model.votes"])
    with pytest.raises(TypeError, match="`weights` must be a list of names of weights, got the string 'lm_head'"):
        train_only(model, "lm_head")


def test_nothing_left_to_train_is_an_error(tmp_path):
    folder = str(save_tiny_checkpoint(tmp_path))
    with pytest.raises(ValueError, match="nothing is left to train"):
        build_model({"model_type": "capsule_marian"}, TOKENIZER, folder, "old")


def lora_targets() -> dict[str, list[str]]:
    """The table of docs/training.md."""
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| (`.+`) \|$", page.split("### LoRA")[1].split("```")[0], re.MULTILINE)
    return {model: re.findall(r"`(\w+)`", names) for model, names in rows if "target_modules" not in names}


LORA_MODELS = {
    "Capsule Marian": ["plain", "linear"],
    "Capsule Marian, routing of the heads of all three kinds of attention": ["heads"],
    "Capsule Marian, routing of layers": ["em", "dynamic"],
    "Capsule Marian, PAST and FUTURE": ["guided"],
    "RNMT": ["rnmt"],
    "RNMT, PAST and FUTURE": ["rnmt_guided"],
    "CapsNMT": ["capsules"],
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("row", "name"), [(row, name) for row, names in LORA_MODELS.items() for name in names])
def test_lora_adapts_what_the_guide_names(row, name):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    targets, source, labels = lora_targets()[row], batch(), torch.randint(1, 200, (4, 5))
    settings = peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=False, task_type="SEQ_2_SEQ_LM")
    model = peft.get_peft_model(build(name), settings)
    adapted = {path.rpartition(".")[2] for path, module in model.named_modules() if hasattr(module, "lora_A")}
    assert adapted == set(targets)
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    model(**source, labels=labels).loss.backward()
    assert all(weight.grad.abs().sum() > 0 for weight in learning)
    with torch.no_grad():
        expected = model(**source, labels=labels).logits
        merged = model.merge_and_unload()
        assert takes_fast(merged)
        torch.testing.assert_close(merged(**source, labels=labels).logits, expected, atol=5e-3, rtol=1e-3)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_lora_adapts_embeddings():
    """PEFT's layer around them has no `num_embeddings`."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    settings = peft.LoraConfig(r=2, target_modules=["embed_tokens"], init_lora_weights=False, task_type="SEQ_2_SEQ_LM")
    model, source = peft.get_peft_model(build("em"), settings), batch()
    model(**source, labels=torch.randint(1, 200, (4, 5))).loss.backward()
    assert all(weight.grad is not None for weight in model.parameters() if weight.requires_grad)
    assert len(model.generate(**source, max_new_tokens=3)) == 4
    with pytest.raises(IndexError, match="must be token ids from 0 to"):
        model(input_ids=source["input_ids"] + 100_000, labels=source["input_ids"])


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_lora_adapts_every_linear_map_beside_added_heads():
    peft = pytest.importorskip("peft", reason="peft is not installed")
    settings = peft.LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False, task_type="SEQ_2_SEQ_LM")
    model, source = peft.get_peft_model(build("heads_added"), settings), batch()
    expected = model(**source, labels=source["input_ids"]).logits
    adapted = {path.rpartition(".")[2] for path, module in model.named_modules() if hasattr(module, "lora_A")}
    assert {"out_proj", "input_capsules", "votes"} <= adapted
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(**source, labels=source["input_ids"]).logits, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", FAST)
def test_lora_knows_the_layers_of_every_model(name):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    model, settings = build(name), peft.LoraConfig(r=2, init_lora_weights=False, task_type="SEQ_2_SEQ_LM")
    if name in ("linear_from_top", "combination_from_layers"):
        # merged into weights that are divided by an update scale, it would be scaled
        with pytest.raises(ValueError, match=r"Target module ScaledLinear\(.*is not supported"):
            peft.get_peft_model(model, settings)
        return
    adapted = peft.get_peft_model(model, settings)
    names = {path.rpartition(".")[2] for path, module in adapted.named_modules() if hasattr(module, "lora_A")}
    linear = {path.rpartition(".")[2] for path, module in build(name).named_modules() if isinstance(module, nn.Linear)}
    assert names == linear & set(model.config.lora_target_modules)
    adapted(**batch(), labels=torch.randint(1, 200, (4, 5))).loss.backward()
    learning = [weight for weight in adapted.parameters() if weight.requires_grad]
    assert learning
    assert all(weight.grad.abs().sum() > 0 for weight in learning)


def test_the_table_of_peft_is_told_of_the_families(monkeypatch):
    """Also where peft is not installed: when it asks for a configuration, as it does before it looks there."""
    table = {"capsnmt": ["votes"]}  # what a user has registered stays
    module = SimpleNamespace(TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING=table)
    monkeypatch.setitem(sys.modules, "peft.utils.constants", module)
    for name in ("plain", "rnmt", "capsules"):
        build(name).config.to_dict()
    assert table["capsnmt"] == ["votes"]
    assert table["capsule_marian"] == ["q_proj", "k_proj", "v_proj", "fc1", "fc2"]
    assert table["capsule_rnmt"] == ["query_projection", "key_projection", "score", "readout", "first_states"]
