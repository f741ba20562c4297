"""Entropy, diversity, overlap and curves: by hand, by the papers' numbers, and on real models."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from hf_capsule_mt.analysis.past_future import overlap_rate, overlap_rates, word_curves
from hf_capsule_mt.analysis.routing_statistics import (
    assignment_diversity,
    assignment_entropy,
    encoded_batches,
    real_positions,
    routing_statistics,
    routings_of,
)
from hf_capsule_mt.data import sentence_pairs
from hf_capsule_mt.modeling.losses import IGNORE_INDEX
from tests.fixtures.tiny import tiny_model, tiny_tokenizer


def test_entropy():
    uniform = torch.full((6, 512), 1 / 512)
    assert float(assignment_entropy(uniform)) == pytest.approx(6.238325, abs=1e-6)  # 6.24 in Dou et al.
    assert float(assignment_entropy(torch.eye(4))) == 0
    by_hand = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    assert float(assignment_entropy(by_hand)) == pytest.approx(math.log(2) / 2)
    # an input that a mask left out does not count
    assert float(assignment_entropy(torch.tensor([[0.5, 0.5], [0.0, 0.0]]))) == pytest.approx(math.log(2))
    assert assignment_entropy(torch.rand(2, 3, 4, 5)).shape == (2, 3)


def test_diversity():
    assert float(assignment_diversity(torch.full((6, 512), 1 / 512))) == pytest.approx(0, abs=1e-9)
    assert float(assignment_diversity(torch.eye(4))) == pytest.approx(1)
    assert float(assignment_diversity(torch.full((6, 1), 1.0))) == 0
    weights = torch.rand(3, 6, 5).softmax(-1).double()
    pairs = [
        torch.nn.functional.cosine_similarity(weights[..., i], weights[..., j], dim=-1)
        for i, j in itertools.combinations(range(5), 2)
    ]
    torch.testing.assert_close(assignment_diversity(weights), 1 - torch.stack(pairs).mean(dim=0))


def test_padding_is_left_out_and_batches_do_not_matter():
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, layer_aggregation="em_routing", head_aggregation="simple_routing")
    pairs = list(itertools.islice(sentence_pairs(), 7))
    sources, targets = [english for english, _ in pairs], [german for _, german in pairs]
    together = routing_statistics(model, encoded_batches(tokenizer, sources, targets, batch_size=7))
    alone = routing_statistics(model, encoded_batches(tokenizer, sources, targets, batch_size=1))
    assert set(together) == {
        "encoder.layers.0.self_attn", "encoder.layers.1.self_attn",
        "encoder.layer_aggregation", "decoder.layer_aggregation",
    }  # fmt: skip
    for place, iterations in together.items():
        assert len(iterations) == 3
        length = sum(len(tokenizer(text)["input_ids"]) for text in (sources if "encoder" in place else targets))
        for one, other in zip(iterations, alone[place], strict=True):
            assert one.positions == other.positions == length
            assert one.entropy == pytest.approx(other.entropy, abs=1e-5)
            assert one.diversity == pytest.approx(other.diversity, abs=1e-5)
            torch.testing.assert_close(one.average, other.average, atol=1e-5, rtol=1e-4)
        assert iterations[0].entropy == pytest.approx(math.log(iterations[0].average.shape[1]), abs=1e-6)
        assert iterations[0].diversity == pytest.approx(0, abs=1e-6)
    assert together["encoder.layer_aggregation"][2].diversity > 1e-4


def test_a_model_without_routing_is_refused():
    tokenizer = tiny_tokenizer()
    (batch,) = encoded_batches(tokenizer, ["a b"], ["c d"])
    with pytest.raises(ValueError, match="CapsuleMarianMTModel with this configuration has no routing"):
        routings_of(tiny_model(tokenizer), batch)


def test_a_routing_of_the_whole_sentence_has_no_positions():
    weights = torch.rand(2, 5, 3)
    assert real_positions("encoder.aggregation", weights, {}) is weights


def test_curves():
    weights = torch.tensor([0.1, 0.2, 0.3, 0.15, 0.25]).expand(4, 3, 5)  # [T, S, M]
    past, future = word_curves(weights, 2)
    torch.testing.assert_close(past, torch.full((4, 3), 0.3))
    torch.testing.assert_close(future, torch.full((4, 3), 0.45))
    with pytest.raises(ValueError, match=r"at least 2 \* 3 output capsules"):
        word_curves(weights, 3)


def test_overlap_rate_by_hand():
    vocabulary = 100
    words = torch.tensor([7, 8, 7, 9])
    best = torch.zeros(4, vocabulary)
    best[:, [7, 8, 9]] = torch.tensor([3.0, 2.0, 1.0])
    assert overlap_rate(best, words, "past") == 1
    assert overlap_rate(best, words, "future") == 1
    worst = torch.zeros(4, vocabulary)
    worst[:, 50:] = 1.0
    assert overlap_rate(worst, words, "past") == 0
    # the best five at t = 1 hold 8 but not 7; at t = 2 the best ten hold both; at t = 3 as well
    mixed = torch.zeros(4, vocabulary)
    mixed[:, 20:24] = 5.0
    mixed[:, 8] = 4.0
    mixed[:, 7] = 3.0
    assert overlap_rate(mixed, words, "past") == pytest.approx((0 + 1 + 1) / 3)
    assert overlap_rate(mixed[:1], words[:1], "past") is None
    assert overlap_rate(best, words, "future", ignored=(9,)) == 1  # the last bag is empty and not counted
    assert overlap_rate(torch.ones(2, 3), torch.tensor([1, 2]), "past") == 1  # five of three words
    with pytest.raises(ValueError, match="`group` must be 'past' or 'future', got 'now'"):
        overlap_rate(best, words, "now")


class Losses(torch.nn.Module):
    """Stands in for the guided losses of a model: its word states are the capsules."""

    bow_weight = 1.0

    def forward(self, capsules, state, labels, embeddings, num_items_in_batch=None):
        return None

    def word_states(self, capsules):
        return capsules[..., 0, :], capsules[..., 1, :]


class Model(torch.nn.Module):
    """A model whose PAST predicts every word of the target and whose FUTURE predicts words of no sentence."""

    def __init__(self):
        super().__init__()
        self.guided_losses = Losses()
        self.config = SimpleNamespace(pad_token_id=0, eos_token_id=1)

    def forward(self, labels):
        embeddings = torch.eye(40)
        target = torch.nn.functional.one_hot(labels.clamp(min=0), 40).float().sum(dim=1, keepdim=True).clamp(max=1)
        past = target.expand(-1, labels.shape[1], -1)
        future = torch.zeros_like(past)
        future[..., 20:] = 1.0
        self.guided_losses(torch.stack([past, future], dim=-2), None, labels, embeddings)


def test_overlap_rates_of_a_model():
    labels = torch.tensor([[5, 6, 7, 1], [8, 1, IGNORE_INDEX, IGNORE_INDEX]])
    model = Model()
    rates = overlap_rates(model, [{"labels": labels}, {"labels": labels[:1]}])
    assert rates == {"past": 1.0, "future": 0.0}
    assert not model.guided_losses._forward_pre_hooks
    model.guided_losses.bow_weight = 0
    with pytest.raises(ValueError, match="does not predict bags of words"):
        overlap_rates(model, [])
