"""LSTM layers with residual connections and layer normalisation, which padding cannot reach (CapsNMT, section 2).

Legend: B batch, T positions, d model width. Sequences are compact: their padding, if any, is on the right.
"""

import contextlib
from typing import cast

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from hf_capsule_mt.modeling.padding import keep_first, reverse_sequences
from hf_capsule_mt.modeling.positions import FusedLayer, StateAndOutputs, Tensors, over_positions
from hf_capsule_mt.modeling.recurrent_cache import RecurrentState


def lstm_update(gates: torch.Tensor, cell: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the new (h, c), each [B, d], from the sum of both projections [B, 4 d] and c; `None` is zero."""
    width = gates.shape[-1] // 4
    input_gate, forget_gate, _, output_gate = gates.sigmoid().chunk(4, dim=-1)
    new = input_gate * gates[:, 2 * width : 3 * width].tanh()
    if cell is not None:
        new = torch.addcmul(new, forget_gate, cell)
    return output_gate * new.tanh(), new


class FusedLSTM(FusedLayer):
    """An `nn.LSTM` of one layer that `torch.compile` accepts.

    No subclass of `nn.LSTM`, whose mere presence stops `torch.compile`.
    """

    def __init__(self, input_size: int, hidden_size: int, bidirectional: bool = False) -> None:
        super().__init__("LSTM", input_size, hidden_size, batch_first=True, bidirectional=bidirectional)

    def forward(
        self, hidden: torch.Tensor, state: RecurrentState | None = None, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, RecurrentState]:
        """Run over inputs [B, T, in]; return all states, and (h, c) after the last word of each row.

        Args:
            state: (h, c), each [B, d], of one direction; zero if it is not given.
            lengths: [B], how many of the T positions are no padding; `None` where all are none.
        """
        directions = 2 if self.bidirectional else 1
        if state is None:
            zeros = hidden.new_zeros(hidden.shape[0], self.hidden_size)
            state = (zeros, zeros)
        if torch.compiler.is_compiling() or (lengths is not None and directions == 1):
            return self.plain(hidden, state, lengths)
        # under autocast the state is of another precision than the input
        first = tuple(tensor.to(hidden.dtype).expand(directions, -1, -1).contiguous() for tensor in state)
        weights = cast(list[torch.Tensor], self._flat_weights)
        if lengths is None:
            outputs, *last = torch.lstm(hidden, first, weights, True, 1, 0.0, self.training, self.bidirectional, True)
        else:
            ways = (hidden, reverse_sequences(hidden, lengths))
            forwards, backwards = (
                torch.lstm(
                    inputs,
                    tuple(tensor[:1] for tensor in first),
                    weights[4 * way : 4 * way + 4],
                    *(True, 1, 0.0, self.training, False, True),
                )
                for way, inputs in enumerate(ways)
            )
            outputs = torch.cat([forwards[0], reverse_sequences(backwards[0], lengths)], dim=-1)
            last = list(backwards[1:])
        return outputs, (last[0][-1], last[1][-1])

    def plain(
        self, hidden: torch.Tensor, state: RecurrentState, lengths: torch.Tensor | None
    ) -> tuple[torch.Tensor, RecurrentState]:
        """Compute the same as a loop, in which padding leaves the state as it is, and repeats it."""
        outputs, last = [], state
        keep = () if lengths is None else (keep_first(lengths, hidden.shape[1]),)
        for direction in range(2 if self.bidirectional else 1):

            def step(state: Tensors, inputs: Tensors, direction: int = direction) -> StateAndOutputs:
                gates = inputs[0] + self.project_state(state[0], direction)
                new: Tensors = lstm_update(gates, state[1])
                if len(inputs) == 2:
                    new = tuple(torch.where(inputs[1][:, None], *pair) for pair in zip(new, state, strict=True))
                return new, new[:1]

            inputs = (self.project_input(hidden, direction), *keep)
            last, (states,) = over_positions(step, state, inputs, reverse=direction == 1)
            outputs.append(states)
        return torch.cat(outputs, dim=-1), last


class ResidualLSTM(GradientCheckpointingLayer):
    """One sub-layer: LayerNorm(x + dropout(LSTM(x))); in both directions, each of half the width, or in one."""

    def __init__(self, width: int, dropout: float, bidirectional: bool) -> None:
        super().__init__()
        self.lstm = FusedLSTM(width, width // 2 if bidirectional else width, bidirectional)
        self.norm = nn.LayerNorm(width)
        self.dropout = dropout

    def forward(
        self, hidden: torch.Tensor, state: RecurrentState | None = None, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, RecurrentState]:
        """[B, T, d] -> states of this layer [B, T, d], and (h, c) after the last word: see `FusedLSTM`."""
        with _no_cpu_autocast(hidden):
            hidden = hidden.to(self.norm.weight.dtype) if hidden.is_cpu else hidden
            outputs, last = self.lstm(hidden, state, lengths)
            outputs = nn.functional.dropout(outputs, p=self.dropout, training=self.training)
            return self.norm(hidden + outputs), last

    def step(self, hidden: torch.Tensor, state: RecurrentState | None) -> tuple[torch.Tensor, RecurrentState]:
        """Run one position of a layer of one direction, without dropout: [B, d] -> [B, d], and the new (h, c)."""
        gates = self.lstm.project_input(hidden)  # [B, 4 d]
        gates = gates + (self.lstm.all_weights[0][3] if state is None else self.lstm.project_state(state[0]))
        outputs, cell = lstm_update(gates, None if state is None else state[1])
        return self.norm(hidden + outputs), (outputs, cell)


def _no_cpu_autocast(hidden: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Keep the weights' precision on a CPU, where autocast to float16 fails in `nn.LSTM`."""
    if hidden.is_cpu and torch.is_autocast_enabled("cpu"):
        return torch.autocast("cpu", enabled=False)
    return contextlib.nullcontext()
