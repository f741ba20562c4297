"""LSTM layers with residual connections and layer normalisation, which padding cannot reach (CapsNMT, section 2).

Legend: B batch, T positions, N words (positions that are not padding), d model width. In every mask `True` keeps.
"""

import contextlib
from typing import Any, Protocol, cast

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from transformers.modeling_layers import GradientCheckpointingLayer

from hf_capsule_mt.modeling.padding import Compaction, reverse_sequences
from hf_capsule_mt.modeling.recurrent_cache import RecurrentState


class Packing(Protocol):
    """The words of a padded batch, in a form of its own that layers can run over."""

    def pack(self, hidden: torch.Tensor) -> Any:
        """Bring states [B, T, d] into that form."""

    def run(self, layer: Any, packed: Any, state: RecurrentState | None = None) -> tuple[Any, RecurrentState]:
        """Run a `ResidualLSTM`; return its outputs, and (h, c) after the last word of each row."""

    def unpack(self, packed: Any) -> torch.Tensor:
        """Return the states [B, T, d], zero where padding is."""


class WordPacking:
    """Pack the words of a batch into the form that `nn.LSTM` takes, and unpack them.

    Padding may be on the left, on the right, or anywhere.
    """

    def __init__(self, mask: torch.Tensor) -> None:
        """mask: [B, T], at least one True in each row."""
        self.mask = mask
        self.order = mask.int().argsort(dim=1, descending=True, stable=True)  # [B, T], the words first
        self.inverse = self.order.argsort(dim=1)
        self.lengths = mask.sum(dim=1).cpu()

    def pack(self, hidden: torch.Tensor) -> PackedSequence:
        """[B, T, d] -> [N, d], with the sizes and the order of the batch."""
        words_first = hidden.gather(1, self.order.unsqueeze(-1).expand_as(hidden))
        return pack_padded_sequence(words_first, self.lengths, batch_first=True, enforce_sorted=False)

    def run(
        self, layer: "ResidualLSTM", packed: PackedSequence, state: RecurrentState | None = None
    ) -> tuple[PackedSequence, RecurrentState]:
        data, last_state = layer(*packed, state)
        return packed._replace(data=data), last_state

    def unpack(self, packed: PackedSequence) -> torch.Tensor:
        """[N, d] -> [B, T, d], zero where padding is."""
        words_first, _ = pad_packed_sequence(packed, batch_first=True, total_length=self.order.shape[1])
        return words_first.gather(1, self.inverse.unsqueeze(-1).expand_as(words_first))


