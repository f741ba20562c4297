"""The variants of CapsNMT: the rule that chooses one, and what a training is judged by."""

import gzip
from pathlib import Path

import pytest

from lab import capsule_variants
from lab.capsule_variants import FILE, PAPER, RELEASED, TITLES, VARIANTS, chosen, table
from lab.paper_tables import EIGHT, RUNS
from lab.records import Records


def test_variants_differ_from_the_paper_in_fields_that_are_off_there():
    fields = {"score_scale", "compared_capsule_scale", "normalize_capsules"}
    for name in VARIANTS:
        assert RUNS[name].model.items() >= EIGHT.items()
        assert (set(RUNS[name].model) - set(EIGHT)) <= fields
    assert RUNS[PAPER].model == EIGHT
    assert RUNS["deep_capsnmt_soft"].model["score_scale"] == 256**-0.5  # the width on Multi30k
    assert RUNS["deep_capsnmt_softest"].model["score_scale"] == 1 / 256
    assert RUNS["deep_capsnmt_compared"].model["compared_capsule_scale"] == 256**0.5


def records_of(tmp_path, losses: dict[str, float], in_use: dict[str, float]) -> Records:
    records = Records(tmp_path)
    entry = {"checkpoint": "ours", "sentences": 2000, "routings": {"": [{"effective_capsules": 5.44}]}}
    records.keep("studies", {"name": RELEASED, **entry})
    for name, loss in losses.items():
        for seed, offset in ((1, 0.01), (2, -0.01)):
            used = [8.0, in_use[name] + offset] if name in in_use else []
            record = {"run": name, "seed": seed, "validation_loss": loss + offset, "capsules_in_use": used}
            records.keep(FILE, record)
    return records


def test_the_best_of_those_that_are_alive_goes_on(tmp_path):
    names = list(VARIANTS)
    losses = dict(zip(names, (2.0, 2.1, 2.2, 1.9, 2.3), strict=True)) | {"deep_pooling": 1.5}
    in_use = dict(zip(names, (3.9, 4.0, 8.0, 1.0, 7.0), strict=True))
    records = records_of(tmp_path, losses, in_use)
    assert chosen(records.runs(FILE)) == names[1], "the two with a lower loss have collapsed"
    shown = table(records)
    assert f"| {TITLES[names[1]]} | 2.100 | 4.0 | 2 |" in shown
    assert "| pooling, to compare | 1.500 |  | 2 |" in shown
    assert f"rule chooses: {TITLES[names[1]]}." in shown
    assert "the released `ours` uses 5.4 capsules on 2,000 sentences" in shown


def test_the_paper_goes_on_if_all_collapse(tmp_path):
    records = records_of(tmp_path, dict.fromkeys(VARIANTS, 2.0), dict.fromkeys(VARIANTS, 1.2))
    assert chosen(records.runs(FILE)) == PAPER
    assert "5 of 6 are trained." in table(records)


@pytest.mark.slow
def test_a_variant_is_trained_and_judged(command, monkeypatch):
    for name, old in {"train": "train", "val": "test"}.items():
        for side in ("en", "de"):
            Path(f"{name}.{side}.gz").write_bytes(gzip.compress(Path(f"{old}.{side}").read_bytes()))
    tiny = {"training.max_steps": "2", "training.bf16": "false", "tokenizer.vocab_size": "300"}
    tiny |= {"model.hidden_size": "32", "training.use_cpu": "true"}
    monkeypatch.setattr(capsule_variants, "CHANGES", capsule_variants.CHANGES | tiny)
    monkeypatch.setattr(capsule_variants, "TITLES", {PAPER: "the paper's", "deep_pooling": "pooling"})
    records_of(Path("lab/results"), {}, {})
    monkeypatch.setattr("sys.argv", ["lab.capsule_variants", "--data-dir", "."])
    assert capsule_variants.main() == 0
    runs = Records("lab/results").runs(FILE)
    capsules, pooling = (runs[name][1] for name in (PAPER, "deep_pooling"))
    assert capsules["steps"] == pooling["steps"] == 2
    assert 4 < capsules["validation_loss"] < 8, "about ln 300 = 5.7 before anything is learnt"
    before, after = capsules["capsules_in_use"]
    assert before == pytest.approx(8.0)
    assert 1 <= after <= 8
    assert "capsules_in_use" not in pooling
