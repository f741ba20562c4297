"""Entropy and diversity by hand, by the papers' numbers, and on real models; overlap rates of a model."""

import itertools
import math

import pytest
import torch

from hf_capsule_mt.analysis.past_future import mean_overlap_rate, overlap_rates
from hf_capsule_mt.analysis.routing_statistics import (
    assignment_diversity,
    assignment_entropy,
    capsule_shares,
    effective_number,
    encoded_batches,
    real_positions,
    routing_statistics,
    routings_of,
)
from hf_capsule_mt.data import sentence_pairs
from tests.fixtures.tiny import tiny_model, tiny_tokenizer


def test_entropy():  # property 30
    uniform = torch.full((6, 512), 1 / 512)
    assert float(assignment_entropy(uniform)) == pytest.approx(6.238325, abs=1e-6)  # 6.24 in Dou et al.
    assert float(assignment_entropy(torch.eye(4))) == 0
    by_hand = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    assert float(assignment_entropy(by_hand)) == pytest.approx(math.log(2) / 2)
    # an input that a mask left out does not count
    assert float(assignment_entropy(torch.tensor([[0.5, 0.5], [0.0, 0.0]]))) == pytest.approx(math.log(2))
    assert assignment_entropy(torch.rand(2, 3, 4, 5)).shape == (2, 3)


def test_diversity():  # property 31
    assert float(assignment_diversity(torch.full((6, 512), 1 / 512))) == pytest.approx(0, abs=1e-9)
    assert float(assignment_diversity(torch.eye(4))) == pytest.approx(1)
    assert float(assignment_diversity(torch.full((6, 1), 1.0))) == 0
    weights = torch.rand(3, 6, 5).softmax(-1).double()
    pairs = [
        torch.nn.functional.cosine_similarity(weights[..., i], weights[..., j], dim=-1)
        for i, j in itertools.combinations(range(5), 2)
    ]
    torch.testing.assert_close(assignment_diversity(weights), 1 - torch.stack(pairs).mean(dim=0))


def test_the_number_of_capsules_in_use():
    assert effective_number(torch.full((6,), 1 / 6)) == pytest.approx(6)
    assert effective_number(torch.tensor([1.0, 0, 0])) == pytest.approx(1)  # collapsed
    weights = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.0, 0.0]])  # the last input is masked
    torch.testing.assert_close(capsule_shares(weights), torch.tensor([0.75, 0.25], dtype=torch.double))


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
            assert one.effective_capsules == pytest.approx(other.effective_capsules, rel=1e-4)
            torch.testing.assert_close(one.average, other.average, atol=1e-5, rtol=1e-4)
        assert iterations[0].entropy == pytest.approx(math.log(iterations[0].average.shape[1]), abs=1e-6)
        assert iterations[0].diversity == pytest.approx(0, abs=1e-6)
        assert iterations[0].effective_capsules == pytest.approx(iterations[0].num_capsules)
    assert together["encoder.layer_aggregation"][2].diversity > 1e-4


def test_a_model_without_routing_is_refused():
    tokenizer = tiny_tokenizer()
    (batch,) = encoded_batches(tokenizer, ["a b"], ["c d"])
    with pytest.raises(ValueError, match="CapsuleMarianMTModel with this configuration has no routing"):
        routings_of(tiny_model(tokenizer), batch)


def test_a_routing_of_the_whole_sentence_has_no_positions():
    weights = torch.rand(2, 5, 3)
    assert real_positions("encoder.aggregation", weights, {}) is weights


def test_routing_of_words_and_the_overlap_of_their_bags():
    tokenizer = tiny_tokenizer()
    model = tiny_model(
        tokenizer, guided_routing="guided", guided_capsule_dim=8, guided_ffn_dim=16, guided_num_redundant_capsules=2
    )
    pairs = list(itertools.islice(sentence_pairs(), 5))
    sources, targets = [english for english, _ in pairs], [german for _, german in pairs]
    together, alone = (
        routing_statistics(model, encoded_batches(tokenizer, sources, targets, size))["decoder.guidance"]
        for size in (5, 1)
    )
    for one, other in zip(together, alone, strict=True):
        assert one.average is None
        assert one.entropy == pytest.approx(other.entropy, abs=1e-5)  # padded words do not count
        assert one.diversity == pytest.approx(other.diversity, abs=1e-5)
    assert together[0].entropy == pytest.approx(math.log(6), abs=1e-5)

    (batch,) = encoded_batches(tokenizer, sources, targets)
    rates = mean_overlap_rate(overlap_rates(model, **batch))
    assert 0 <= rates.past <= 1
    assert 0 <= rates.future <= 1
    by_one = [overlap_rates(model, **one)[0] for one in encoded_batches(tokenizer, sources, targets, 1)]
    assert mean_overlap_rate(by_one) == pytest.approx(rates)