class PaddedWords:
    """What `WordPacking` does, without lengths on the host: the words of a row go first, and padding is computed too.

    The (h, c) that `run` returns are those after the padding.
    """

    def __init__(self, mask: torch.Tensor) -> None:
        """mask: [B, T]."""
        self.mask = mask
        self.compaction = Compaction(mask)

    def pack(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, T, d] -> [B, T, d], padding last."""
        return self.compaction.compact(hidden)

    def run(
        self, layer: "ResidualLSTM", packed: torch.Tensor, state: RecurrentState | None = None
    ) -> tuple[torch.Tensor, RecurrentState]:
        outputs: tuple[torch.Tensor, RecurrentState] = layer(packed, None, None, None, state, self.compaction.lengths)
        return outputs

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """[B, T, d], padding last -> [B, T, d], zero where padding is."""
        return self.compaction.restore(packed).masked_fill(~self.mask.unsqueeze(-1), 0)


class ResidualLSTM(GradientCheckpointingLayer):
    """One sub-layer: LayerNorm(x + dropout(LSTM(x))); in both directions, each of half the width, or in one."""

    def __init__(self, width: int, dropout: float, bidirectional: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            width, width // 2 if bidirectional else width, batch_first=True, bidirectional=bidirectional
        )
        self.norm = nn.LayerNorm(width)
        self.dropout = dropout

    def forward(
        self,
        hidden: torch.Tensor,
        batch_sizes: torch.Tensor | None = None,
        sorted_indices: torch.Tensor | None = None,
        unsorted_indices: torch.Tensor | None = None,
        state: RecurrentState | None = None,
        lengths: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, RecurrentState]:
        """States below [B, T, d], or packed [N, d] with what `PackedSequence` has of them -> those of this layer.

        Args:
            state: (h, c), each [B, d], of a layer of one direction; zero if it is not given.
            lengths: [B], where states [B, T, d] have padding behind their words.

        Returns:
            The states of all positions, and (h, c) after the last word.
        """
        with _no_cpu_autocast(hidden):
            hidden = hidden.to(self.norm.weight.dtype) if hidden.is_cpu else hidden
            inputs = (
                hidden
                if batch_sizes is None
                else PackedSequence(hidden, batch_sizes, sorted_indices, unsorted_indices)
            )
            initial = None
            if state is not None:  # under autocast the state is of another precision than the input
                initial = tuple(tensor.unsqueeze(0).to(hidden.dtype).contiguous() for tensor in state)
            if lengths is not None and self.lstm.bidirectional:
                outputs, (last_hidden, last_cell) = self._run_both_ways(hidden, lengths)
            else:  # in one direction padding comes too late to matter
                outputs, (last_hidden, last_cell) = self.lstm(inputs, initial)
            outputs = outputs if batch_sizes is None else outputs.data
            outputs = nn.functional.dropout(outputs, p=self.dropout, training=self.training)
            return self.norm(hidden + outputs), (last_hidden[-1], last_cell[-1])

    def _run_both_ways(self, hidden: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, RecurrentState]:
        """Run each direction over states [B, T, d] by itself, the second one from the last of the words backwards."""
        zeros = hidden.new_zeros(1, len(hidden), self.lstm.hidden_size)
        forwards, backwards = (
            torch.lstm(
                inputs, (zeros, zeros), cast(list[torch.Tensor], weights), True, 1, 0.0, self.training,
                bidirectional=False, batch_first=True,
            )
            for inputs, weights in zip(
                (hidden, reverse_sequences(hidden, lengths)), self.lstm.all_weights, strict=True
            )
        )  # fmt: skip
        return torch.cat([forwards[0], reverse_sequences(backwards[0], lengths)], dim=-1), backwards[1:]

    def step(self, hidden: torch.Tensor, state: RecurrentState | None) -> tuple[torch.Tensor, RecurrentState]:
        """Run one position of a layer of one direction, without dropout: [B, d] -> [B, d], and the new (h, c)."""
        gates = self.project_input(hidden)  # [B, 4 d]
        gates = gates + (self.lstm.all_weights[0][3] if state is None else self.project_state(state[0]))
        input_gate, forget_gate, _, output_gate = gates.sigmoid().chunk(4, dim=-1)
        width = hidden.shape[-1]
        cell = input_gate * gates[:, 2 * width : 3 * width].tanh()
        if state is not None:
            cell = torch.addcmul(cell, forget_gate, state[1])
        outputs = output_gate * cell.tanh()
        return self.norm(hidden + outputs), (outputs, cell)

    def project_input(self, hidden: torch.Tensor) -> torch.Tensor:
        """W_ih x + b of one direction, [B, d] -> [B, 4 d]."""
        weight, _, bias, _ = self.lstm.all_weights[0]
        return nn.functional.linear(hidden, weight, bias)

    def project_state(self, state: torch.Tensor) -> torch.Tensor:
        """W_hh h + b of one direction, [B, d] -> [B, 4 d]."""
        _, weight, _, bias = self.lstm.all_weights[0]
        return nn.functional.linear(state, weight, bias)


def _no_cpu_autocast(hidden: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Keep the weights' precision on a CPU, where autocast to float16 fails in `nn.LSTM`."""
    if hidden.is_cpu and torch.is_autocast_enabled("cpu"):
        return torch.autocast("cpu", enabled=False)
    return contextlib.nullcontext()
