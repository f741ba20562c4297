"""GRU layers over padded sequences."""

import pytest
import torch
from torch import nn

from hf_capsule_mt.modeling.gru import FusedGRU, GRULayer, gru_update
from hf_capsule_mt.modeling.padding import Compaction
from tests.modeling.model_checks import TOLERANCE, randomize


def pair(bidirectional):
    ours = randomize(FusedGRU(5, 4, bidirectional))
    theirs = nn.GRU(5, 4, batch_first=True, bidirectional=bidirectional)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    return ours, theirs


def test_one_update_by_hand():
    # x_r + h_r = 0 and x_z + h_z = 0, so r = z = 1/2; n = tanh(1 + 1/2 * 2)
    new = gru_update(torch.tensor([[1.0, 2.0, 1.0]]), torch.tensor([[-1.0, -2.0, 2.0]]), torch.tensor([[0.5]]))
    torch.testing.assert_close(new, torch.tensor([[(0.9640276 + 0.5) / 2]]))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_equals_the_gru_of_pytorch(bidirectional):
    ours, theirs = pair(bidirectional)
    hidden = torch.randn(3, 7, 5)
    expected = theirs(hidden)[0]
    torch.testing.assert_close(ours(hidden), expected, **TOLERANCE)
    torch.testing.assert_close(ours.plain(hidden, None, torch.zeros(3, 4)), expected, **TOLERANCE)


def test_begins_with_a_state_and_goes_on_from_it():
    ours, theirs = pair(False)
    hidden, state = torch.randn(3, 7, 5), torch.randn(3, 4)
    expected = theirs(hidden, state[None])[0]
    torch.testing.assert_close(ours(hidden, None, state), expected, **TOLERANCE)
    with torch.no_grad():  # one position takes another way
        for position in range(7):
            state = ours(hidden[:, position : position + 1], None, state)[:, 0]
            torch.testing.assert_close(state, expected[:, position], **TOLERANCE)


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


def test_a_layer_is_a_gru_a_residual_and_a_normalisation():
    layer = randomize(GRULayer(8, 8, dropout=0.5)).eval()
    hidden = torch.randn(2, 3, 8)
    output, states = layer(hidden)
    torch.testing.assert_close(states, layer.gru(hidden))
    expected = nn.functional.layer_norm(hidden + states, (8,), layer.layer_norm.weight, layer.layer_norm.bias)
    torch.testing.assert_close(output, expected)
    wider = randomize(GRULayer(6, 8, dropout=0.0, bidirectional=True))
    output, states = wider(torch.randn(2, 3, 6))
    expected = nn.functional.layer_norm(states, (8,), wider.layer_norm.weight, wider.layer_norm.bias)
    torch.testing.assert_close(output, expected)


def test_compaction_moves_padding_to_the_right_and_back():
    mask = torch.tensor([[0, 1, 0, 1], [1, 1, 1, 1], [1, 0, 0, 0]]).bool()
    hidden = torch.randn(3, 4, 2)
    compaction = Compaction(mask)
    compact = compaction.compact(hidden)
    assert compaction.lengths.tolist() == [2, 4, 1]
    assert torch.equal(compact[0, :2], hidden[0, [1, 3]])
    assert torch.equal(compact[1:], hidden[1:])
    assert torch.equal(compaction.restore(compact), hidden)


def test_nothing_moves_where_padding_is_on_the_right_already():
    hidden = torch.randn(2, 3, 2)
    for mask in (None, torch.ones(2, 3).bool(), torch.tensor([[1, 1, 0], [1, 0, 0]]).bool()):
        compaction = Compaction(mask)
        assert compaction.compact(hidden) is hidden
        assert compaction.restore(hidden) is hidden
    assert Compaction(torch.ones(2, 3).bool()).lengths is None
