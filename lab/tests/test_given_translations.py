"""Coverage and likelihood of translations that are given to a model."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from lab.given_translations import coverage_scores, likelihoods
from tests.fixtures.tiny import save_tiny_checkpoint

LINES = ["The man sleeps.", "Who buys the old red hat in the garden?", "She sings."]
WITHOUT_END = "The man sleeps. " * 500  # longer than the model has positions


def load(folder, **settings):
    torch.manual_seed(0)
    path = save_tiny_checkpoint(folder, **settings)
    return AutoModelForSeq2SeqLM.from_pretrained(path).eval(), AutoTokenizer.from_pretrained(path)


def test_coverage_of_given_translations(tmp_path):
    guided = load(tmp_path, guided_routing="guided", guided_capsule_dim=8, guided_ffn_dim=16)
    together, alone = (coverage_scores(*guided, LINES, LINES, batch_size=size) for size in (3, 1))
    for values, expected in zip(together, alone, strict=True):
        assert len(values) == 3
        assert values == pytest.approx(expected, abs=1e-5)
    too_long = coverage_scores(*guided, [LINES[0], WITHOUT_END], [WITHOUT_END, LINES[0]])
    assert all(0 <= score <= 1 for score in too_long.score)
    assert all(-1 <= balance <= 1 for balance in too_long.balance)


def test_coverage_needs_past_and_future(tmp_path):
    with pytest.raises(ValueError, match="PAST and FUTURE"):
        coverage_scores(*load(tmp_path), LINES, LINES)


def test_likelihoods_are_those_of_the_loss(tmp_path):
    """A sentence's tokens and its end together are its cross entropy, whatever stands beside it in the batch."""
    model, tokenizer = load(tmp_path)
    found = likelihoods(model, tokenizer, LINES, LINES[::-1], batch_size=3)
    for number, (source, target) in enumerate(zip(LINES, LINES[::-1], strict=True)):
        batch = tokenizer(source, text_target=target, return_tensors="pt")
        length = batch["labels"].shape[1]
        with torch.no_grad():
            loss = model(**batch).loss
        total = found.tokens[number] * (length - 1) + found.end[number]
        assert total == pytest.approx(-length * float(loss), rel=1e-4)


def test_likelihood_of_what_is_too_long(tmp_path):
    found = likelihoods(*load(tmp_path), [LINES[0], WITHOUT_END], [WITHOUT_END, LINES[0]])
    assert all(value < 0 for values in found for value in values)
