"""GRU layers (Cho et al. 2014) and LSTM layers over padded sequences, fused where they can be.

Legend: B batch, T positions, d width of a state. Sequences are compact: their padding, if any, is on the right.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from hf_capsule_mt.modeling.padding import Compaction, keep_first, reverse_sequences
from hf_capsule_mt.modeling.recurrent_cache import RecurrentState

Tensors = tuple[torch.Tensor, ...]
# the state after a position, and its outputs; named here, as `torch.compile` evaluates annotations of inner functions
StateAndOutputs = tuple[Tensors, Tensors]


def over_positions(
    step: Callable[[Tensors, Tensors], StateAndOutputs], state: Tensors, inputs: Tensors, reverse: bool = False
) -> StateAndOutputs:
    """Run a recurrence over inputs, each [B, T, ...]; return the last state and the outputs, each [B, T, ...].

    It is a Python loop, which `torch.compile` unrolls: in eager PyTorch, `scan` takes several times as long. While
    `torch.export` traces, it is the operator `scan`, so that the exported program takes any number of positions.

    Args:
        step: the state before and the inputs of one position, each [B, ...] -> the state after it and its outputs.
        reverse: from the last position to the first.
    """
    if torch.compiler.is_exporting():
        from torch._higher_order_ops.scan import scan

        def separate(carried: Tensors, position_inputs: Tensors) -> StateAndOutputs:
            new, results = step(carried, position_inputs)
            return new, tuple(result.clone() for result in results)  # no two results may share memory

        state = tuple(tensor.clone() for tensor in state)  # nor any two parts of the state
        last, outputs = scan(separate, state, tuple(tensor.transpose(0, 1) for tensor in inputs), reverse=reverse)
        return tuple(last), tuple(output.transpose(0, 1) for output in outputs)
    positions = list(zip(*(tensor.unbind(1) for tensor in inputs), strict=True))
    collected = []
    for position_inputs in reversed(positions) if reverse else positions:
        state, results = step(state, position_inputs)
        collected.append(results)
    if reverse:
        collected.reverse()
    return state, tuple(torch.stack(results, dim=1) for results in zip(*collected, strict=True))


def gru_update(from_input: torch.Tensor, from_state: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """Compute the new state [B, d] from the projections of the input [B, 3d] and of the old state [B, 3d].

    Of the three parts of a projection, as PyTorch orders them (x of the input, h of the state),

        r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z);  n = tanh(x_n + r * h_n);  new state = (1 - z) n + z state
    """
    width = state.shape[-1]
    reset, update = torch.sigmoid(from_input[..., : 2 * width] + from_state[..., : 2 * width]).chunk(2, dim=-1)
    new = torch.tanh(from_input[..., 2 * width :] + reset * from_state[..., 2 * width :])
    return new + update * (state - new)


class GRUCell(nn.GRUCell):
    """`nn.GRUCell` that can also compute its two projections separately, before `gru_update` combines them."""

    def forward(self, input: Any, hx: torch.Tensor | None = None) -> torch.Tensor:
        """Return the new state, or the projection [..., 3d] of one argument if the other is `None`.

        The methods below call the cell instead of reading its weights: accelerate loads weights from the disk only
        while their module is called.
        """
        if hx is None:
            return nn.functional.linear(input, self.weight_ih, self.bias_ih)
        if input is None:
            return nn.functional.linear(hx, self.weight_hh, self.bias_hh)
        return super().forward(input, hx)

    def project_input(self, inputs: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., 3d]."""
        return self(inputs)

    def project_state(self, state: torch.Tensor) -> torch.Tensor:
        """[..., d] -> [..., 3d]."""
        return self(None, state)


