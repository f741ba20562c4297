"""GRUs and LSTMs over padded sequences against PyTorch's, the conditional GRU and additive attention against loops."""

import pytest
import torch
from torch import nn

from hf_capsule_mt.modeling.additive_attention import AdditiveAttention
from hf_capsule_mt.modeling.conditional_gru import ConditionalGRU
from hf_capsule_mt.modeling.recurrent import FusedGRU, FusedLSTM
from tests.modeling.model_checks import TOLERANCE, randomize


def pair(kind, bidirectional=True):
    ours = randomize({"GRU": FusedGRU, "LSTM": FusedLSTM}[kind](5, 4, bidirectional))
    theirs = getattr(nn, kind)(5, 4, batch_first=True, bidirectional=bidirectional)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    return ours, theirs


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_equals_pytorchs(kind, bidirectional):
    ours, theirs = pair(kind, bidirectional)
    hidden = torch.randn(3, 7, 5)
    expected, last = theirs(hidden)
    last = tuple(tensor[-1] for tensor in (last if kind == "LSTM" else (last,)))
    zeros = tuple(torch.zeros(3, 4) for _ in last)
    for actual in (ours(hidden), ours.plain(hidden, zeros, None)):
        torch.testing.assert_close(actual, (expected, last), **TOLERANCE)
    with torch.no_grad():  # a step
        torch.testing.assert_close(ours(hidden[:, :1]), ours.plain(hidden[:, :1], zeros, None))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_each_padded_row_is_as_alone(kind, bidirectional, plain):
    """In its states and gradients, whether fused or not; of one direction, also in the last state."""
    ours, _ = pair(kind, bidirectional)
    hidden, lengths = torch.randn(4, 7, 5), torch.tensor([4, 7, 1, 0])
    state = tuple(torch.randn(4, 4) for _ in range(ours.num_state_tensors))
    outputs, last = (ours.plain if plain else ours)(hidden, state, lengths)
    assert outputs.shape == (4, 7, 8 if bidirectional else 4)
    alone = []
    for row, length in enumerate(lengths[:3]):
        row_state = tuple(tensor[row : row + 1] for tensor in state)
        alone.append(ours(hidden[row : row + 1, :length], row_state))
        torch.testing.assert_close(outputs[row, :length], alone[-1][0][0], **TOLERANCE)
        if not bidirectional:
            torch.testing.assert_close(tuple(tensor[row : row + 1] for tensor in last), alone[-1][1], **TOLERANCE)
    if not bidirectional:
        assert all(torch.equal(new[3], old[3]) for new, old in zip(last, state, strict=True))
    sums = (
        sum(outputs[row, :length].pow(2).sum() for row, length in enumerate(lengths)),
        sum(output[0].pow(2).sum() for output in alone),
    )
    gradients = [torch.autograd.grad(total, list(ours.parameters()), retain_graph=True) for total in sums]
    torch.testing.assert_close(*gradients, **TOLERANCE)


def inputs():
    """Words [B, T, in], a first state [B, d], source states [B, S, d] and their mask."""
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 1]]).bool()
    return [torch.randn(3, 4, 7).double(), torch.randn(3, 6).double(), torch.randn(3, 5, 6).double()], mask


@pytest.mark.parametrize("masked", [True, False])
def test_the_conditional_gru_equals_loops(masked):
    gru = randomize(ConditionalGRU(7, 6)).double()
    (words, state, source), mask = inputs()
    mask = mask if masked else None
    keys = gru.attention.project_keys(source)
    outputs = gru(words, state, source, keys, mask)
    for position in range(4):
        state = nn.GRUCell.forward(gru.word_gru, words[:, position], state)
        (context,), (weights,) = (tensor.unbind(dim=1) for tensor in gru.attention(state[:, None], keys, source, mask))
        state = nn.GRUCell.forward(gru.context_gru, context, state)
        for actual, expected in zip(outputs, (state, context, weights), strict=True):
            torch.testing.assert_close(actual[:, position], expected)


@pytest.fixture
def attention():
    return AdditiveAttention(query_size=3, key_size=5, attention_size=4).double()


def make(batch_size=2, num_words=6, num_queries=3):
    return (
        torch.randn(batch_size, num_queries, 3, dtype=torch.float64),
        torch.randn(batch_size, num_words, 5, dtype=torch.float64),
    )


def test_equals_loops(attention):
    query, states = make()
    mask = torch.tensor([[True] * 6, [True, True, False, True, False, False]])
    contexts, weights = attention(query, attention.project_keys(states), states, mask)
    for row in range(2):
        words = [word for word in range(6) if mask[row, word]]
        for step in range(3):
            scores = []
            for word in words:
                hidden = attention.query_projection(query[row, step]) + attention.key_projection(states[row, word])
                scores.append(attention.score(hidden.tanh()))
            expected = torch.cat(scores).softmax(dim=0)
            torch.testing.assert_close(weights[row, step, words], expected)
            torch.testing.assert_close(contexts[row, step], expected @ states[row, words])
    assert (weights[1, :, ~mask[1]] == 0).all()
