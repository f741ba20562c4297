"""Capsules on a strong student: every arm starts as the student, and a call goes on where another stopped."""

from pathlib import Path

import pytest
import torch

from hf_capsule_mt.loading import load_model, load_tokenizer
from hf_capsule_mt.training.models import build_model
from lab.records import Records
from lab.strong_student import ARMS, FILE, START, gains, recipe, table
from tests.fixtures.tiny import save_tiny_checkpoint


@pytest.mark.parametrize("name", ARMS)
def test_an_arm_starts_as_the_student(name, tmp_path):
    start = save_tiny_checkpoint(tmp_path / "student", decoder_self="ssru", marian_positions=True)
    arm_recipe = recipe(ARMS[name], 1, start, [tmp_path / "train.en", tmp_path / "train.pt"], tmp_path / name, 7)
    model = build_model(
        arm_recipe.model, load_tokenizer(start), arm_recipe.init_from, freeze=arm_recipe.freeze
    ).train()
    student, source = load_model(start).eval(), torch.arange(3, 13).view(2, 5)
    logits = [network(input_ids=source, decoder_input_ids=source).logits for network in (model, student)]
    assert torch.equal(*logits)  # without dropout, although it trains
    trained = {key for key, weight in model.named_parameters() if weight.requires_grad}
    assert trained.isdisjoint(student.state_dict()) if ARMS[name].frozen else "model.shared.weight" in trained


def test_a_run_with_a_result_is_not_trained_again(command, text_folder):
    save_tiny_checkpoint(Path("student"))
    arguments = (
        "student --text train.en train.de --test test.en test.de --seeds 1 --arms plain em --steps 1 --sentences 3"
    )
    assert "em, seed 1" in command("lab.strong_student", arguments)
    records = Records("lab/results")
    runs = records.runs(FILE)
    assert {name: list(by_seed) for name, by_seed in runs.items()} == {START: [0], "plain": [1], "em": [1]}
    assert runs["em"][1]["recipe"]["model"]["layer_aggregation"] == "em_routing"
    assert runs["em"][1]["loss"] > 0
    assert {len(lines) for lines in records.translations(FILE).values()} == {3}
    assert "seed 1:" not in command("lab.strong_student", arguments)


def test_contrasts_by_hand(tmp_path):
    records = Records(tmp_path)
    scores = {
        START: {0: 40.0},
        "plain": {1: 39.0, 2: 39.0, 3: 40.0},
        "em": {1: 40.0, 2: 41.0, 3: 43.0},
        "linear": {1: 39.5},
    }
    for arm, by_seed in scores.items():
        for seed, score in by_seed.items():
            records.keep(FILE, {"run": arm, "seed": seed, "scores": {"bleu": {"score": score}}})
    helps, is_routing, without_harm = gains(records).values()
    assert helps.values == [1.0, 2.0, 3.0]
    assert helps.p == pytest.approx(3 * 0.0742, abs=1e-4)  # t = 3.46 with 2 degrees of freedom, of three contrasts
    assert (is_routing.values, is_routing.p, without_harm.values) == ([0.5], None, [])
    shown = table(records)
    assert "| The student, as it is | 40.00 | 40.00 | 40.00 | 40.00 |" in shown
    assert "1 of 3 seeds are trained" in shown
