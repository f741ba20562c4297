"""Loops of CapsNMT: what counts as one, the bins, and the losses with other capsules."""

import math

import pytest
import torch

from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration
from lab.capsnmt_loops import bins_of, capsules_in_use, joined, loops, losses, table
from lab.records import Records
from tests.modeling.model_checks import randomize


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("a b c d", False),
        ("a a b", False),
        ("b a a a", True),
        ("x a b a b a b y", True),
        ("a b c d a b c d a b c d", True),
        ("a b a b", False),
        ("a b c d e a b c d e a b c d e", False),  # five tokens are a sentence, not a stutter
    ],
)
def test_a_loop_is_one_to_four_tokens_three_times(text, repeats):
    assert loops(text.split()) == repeats


def test_bins_and_pairs():
    lines = ["a", "a b c", "a b c d e", "a b c d e f g"]
    assert bins_of(lines, (3, 5)) == {"1-3": [0, 1], "4-5": [2], "6+": [3]}
    assert bins_of(lines, (5,), lowest=4) == {"4-5": [2], "6+": [3]}
    assert joined([*lines, "odd"]) == ["a a b c", "a b c d e a b c d e f g"]


def test_losses_are_those_of_the_model_and_of_other_capsules():
    config = CapsNMTConfig(vocab_size=12, hidden_size=16, encoder_layers=1, decoder_layers=1, num_capsules=3)
    model = randomize(CapsNMTForConditionalGeneration(config)).eval()
    ids = torch.tensor([[5, 6, 7, 1], [8, 9, 5, 1]])
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.flip(0)}
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(model(**batch).logits.flatten(0, 1), batch["labels"].flatten())
    by_kind = losses(model, [batch])
    assert by_kind["as trained"] == pytest.approx(float(expected), rel=1e-5)
    assert len({round(value, 6) for value in by_kind.values()}) == 3
    assert losses(model, [batch]) == by_kind, "the routing is back"
    for entry in capsules_in_use(model, [batch]):
        assert sum(entry["shares"]) == pytest.approx(1)
        entropy = -sum(share * math.log(share) for share in entry["shares"])
        assert entry["effective"] == pytest.approx(math.exp(entropy))


def test_the_table_has_a_row_for_each_bin(tmp_path):
    records = Records(tmp_path)
    row = {"label": "1-7", "sentences": 9, "bleu": 40.04, "length_ratio": 1.0, "loops": 0.111}
    row |= {"capsules": [{"effective": 8.0, "shares": [0.125] * 8}, {"effective": 2.5, "shares": [0.7, 0.3]}]}
    row |= {"losses": {"as trained": 2.0, "uniform": 2.5, "another sentence": 6.0}}
    records.keep("studies", {"name": "capsnmt-loops-de-en", "text": {"sentences": [row]}})
    expected = "| released | sentences | 1-7 | 9 | 40.0 | 1.00 | 11.1% | 2.5 of 2 | 70% | 2.00 | 2.50 | 6.00 |"
    assert expected in table(records)