class FusedLayer(nn.RNNBase):
    """Base of both kinds: one layer, of one direction or both, that `torch.compile` accepts.

    It does not derive from `nn.GRU` or `nn.LSTM`: `torch.compile` does not trace one.
    """

    kind: str
    num_state_tensors: int

    def __init__(self, input_size: int, hidden_size: int, bidirectional: bool = False) -> None:
        super().__init__(self.kind, input_size, hidden_size, batch_first=True, bidirectional=bidirectional)

    def fused(self, hidden: torch.Tensor, first: Tensors, weights: list[torch.Tensor], bidirectional: bool) -> Tensors:
        """Run PyTorch's kernel over inputs [B, T, in]; return the states and the tensors of the last state."""
        raise NotImplementedError

    def update(self, from_input: torch.Tensor, from_state: torch.Tensor, state: Tensors) -> Tensors:
        """Compute the new state, each [B, d], from the projections of the input and of the old state."""
        raise NotImplementedError

    def forward(
        self, hidden: torch.Tensor, state: RecurrentState | None = None, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, RecurrentState]:
        """Run over inputs [B, T, in]; return the states after each [B, T, d], and that after each row's last word.

        The states of two directions are side by side; the last state is defined for one direction only.

        Args:
            state: before the first position, each tensor [B, d], of one direction; zero if it is not given.
            lengths: [B], the number of positions without padding; `None` if no row has padding.
        """
        if state is None:
            state = (hidden.new_zeros(hidden.shape[0], self.hidden_size),) * self.num_state_tensors
        is_step = hidden.shape[1] == 1 and not torch.is_grad_enabled()  # fused kernels are slow at one position
        if torch.compiler.is_compiling() or is_step or (lengths is not None and not self.bidirectional):
            return self.plain(hidden, state, lengths)
        # under autocast the state is of another precision than the input
        directions = 2 if self.bidirectional else 1
        first = tuple(tensor.to(hidden.dtype).expand(directions, -1, -1).contiguous() for tensor in state)
        # not `_flat_weights`, which keeps the old tensors where accelerate brings weights back from the disk
        weights: list[torch.Tensor] = [weight for direction in self.all_weights for weight in direction]
        if lengths is None:
            outputs, *last = self.fused(hidden, first, weights, self.bidirectional)
        else:
            initial = tuple(tensor[:1] for tensor in first)
            forwards, *_ = self.fused(hidden, initial, weights[:4], False)
            backwards, *last = self.fused(reverse_sequences(hidden, lengths), initial, weights[4:], False)
            outputs = torch.cat([forwards, reverse_sequences(backwards, lengths)], dim=-1)
        return outputs, tuple(tensor[-1] for tensor in last)

    def plain(
        self, hidden: torch.Tensor, state: RecurrentState, lengths: torch.Tensor | None
    ) -> tuple[torch.Tensor, RecurrentState]:
        """Compute the same by a loop; at padding, the state stays as it is and is also the output."""
        outputs, last = [], state
        keep = () if lengths is None else (keep_first(lengths, hidden.shape[1]),)
        for direction in range(2 if self.bidirectional else 1):

            def step(state: Tensors, inputs: Tensors, direction: int = direction) -> StateAndOutputs:
                new = self.update(inputs[0], self._project_state(state[0], direction), state)
                if len(inputs) == 2:
                    new = tuple(torch.where(inputs[1][:, None], *pair) for pair in zip(new, state, strict=True))
                return new, new[:1]

            inputs = (self._project_input(hidden, direction), *keep)
            last, (states,) = over_positions(step, state, inputs, reverse=direction == 1)
            outputs.append(states)
        return torch.cat(outputs, dim=-1) if self.bidirectional else states, last

    def _project_input(self, hidden: torch.Tensor, direction: int) -> torch.Tensor:
        """W_ih x + b, [..., in] -> [..., gates * d], forwards (0) or backwards (1)."""
        weight, _, bias, _ = self.all_weights[direction]
        return nn.functional.linear(hidden, weight, bias)

    def _project_state(self, state: torch.Tensor, direction: int) -> torch.Tensor:
        """W_hh h + b, [..., d] -> [..., gates * d]."""
        _, weight, _, bias = self.all_weights[direction]
        return nn.functional.linear(state, weight, bias)


