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
from hf_capsule_mt.modeling.positions import StateAndOutputs, Tensors, layer_weights, over_positions
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


def lstm_update(gates: torch.Tensor, cell: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the new (h, c), each [B, d], from the sum of both projections [B, 4 d] and c; `None` is zero."""
    width = gates.shape[-1] // 4
    input_gate, forget_gate, _, output_gate = gates.sigmoid().chunk(4, dim=-1)
    new = input_gate * gates[:, 2 * width : 3 * width].tanh()
    if cell is not None:
        new = torch.addcmul(new, forget_gate, cell)
    return output_gate * new.tanh(), new


class FusedLSTM(nn.RNNBase):
    """An `nn.LSTM` of one layer that `torch.compile` accepts.

    No subclass of `nn.LSTM`, whose mere presence stops `torch.compile`.
    """

    def __init__(self, input_size: int, hidden_size: int, bidirectional: bool = False) -> None:
        super().__init__("LSTM", input_size, hidden_size, batch_first=True, bidirectional=bidirectional)

    def forward(
        self,
        hidden: torch.Tensor,
        batch_sizes: torch.Tensor | None = None,
        sorted_indices: torch.Tensor | None = None,
        unsorted_indices: torch.Tensor | None = None,
        state: RecurrentState | None = None,
        lengths: torch.Tensor | None = None,
        keep: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, RecurrentState]:
        """Run over inputs [B, T, in], or packed [N, in]; return all states, and (h, c) after the last position.

        Args:
            state: (h, c), each [B, d], of one direction; zero if it is not given.
            lengths: [B], where inputs [B, T, in] have padding behind their words.
            keep: [B, T], True where there is a word; only for compilers, which cannot pack.
        """
        directions = 2 if self.bidirectional else 1
        num_rows = hidden.shape[0] if sorted_indices is None else sorted_indices.shape[0]
        if state is None:
            zeros = hidden.new_zeros(num_rows, self.hidden_size)
            state = (zeros, zeros)
        if torch.compiler.is_compiling():
            return self.plain(hidden, state, keep)
        # under autocast the state is of another precision than the input
        first = tuple(tensor.to(hidden.dtype).expand(directions, -1, -1).contiguous() for tensor in state)
        weights = cast(list[torch.Tensor], self._flat_weights)
        settings = (True, 1, 0.0, self.training, self.bidirectional)
        if lengths is not None and self.bidirectional:  # in one direction padding comes too late to matter
            ways = (hidden, reverse_sequences(hidden, lengths))
            one_way = (True, 1, 0.0, self.training, False)
            forwards, backwards = (
                torch.lstm(inputs, (first[0][:1], first[1][:1]), weights[4 * way : 4 * way + 4], *one_way, True)
                for way, inputs in enumerate(ways)
            )
            outputs = torch.cat([forwards[0], reverse_sequences(backwards[0], lengths)], dim=-1)
            last = list(backwards[1:])
        elif batch_sizes is None:
            outputs, *last = torch.lstm(hidden, first, weights, *settings, True)
        else:
            if sorted_indices is not None:
                first = tuple(tensor.index_select(1, sorted_indices) for tensor in first)
            outputs, *last = torch.lstm(hidden, batch_sizes, first, weights, *settings)
            if unsorted_indices is not None:
                last = [tensor.index_select(1, unsorted_indices) for tensor in last]
        return outputs, (last[0][-1], last[1][-1])

    def plain(
        self, hidden: torch.Tensor, state: RecurrentState, keep: torch.Tensor | None
    ) -> tuple[torch.Tensor, RecurrentState]:
        """Compute the same on unpacked inputs as a loop. Padding leaves the state as it is, and repeats it."""
        outputs, last = [], state
        for direction in range(2 if self.bidirectional else 1):

            def step(state: Tensors, inputs: Tensors, direction: int = direction) -> StateAndOutputs:
                gates = inputs[0] + self.project_state(state[0], direction)
                new: Tensors = lstm_update(gates, state[1])
                if len(inputs) == 2:
                    new = tuple(torch.where(inputs[1][:, None], *pair) for pair in zip(new, state, strict=True))
                return new, new[:1]

            inputs = (self.project_input(hidden, direction), *(() if keep is None else (keep,)))
            last, (states,) = over_positions(step, state, inputs, reverse=direction == 1)
            outputs.append(states)
        return torch.cat(outputs, dim=-1), last

    def project_input(self, hidden: torch.Tensor, direction: int = 0) -> torch.Tensor:
        """W_ih x + b, [..., in] -> [..., 4 d], forwards (0) or backwards (1)."""
        return nn.functional.linear(hidden, *layer_weights(self, "ih", direction))

    def project_state(self, state: torch.Tensor, direction: int = 0) -> torch.Tensor:
        """W_hh h + b, [..., d] -> [..., 4 d]."""
        return nn.functional.linear(state, *layer_weights(self, "hh", direction))


class ResidualLSTM(GradientCheckpointingLayer):
    """One sub-layer: LayerNorm(x + dropout(LSTM(x))); in both directions, each of half the width, or in one."""

    def __init__(self, width: int, dropout: float, bidirectional: bool) -> None:
        super().__init__()
        self.lstm = FusedLSTM(width, width // 2 if bidirectional else width, bidirectional)
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
        keep: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, RecurrentState]:
        """States below [B, T, d], or packed [N, d] with what `PackedSequence` has of them -> states of this layer.

        Args:
            state: (h, c), each [B, d], of a layer of one direction; zero if it is not given.
            lengths: [B], where states [B, T, d] have padding behind their words.
            keep: [B, T], True where there is a word; only for compilers, which cannot pack.

        Returns:
            The states of all positions, and (h, c) after the last word.
        """
        with _no_cpu_autocast(hidden):
            hidden = hidden.to(self.norm.weight.dtype) if hidden.is_cpu else hidden
            outputs, last = self.lstm(hidden, batch_sizes, sorted_indices, unsorted_indices, state, lengths, keep)
            outputs = nn.functional.dropout(outputs, p=self.dropout, training=self.training)
            return self.norm(hidden + outputs), last

    def step(self, hidden: torch.Tensor, state: RecurrentState | None) -> tuple[torch.Tensor, RecurrentState]:
        """Run one position of a layer of one direction, without dropout: [B, d] -> [B, d], and the new (h, c)."""
        gates = self.project_input(hidden)  # [B, 4 d]
        gates = gates + (self.lstm.all_weights[0][3] if state is None else self.project_state(state[0]))
        outputs, cell = lstm_update(gates, None if state is None else state[1])
        return self.norm(hidden + outputs), (outputs, cell)

    def project_input(self, hidden: torch.Tensor) -> torch.Tensor:
        """W_ih x + b of one direction, [B, d] -> [B, 4 d]."""
        return self.lstm.project_input(hidden)

    def project_state(self, state: torch.Tensor) -> torch.Tensor:
        """W_hh h + b of one direction, [B, d] -> [B, 4 d]."""
        return self.lstm.project_state(state)


def _no_cpu_autocast(hidden: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Keep the weights' precision on a CPU, where autocast to float16 fails in `nn.LSTM`."""
    if hidden.is_cpu and torch.is_autocast_enabled("cpu"):
        return torch.autocast("cpu", enabled=False)
    return contextlib.nullcontext()
