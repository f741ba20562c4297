"""CapsNMT from a strong teacher: arms of one size on the same text, in one table with the teacher."""

from pathlib import Path

import pytest

from hf_capsule_mt.training.models import build_model
from lab.records import Records
from lab.strong_student import START, parser_of_plan
from lab.strong_teacher import ARMS, FILE, SEED, STEPS, StrongTeacher, table
from tests.fixtures.tiny import save_tiny_checkpoint, tiny_tokenizer


def test_marian_has_as_many_parameters_as_capsnmt():
    models = (build_model(ARMS[name][1], tiny_tokenizer()) for name in ("capsules", "marian"))
    capsules, marian = (model.num_parameters() for model in models)
    assert marian == pytest.approx(capsules, rel=2e-3)


@pytest.mark.slow
def test_what_is_trained_is_scored_beside_the_teacher_and_timed(text_folder, monkeypatch):
    save_tiny_checkpoint(Path("student"), decoder_self="ssru", marian_positions=True)
    title, model, rate = ARMS["capsules"]
    monkeypatch.setitem(ARMS, "capsules", (title, model | {"hidden_size": 16}, rate))
    monkeypatch.setattr("lab.strong_teacher.LENGTHS", (2, 4))
    monkeypatch.setattr("lab.strong_teacher.REPEATS", 1)
    arguments = "student --text train.en train.de --test test.en test.de --steps 1 --sentences 3 --arms capsules"
    study = StrongTeacher(parser_of_plan(None, FILE, list(ARMS), [SEED], STEPS).parse_args(arguments.split()))
    study.run()
    seeds = {name: list(by_seed) for name, by_seed in study.records.runs(FILE).items()}
    assert seeds == {START: [0], "capsules": [SEED]}
    assert study.records.run(FILE, "capsules", SEED)["recipe"]["model"]["num_capsules"] == 8
    assert "Sentences a second" not in table(study.records)
    study.speed()
    header = "| source tokens | The teacher, int8 | The teacher, float32 | CapsNMT, int8 | CapsNMT, float32 |"
    assert header in table(study.records)


def test_shares_by_hand(tmp_path):
    records = Records(tmp_path)
    bucket = {"label": "0-15", "sentences": 2, "score": 7.0, "hypothesis_words": 9.0, "reference_words": 10.0}
    for name, seed, bleu in ((START, 0, 40.0), ("pooling", 1, 10.0)):
        scores = {"bleu": {"score": bleu}, "chrf": {"score": 30.0}}
        record = {"scores": scores, "parameters": 5e6, "bootstrap": {"mean": bleu, "half_width": 2.0}}
        records.keep(FILE, {"run": name, "seed": seed, **record, "by_length": [bucket, {"sentences": 0}]})
    assert "| Pooling | 5.0 M | 10.00 [8.0, 12.0] | 25% | 30.0 | 7.0 | 0.90 |  |" in table(records)
