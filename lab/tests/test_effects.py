"""Mean differences over seeds and their intervals."""

import pytest

from lab.effects import METHODS, differences, effects_table, published
from lab.paper_tables import RUNS
from lab.records import Records


def bleu(value):
    return {"scores": {"bleu": {"score": value}}}


def test_differences_are_within_seeds():
    runs = {
        "em_routing": {1: bleu(21.0), 3: bleu(23.0), 4: bleu(99.0)},
        "plain": {1: bleu(20.0), 2: bleu(0.0), 3: bleu(25.0)},
    }
    assert differences(runs, "em_routing", "plain") == [1.0, -2.0]
    assert differences({}, "em_routing", "plain") == []


def test_every_method_is_a_run_with_a_claim():
    assert {method.run for method in METHODS} | {method.baseline for method in METHODS} <= set(RUNS)
    gains = {method.run: published(method) for method in METHODS}
    assert gains["em_routing"] == pytest.approx(1.50)
    assert gains["capsnmt"] == pytest.approx(25.7 - 21.3)
    assert gains["rnmt_gdr"] == pytest.approx(1.84)
    assert all(gain is not None and gain > 0 for gain in gains.values())


def test_the_table(tmp_path):
    records = Records(tmp_path)
    for seed, ours, theirs in ((1, 21.0, 20.0), (2, 22.0, 20.0), (3, 23.0, 20.0)):
        records.keep("embedded", {"run": "em_routing", "seed": seed, **bleu(ours)})
        records.keep("embedded", {"run": "plain", "seed": seed, **bleu(theirs)})
    records.keep("multi30k", {"run": "em_routing", "seed": 1, **bleu(30.0)})
    records.keep("multi30k", {"run": "plain", "seed": 1, **bleu(30.5)})
    # t = 4.3027 for two degrees of freedom: 2 +- 4.3027 / sqrt(3)
    assert "| Layers: EM routing | Transformer | +1.50 | +2.00 [-0.48, +4.48], n = 3 | -0.50, n = 1 |" in (
        effects_table(records)
    )
