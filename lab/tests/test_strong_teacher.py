"""CapsNMT from a strong teacher: arms of one size on the same text, in one table with the teacher."""

from pathlib import Path

import pytest

from hf_capsule_mt.training.models import build_model
from lab.records import SPEEDS, Records
from lab.strong_student import START
from lab.strong_teacher import ARMS, FILE
from tests.fixtures.tiny import save_tiny_checkpoint, tiny_tokenizer


def test_marian_has_as_many_parameters_as_capsnmt():
    capsules, marian = (
        build_model(ARMS[name][1], tiny_tokenizer()).num_parameters() for name in ("capsules", "marian")
    )
    assert marian == pytest.approx(capsules, rel=2e-3)


def test_what_is_trained_is_scored_beside_the_teacher_and_timed(command, text_folder):
    save_tiny_checkpoint(Path("student"), decoder_self="ssru", marian_positions=True)
    arguments = "student --text train.en train.de --test test.en test.de --steps 1 --sentences 3"
    shown = command("strong_teacher", arguments)
    records = Records("lab/results")
    runs = records.runs(FILE)
    assert {name: list(of) for name, of in runs.items()} == {START: [0]} | {key: [1] for key in ARMS}
    assert runs["capsules"][1]["recipe"]["model"]["num_capsules"] == 8
    assert "| CapsNMT |" in shown
    assert "Sentences a second" not in shown
    timed = command("strong_teacher", f"{arguments} --speed")
    assert records.named(FILE)[SPEEDS]["sentences_per_second"]["marian, int8, 16"] > 0
    assert "| CapsNMT, float32 |" in timed
