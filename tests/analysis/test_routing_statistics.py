"""Statistics of routings, PAST and FUTURE, the overlap rate (property 33), and their pictures."""

import itertools
import math

import pytest
import torch

from hf_capsule_mt.analysis.past_future import (
    overlap_rate,
    overlap_rates,
    shares_around_step,
)
from hf_capsule_mt.analysis.pictures import draw_past_future, draw_word_map
from hf_capsule_mt.analysis.routing_statistics import (
    assignment_diversity,
    assignment_entropy,
    capsule_shares,
    decided_share,
    effective_number,
    encoded_batches,
    routing_statistics,
    routings_of,
)
from hf_capsule_mt.data import sentence_pairs
from hf_capsule_mt.modeling.coverage import past_future_curves
from tests.fixtures.tiny import tiny_model, tiny_tokenizer
from tests.modeling.test_past_future_guidance import make


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: overlap_rate(torch.ones(2, 5), torch.ones(3, 5), [1, 2]),
            r"scores of 2 words .* got \[2, 5\] and \[3, 5\]",
        ),
        (
            lambda: routing_statistics(tiny_model(tiny_tokenizer(), layer_aggregation="em_routing"), []),
            "`batches` must have at least one batch",
        ),
        (lambda: past_future_curves(torch.ones(1, 2, 3, 4), 3), r"`num_capsules` \(3\) .* shape \[1, 2, 3, 4\]"),
        (lambda: draw_word_map(torch.ones(3, 2), ["a", "b"], "map.png"), "`words` must be as many as the 3 rows"),
    ],
    ids=["overlap", "statistics", "curves", "word map"],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


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


def test_shares_around_the_step_that_says_a_word():
    """Word 0 is said at step 1 and word 1 at step 0; the mass of each moves to PAST at the step after."""
    past = torch.tensor([[0.0, 0.0, 1.0], [0.1, 0.9, 0.9]])
    shares = shares_around_step([(past, 1 - past)], [[(0, 1), (1, 0)]], reach=1)
    assert [(entry.offset, entry.words) for entry in shares] == [(-1, 1), (0, 2), (1, 2)]
    assert [entry.past for entry in shares] == pytest.approx([0.0, 0.05, 0.95])
    assert [entry.future for entry in shares] == pytest.approx([1.0, 0.95, 0.05])


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
    for routing, iterations in together.items():
        assert len(iterations) == 3
        length = sum(len(tokenizer(text)["input_ids"]) for text in (sources if "encoder" in routing else targets))
        for in_batch, by_itself in zip(iterations, alone[routing], strict=True):
            assert in_batch.positions == by_itself.positions == length
            assert in_batch.entropy == pytest.approx(by_itself.entropy, abs=1e-5)
            assert in_batch.diversity == pytest.approx(by_itself.diversity, abs=1e-5)
            assert in_batch.effective_capsules == pytest.approx(by_itself.effective_capsules, rel=1e-4)
            torch.testing.assert_close(in_batch.average, by_itself.average, atol=1e-5, rtol=1e-4)
        assert iterations[0].entropy == pytest.approx(math.log(iterations[0].average.shape[1]), abs=1e-6)
        assert iterations[0].diversity == pytest.approx(0, abs=1e-6)
        assert iterations[0].effective_capsules == pytest.approx(iterations[0].num_capsules)
    assert together["encoder.layer_aggregation"][2].diversity > 1e-4


@pytest.mark.parametrize(
    ("method", "reason"), [("none", "grn have$"), ("linear", "grn have; linear multiplies each layer by a matrix$")]
)
def test_a_model_without_routing_is_refused(method, reason):
    tokenizer = tiny_tokenizer()
    (batch,) = encoded_batches(tokenizer, ["a b"], ["c d"])
    model = tiny_model(tokenizer, layer_aggregation=method)
    with pytest.raises(ValueError, match=f"CapsuleMarianMTModel .* no routing, and no weights of layers, .*{reason}"):
        routings_of(model, batch)


def test_the_share_of_decided_inputs():
    weights = torch.tensor([[0.95, 0.05], [0.9, 0.1], [0.5, 0.5], [0.0, 0.0]])  # the last input is masked
    assert float(decided_share(weights)) == pytest.approx(1 / 3)  # 0.9 is not above 0.9
    assert decided_share(torch.rand(2, 3, 4, 5)).shape == (2, 3)


def scores(*rankings, vocabulary=40):
    """One row for each ranking: its words are the most probable, in this order."""
    rows = torch.zeros(len(rankings), vocabulary)
    for row, ranking in zip(rows, rankings, strict=True):
        for rank, word in enumerate(ranking):
            row[word] = 100 - rank
    return rows


def test_bags_are_sets_and_the_top_grows():
    words = [1, 2, 1]
    # at t = 1 the five most probable miss word 1, at t = 2 the ten most probable have it and miss word 2
    past = scores(range(10, 40), [*range(10, 19), 1], [1, 2])
    # t = 1: {2, 1} of ten, 2 is missing; t = 2: {1} of five; t = 3 is empty and left out
    future = scores([1, *range(10, 40)], [*range(10, 14), 1], [])
    rate = overlap_rate(past, future, words)
    assert rate.past == pytest.approx((0 + 1 / 2 + 1) / 3)
    assert rate.future == pytest.approx((1 / 2 + 1) / 2)


@pytest.fixture
def batch():
    labels = torch.randint(4, 31, (2, 5))
    labels[1, 3:] = -100
    return torch.randint(4, 31, (2, 6)), torch.tensor([[1] * 6, [1] * 4 + [0] * 2]), labels


def test_overlap_rates(batch):
    model = make()
    with torch.no_grad():
        output = model.model(
            batch[0],
            attention_mask=batch[1],
            decoder_input_ids=model.prepare_decoder_input_ids_from_labels(batch[2]),
            output_guided_capsules=True,
        )
    losses, rates = model.guided_losses, overlap_rates(model, *batch)
    for sentence, words in enumerate((batch[2][0].tolist(), batch[2][1, :3].tolist())):
        past, future = (
            output.guided_capsules[sentence, : len(words), group].sum(dim=1)
            @ matrix.weight.t()
            @ model.lm_head.weight.t()
            for group, matrix in (([0, 1], losses.past_words), ([2, 3], losses.future_words))
        )
        assert rates[sentence] == overlap_rate(past, future, words, excluded=[1, 3])
    model.drop_guided_losses()
    with pytest.raises(ValueError, match="needs a model with `guided_routing` and a `guided_bow_weight` above 0"):
        overlap_rates(model, *batch)


@pytest.mark.parametrize(("word", "angle"), [("book", 0), ("grandmother", 45)])
def test_words_above_past_and_future_do_not_overlap(word, angle, pictures, monkeypatch):
    angles = []

    def keep_angles(figure, path):
        angles.extend(axis.title.get_rotation() for axis in figure.axes[:4])

    monkeypatch.setattr("hf_capsule_mt.analysis.pictures.save_picture", keep_angles)
    draw_past_future(torch.ones(2, 4), torch.zeros(2, 4), ["das", "Buch"], [word] * 4, "map.png")
    assert angles == [angle] * 4
