"""Train a part of a model: the capsules of an OPUS-MT model, or what a warm start added."""

import pytest
import torch

from hf_capsule_mt import CapsuleMarianMTModel
from hf_capsule_mt.training import build_model, capsule_weights, train_only
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
