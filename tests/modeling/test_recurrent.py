"""The LSTM that `torch.compile` accepts: PyTorch's own, and its plain loop over padded sequences."""

import pytest
import torch
from torch import nn

from hf_capsule_mt.modeling.recurrent import FusedLSTM, WordPacking


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
def test_the_plain_loop_equals_packed_words(bidirectional):
    """Padding is anywhere; rows of every length, so that packing sorts them."""
    model, hidden = lstm(bidirectional), torch.randn(3, 6, 5)
    state = (torch.randn(3, 4), torch.randn(3, 4))
    keep = torch.tensor([[0, 1, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]).bool()
    packing = WordPacking(keep)
    packed = packing.pack(hidden)
    data, expected_last = model(*packed, state)
    outputs, last = model.plain(hidden, state, keep)
    torch.testing.assert_close(outputs[keep], packing.unpack(packed._replace(data=data))[keep])
    torch.testing.assert_close(last, expected_last)
