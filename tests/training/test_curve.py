"""The picture of a training: each point where its step and value say."""

import xml.etree.ElementTree as ElementTree

import pytest

from hf_capsule_mt.training.curve import CURVE_FILE, training_curve
from tests.training.small import make_trainer

SVG = "{http://www.w3.org/2000/svg}"
LOG = [
    {"step": 10, "loss": 5.0, "nll_loss": 4.0},
    {"step": 20, "loss": 4.0, "nll_loss": 2.0},
    {"step": 20, "eval_loss": 3.5, "eval_nll_loss": 3.0, "eval_bleu": 1.0},
    {"step": 40, "loss": 3.0, "nll_loss": 1.0},
    {"step": 40, "eval_loss": 3.0, "eval_nll_loss": 2.0, "eval_bleu": 21.0},
    {"step": 40, "train_loss": 3.2, "train_runtime": 7.0},
]


def drawn(curve):
    """The points of each line, and all texts."""
    root = ElementTree.fromstring(curve)
    lines = [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in root.iter(f"{SVG}polyline")
    ]
    return lines, [text.text for text in root.iter(f"{SVG}text")]


def test_losses_and_scores_are_lines_over_the_steps():
    lines, texts = drawn(training_curve(LOG))
    training, validation, bleu = lines
    (x10, y4), (x20, y2), (x40, y1) = training
    assert x40 - x20 == pytest.approx(2 * (x20 - x10), abs=0.2)
    assert y2 - y4 == pytest.approx(2 * (y1 - y2), abs=0.2)
    assert y1 > y2 > y4  # down is less
    (_, y3), (_, y2_again) = validation
    assert y2_again == y2
    assert y3 == pytest.approx((y2 + y4) / 2, abs=0.1)
    assert [x for x, _ in bleu] == [x20, x40]
    assert {"cross entropy a token", "training", "validation", "BLEU of the validation set", "40", "step"} <= {*texts}


def test_without_cross_entropies_it_draws_losses():
    log = [{key: value for key, value in entry.items() if "nll" not in key} for entry in LOG]
    lines, texts = drawn(training_curve(log))
    assert len(lines) == 3
    assert "loss" in texts


@pytest.mark.parametrize("value", [0.0, 1e-7, 123456.0])
def test_a_line_that_does_not_change(value):
    log = [{"step": step, "loss": value} for step in (1, 2, 3)]
    (line,), _ = drawn(training_curve(log))
    assert len({y for _, y in line}) == 1


def test_nothing_to_draw():
    assert training_curve([]) is None
    assert training_curve(LOG[:1]) is None
    assert training_curve([{"step": 1, "loss": float("nan")}, {"step": 2, "loss": 1.0}]) is None


def test_a_training_leaves_its_curve(tmp_path):
    trainer = make_trainer(tmp_path, max_steps=3, eval_strategy="steps", eval_steps=1)
    trainer.train()
    lines, _ = drawn((tmp_path / CURVE_FILE).read_text())
    assert [len(line) for line in lines] == [3, 3]
