"""GRU layers over padded sequences, the conditional GRU, additive attention and the LSTM, against plain loops."""

import pytest
import torch
from torch import nn

from hf_capsule_mt.modeling.additive_attention import AdditiveAttention
from hf_capsule_mt.modeling.conditional_gru import ConditionalGRU
from hf_capsule_mt.modeling.gru import FusedGRU
from hf_capsule_mt.modeling.recurrent import FusedLSTM
from tests.modeling.model_checks import TOLERANCE, randomize


def pair(bidirectional):
    ours = randomize(FusedGRU(5, 4, bidirectional))
    theirs = nn.GRU(5, 4, batch_first=True, bidirectional=bidirectional)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    return ours, theirs


@pytest.mark.parametrize("bidirectional", [False, True])
def test_equals_the_gru_of_pytorch(bidirectional):
    ours, theirs = pair(bidirectional)
    hidden = torch.randn(3, 7, 5)
    expected = theirs(hidden)[0]
    torch.testing.assert_close(ours(hidden), expected, **TOLERANCE)
    torch.testing.assert_close(ours.plain(hidden, None, torch.zeros(3, 4)), expected, **TOLERANCE)


@pytest.mark.parametrize("plain", [False, True])
def test_each_padded_sequence_is_as_alone(plain):
    ours, theirs = pair(True)
    hidden, lengths = torch.randn(3, 7, 5), torch.tensor([4, 7, 1])
    states = ours.plain(hidden, lengths, torch.zeros(3, 4)) if plain else ours(hidden, lengths)
    assert states.shape == (3, 7, 8)
    squares = []
    for row, length in enumerate(lengths):
        alone = theirs(hidden[row : row + 1, :length])[0]
        torch.testing.assert_close(states[row : row + 1, :length], alone, **TOLERANCE)
        squares.append((states[row, :length].pow(2).sum(), alone.pow(2).sum()))
    for losses in zip(*squares, strict=True):
        sum(losses).backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, **TOLERANCE)


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
        (context,), (weights,) = (one.unbind(dim=1) for one in gru.attention(state[:, None], keys, source, mask))
        state = nn.GRUCell.forward(gru.context_gru, context, state)
        for found, expected in zip(outputs, (state, context, weights), strict=True):
            torch.testing.assert_close(found[:, position], expected)


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


def lstm(bidirectional: bool) -> FusedLSTM:
    return FusedLSTM(5, 4, bidirectional).eval()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_equals_pytorchs(bidirectional):
    ours, theirs = lstm(bidirectional), nn.LSTM(5, 4, batch_first=True, bidirectional=bidirectional)
    theirs.load_state_dict(ours.state_dict())
    hidden = torch.randn(3, 6, 5)
    expected, (last_hidden, last_cell) = theirs(hidden)
    outputs, last = ours(hidden)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(last, (last_hidden[-1], last_cell[-1]))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_each_padded_row_is_as_alone(bidirectional, plain):
    """Of both directions fused kernels do it, of one the loop: its last state is that of the last word."""
    model, hidden, lengths = lstm(bidirectional), torch.randn(3, 6, 5), torch.tensor([4, 6, 0])
    state = (torch.randn(3, 4), torch.randn(3, 4))
    outputs, last = (model.plain if plain else model)(hidden, state, lengths)
    for row, length in enumerate(lengths[:2]):
        own = tuple(tensor[row : row + 1] for tensor in state)
        alone, expected = model(hidden[row : row + 1, :length], own)
        torch.testing.assert_close(outputs[row, :length], alone[0])
        if not bidirectional:
            torch.testing.assert_close([tensor[row : row + 1] for tensor in last], list(expected))
    if not bidirectional:
        assert all(torch.equal(new[2], old[2]) for new, old in zip(last, state, strict=True))  # no word
