"""GRU layers (Cho et al. 2014) over padded sequences, fused where they can be, with a fast step for decoding.

Legend: B batch, T positions, d width of a state. Sequences are compact: their padding, if any, is on the right.
"""

import functools
from collections.abc import Callable
from typing import cast

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from hf_capsule_mt.modeling.padding import keep_first, reverse_sequences
from hf_capsule_mt.modeling.positions import FusedLayer, StateAndOutputs, Tensors, over_positions


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
    """`nn.GRUCell` whose two projections can be computed apart: `gru_update` makes the new state of them."""

    def project_input(self, inputs: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., 3d]."""
        return nn.functional.linear(inputs, self.weight_ih, self.bias_ih)

    def project_state(self, state: torch.Tensor) -> torch.Tensor:
        """[..., d] -> [..., 3d]."""
        return nn.functional.linear(state, self.weight_hh, self.bias_hh)


def gru_steps(
    from_inputs: torch.Tensor,
    state: torch.Tensor,
    project_state: Callable[[torch.Tensor], torch.Tensor],
    lengths: torch.Tensor | None = None,
    reverse: bool = False,
) -> torch.Tensor:
    """Loop over projected inputs [B, T, 3d] from a first state [B, d] -> the state after each of them [B, T, d].

    Args:
        project_state: W_hh h + b, [B, d] -> [B, 3d].
        lengths: [B], the number of inputs of each sequence, at which it begins in reverse.
        reverse: from the last input to the first.
    """

    def step(states: Tensors, inputs: Tensors) -> StateAndOutputs:
        (old,) = states
        new = gru_update(inputs[0], project_state(old), old)
        if len(inputs) == 2:
            new = torch.where(inputs[1][:, None], new, old)
        return (new,), (new,)

    inputs: Tensors = (from_inputs,)
    if reverse and lengths is not None:
        inputs = (from_inputs, keep_first(lengths, from_inputs.shape[1]))
    return over_positions(step, (state,), inputs, reverse)[1][0]


class FusedGRU(FusedLayer):
    """An `nn.GRU` of one layer that `torch.compile` accepts, with a loop for single positions.

    No subclass of `nn.GRU`, whose mere presence stops `torch.compile`.
    """

    def __init__(self, input_size: int, hidden_size: int, bidirectional: bool = False) -> None:
        super().__init__("GRU", input_size, hidden_size, batch_first=True, bidirectional=bidirectional)

    def forward(
        self, hidden: torch.Tensor, lengths: torch.Tensor | None = None, state: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Run over inputs [B, T, in]; return the states after each [B, T, d], both directions side by side.

        Args:
            lengths: [B], how many of the T positions are no padding; `None` where all are none. One direction alone
                does not need them: padding comes later.
            state: [B, d], the state before the first position, of one direction; `None` is zero.
        """
        directions = 2 if self.bidirectional else 1
        if state is None:
            state = hidden.new_zeros(hidden.shape[0], self.hidden_size)
        if torch.compiler.is_compiling() or (hidden.shape[1] == 1 and not torch.is_grad_enabled()):
            return self.plain(hidden, lengths, state)
        first = state.to(hidden.dtype).expand(directions, -1, -1).contiguous()
        if lengths is None or not self.bidirectional:
            return torch.gru(hidden, first, self.weights, True, 1, 0.0, self.training, self.bidirectional, True)[0]
        ways = (hidden, reverse_sequences(hidden, lengths))
        forwards, backwards = (
            torch.gru(
                inputs,
                first[:1],
                self.weights[4 * way : 4 * way + 4],
                *(True, 1, 0.0, self.training, False, True),
            )[0]
            for way, inputs in enumerate(ways)
        )
        return torch.cat([forwards, reverse_sequences(backwards, lengths)], dim=-1)

    @property
    def weights(self) -> list[torch.Tensor]:
        """W_ih [3d, in], W_hh [3d, d] and their biases [3d] of each direction."""
        return cast(list[torch.Tensor], self._flat_weights)

    def plain(self, hidden: torch.Tensor, lengths: torch.Tensor | None, state: torch.Tensor) -> torch.Tensor:
        """Compute the same as a loop, for compilers and for a single position, with which fused kernels are slow."""
        states = [gru_steps(self.project_input(hidden), state, self.project_state)]
        if self.bidirectional:
            project_state = functools.partial(self.project_state, direction=1)
            from_inputs = self.project_input(hidden, direction=1)
            states.append(gru_steps(from_inputs, state, project_state, lengths, reverse=True))
        return torch.cat(states, dim=-1)


class GRULayer(GradientCheckpointingLayer):
    """A GRU, then dropout, a residual connection where input and output are of one width, and layer normalisation."""

    def __init__(self, input_size: int, hidden_size: int, dropout: float, bidirectional: bool = False) -> None:
        super().__init__()
        self.gru = FusedGRU(input_size, hidden_size // 2 if bidirectional else hidden_size, bidirectional)
        self.layer_norm = nn.LayerNorm(hidden_size)
        self.dropout = dropout

    def forward(
        self, hidden: torch.Tensor, lengths: torch.Tensor | None = None, state: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs [B, T, in] -> outputs [B, T, d], and the states [B, T, d] themselves: see `FusedGRU`."""
        states = self.gru(hidden, lengths, state)
        output = nn.functional.dropout(states, p=self.dropout, training=self.training)
        if hidden.shape[-1] == output.shape[-1]:
            output = hidden + output
        return self.layer_norm(output), states
