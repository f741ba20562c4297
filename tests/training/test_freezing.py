"""Train a part of a model: the capsules of an OPUS-MT model, or what a warm start added."""

import re
from pathlib import Path

import pytest
import torch

from hf_capsule_mt import CapsuleMarianMTModel
from hf_capsule_mt.training import build_model, capsule_weights, train_only
from tests.fast.models import batch, build
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian, tiny_model
from tests.training.small import TOKENIZER, make_trainer, weights

CAPSULES = {"layer_aggregation": "em_routing", "layer_aggregation_residual": True, "guided_routing": "guided"}


def trained(model):
    return sorted(name for name, parameter in model.named_parameters() if parameter.requires_grad)


@pytest.mark.parametrize("how", [{"freeze": "old"}, {"only": "capsules"}])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_old_weights_stay_and_the_capsules_learn(tmp_path, how, checkpointing):
    folder = str(save_tiny_marian(tmp_path / "opus"))
    model = build_model({"model_type": "capsule_marian", **CAPSULES}, TOKENIZER, folder, **how)
    _, info = CapsuleMarianMTModel.from_marian(folder, output_loading_info=True, **CAPSULES)
    assert trained(model) == sorted(info["new_weights"])
    trainer = make_trainer(
        tmp_path / "run", model=model, max_steps=3, warmup_steps=0, gradient_checkpointing=checkpointing
    )
    before = weights(trainer)
    trainer.train()
    changed = {name for name, value in weights(trainer).items() if not torch.equal(value, before[name])}
    assert changed
    assert changed <= set(info["new_weights"])


def test_heads_that_replace_a_projection_are_capsules(tmp_path):
    folder = str(save_tiny_checkpoint(tmp_path))
    fields = {"model_type": "capsule_marian", "head_aggregation": "simple_routing"}
    model = build_model(fields, TOKENIZER, folder, freeze="old")
    assert trained(model)
    assert all(".self_attn.out_proj." in name for name in trained(model))
    assert trained(model) == capsule_weights(model)


def test_nothing_left_to_train_is_an_error(tmp_path):
    folder = str(save_tiny_checkpoint(tmp_path))
    with pytest.raises(ValueError, match="nothing is left to train"):
        build_model({"model_type": "capsule_marian"}, TOKENIZER, folder, freeze="old")
    with pytest.raises(ValueError, match="nothing is left to train"):
        train_only(tiny_model(TOKENIZER), "capsules")
    with pytest.raises(ValueError, match="`weights` must be \"capsules\" or a list of names, got 'heads'"):
        train_only(tiny_model(TOKENIZER), "heads")


def lora_targets() -> dict[str, list[str]]:
    """The table of docs/training.md."""
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| (`.+`) \|$", page.split("### LoRA")[1].split("```")[0], re.MULTILINE)
    return {model: re.findall(r"`(\w+)`", names) for model, names in rows if "target_modules" not in names}


LORA_MODELS = {
    "Capsule Marian": ["plain", "linear"],
    "Capsule Marian, routing of heads, on all sites": ["heads"],
    "Capsule Marian, routing of layers": ["em", "dynamic"],
    "Capsule Marian, PAST and FUTURE": ["guided"],
    "RNMT": ["rnmt"],
    "RNMT, PAST and FUTURE": ["rnmt_guided"],
    "CapsNMT": ["capsules"],
}


def test_the_guide_to_lora_has_every_model():
    assert list(lora_targets()) == list(LORA_MODELS)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("row", "name"), [(row, name) for row, names in LORA_MODELS.items() for name in names])
def test_lora_adapts_what_the_guide_names(row, name):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    targets, source, labels = lora_targets()[row], batch(), torch.randint(1, 200, (4, 5))
    settings = peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=False, task_type="SEQ_2_SEQ_LM")
    model = peft.get_peft_model(build(name), settings)
    adapted = {place.rpartition(".")[2] for place, module in model.named_modules() if hasattr(module, "lora_A")}
    assert adapted == set(targets)
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    loss = model(**source, labels=labels).loss
    loss.backward()
    assert all(weight.grad.abs().sum() > 0 for weight in learning)
    length = torch.stack([weight.grad.norm() for weight in learning]).norm()
    with torch.no_grad():
        for weight in learning:
            weight.sub_(1e-3 * weight.grad / length)
    assert model(**source, labels=labels).loss < loss
    with torch.no_grad():
        expected = model(**source, labels=labels).logits
        translated = model.generate(**source, num_beams=2)
        merged = model.merge_and_unload()
        torch.testing.assert_close(merged(**source, labels=labels).logits, expected, atol=5e-3, rtol=1e-3)
    assert torch.equal(merged.generate(**source, num_beams=2), translated)