class FusedGRU(FusedLayer):
    """An `nn.GRU`, whose state is (h,)."""

    kind, num_state_tensors = "GRU", 1

    def fused(self, hidden: torch.Tensor, first: Tensors, weights: list[torch.Tensor], bidirectional: bool) -> Tensors:
        return torch.gru(hidden, first[0], weights, True, 1, 0.0, self.training, bidirectional, True)

    def update(self, from_input: torch.Tensor, from_state: torch.Tensor, state: Tensors) -> Tensors:
        return (gru_update(from_input, from_state, state[0]),)


class FusedLSTM(FusedLayer):
    """An `nn.LSTM`, whose state is (h, c)."""

    kind, num_state_tensors = "LSTM", 2

    def fused(self, hidden: torch.Tensor, first: Tensors, weights: list[torch.Tensor], bidirectional: bool) -> Tensors:
        return torch.lstm(hidden, first, weights, True, 1, 0.0, self.training, bidirectional, True)

    def update(self, from_input: torch.Tensor, from_state: torch.Tensor, state: Tensors) -> Tensors:
        gates = from_input + from_state
        input_gate, forget_gate, _, output_gate = gates.sigmoid().chunk(4, dim=-1)
        new = gates[:, 2 * self.hidden_size : 3 * self.hidden_size].tanh()
        cell = torch.addcmul(input_gate * new, forget_gate, state[1])
        return output_gate * cell.tanh(), cell


class GRULayer(GradientCheckpointingLayer):
    """A GRU, then dropout, a residual connection where input and output are of one width, and layer normalisation."""

    def __init__(self, input_size: int, hidden_size: int, dropout: float, bidirectional: bool = False) -> None:
        super().__init__()
        self.gru = FusedGRU(input_size, hidden_size // 2 if bidirectional else hidden_size, bidirectional)
        self.layer_norm = nn.LayerNorm(hidden_size)
        self.dropout = dropout

    def forward(
        self, hidden: torch.Tensor, state: torch.Tensor | None = None, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs [B, T, in] -> outputs [B, T, d], and the states [B, T, d] themselves: see `FusedLayer`."""
        states, _ = self.gru(hidden, None if state is None else (state,), lengths)
        output = nn.functional.dropout(states, p=self.dropout, training=self.training)
        if hidden.shape[-1] == output.shape[-1]:
            output = hidden + output
        return self.layer_norm(output), states


def run_encoder(layers: nn.ModuleList, hidden: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
    """Run layers of both directions over a source [B, S, in] with its mask [B, S], True keeps.

    Returns:
        The input of the first layer, and the output [B, S, d] of each layer, zero at padding.
    """
    compaction = Compaction(mask)
    outputs, hidden = [hidden], compaction.compact(hidden)
    for layer in layers:
        hidden, _ = layer(hidden, None, compaction.lengths)
        restored = compaction.restore(hidden)
        outputs.append(restored if mask is None else restored.masked_fill(~mask.unsqueeze(-1), 0))
    return outputs


class ResidualLSTM(GradientCheckpointingLayer):
    """CapsNMT's sub-layer (section 2): LayerNorm(x + dropout(LSTM(x))). Each of two directions has half the width."""

    def __init__(self, width: int, dropout: float, bidirectional: bool) -> None:
        super().__init__()
        self.lstm = FusedLSTM(width, width // 2 if bidirectional else width, bidirectional)
        self.norm = nn.LayerNorm(width)
        self.dropout = dropout

    def forward(
        self, hidden: torch.Tensor, state: RecurrentState | None = None, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, RecurrentState]:
        """[B, T, d] -> states of this layer [B, T, d], and (h, c) after the last word: see `FusedLayer`."""
        with _no_cpu_autocast(hidden):
            hidden = hidden.to(self.norm.weight.dtype) if hidden.is_cpu else hidden
            outputs, last = self.lstm(hidden, state, lengths)
            outputs = nn.functional.dropout(outputs, p=self.dropout, training=self.training)
            return self.norm(hidden + outputs), last


def _no_cpu_autocast(hidden: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Keep the weights' precision on a CPU, where autocast to float16 fails in `nn.LSTM`."""
    if hidden.is_cpu and torch.is_autocast_enabled("cpu"):
        return torch.autocast("cpu", enabled=False)
    return contextlib.nullcontext()
