"""Sinusoids of positions, and loops over them: an exporter keeps loops, so that a graph takes sequences of any length.

Legend: B batch, T positions, d model width.
"""

from collections.abc import Callable

import torch
from torch import nn

Tensors = tuple[torch.Tensor, ...]
# the state after a position, and its outputs; one name: `torch.compile` evaluates the annotations of inner functions
StateAndOutputs = tuple[Tensors, Tensors]


def sinusoids(
    num_positions: int, width: int, device: torch.device | None = None, *, last_exponent: bool = False
) -> torch.Tensor:
    """Compute positions [positions, d] in float64: sines in the first half of the width, then cosines.

    Wave k of d / 2 has the frequency 10000^(-k / (d / 2)), as in transformers' Marian and Vaswani et al., or, so that
    the `last_exponent` is -1, 10000^(-k / (d / 2 - 1)), as in Marian itself.
    """
    exponents = 2 * (torch.arange(width, dtype=torch.float64, device=device) // 2) / (width - 2 * last_exponent)
    angles = torch.arange(num_positions, dtype=torch.float64, device=device)[:, None] / 10000**exponents
    return torch.cat([angles[:, 0::2].sin(), angles[:, 1::2].cos()], dim=1)


def over_positions(
    step: Callable[[Tensors, Tensors], StateAndOutputs],
    state: Tensors,
    inputs: Tensors,
    reverse: bool = False,
) -> StateAndOutputs:
    """Run a recurrence over inputs, each [B, T, ...]; return the last state and the outputs, each [B, T, ...].

    Python's loop, which `torch.compile` unrolls: in eager PyTorch `scan` takes over ten times as long. While
    `torch.export` traces, it is the operator `scan`, so that the exported program takes any number of positions.

    Args:
        step: the state before and the inputs of one position, each [B, ...] -> the state after it and its outputs.
        reverse: from the last position to the first.
    """
    if torch.compiler.is_exporting():
        from torch._higher_order_ops.scan import scan

        def separate(carried: Tensors, of_position: Tensors) -> StateAndOutputs:
            new, results = step(carried, of_position)
            return new, tuple(result.clone() for result in results)  # no two results may share memory

        state = tuple(tensor.clone() for tensor in state)  # nor any two parts of the state
        last, outputs = scan(separate, state, tuple(tensor.transpose(0, 1) for tensor in inputs), reverse=reverse)
        return tuple(last), tuple(output.transpose(0, 1) for output in outputs)
    collected = []
    positions = list(zip(*(tensor.unbind(1) for tensor in inputs), strict=True))
    for of_position in reversed(positions) if reverse else positions:
        state, results = step(state, of_position)
        collected.append(results)
    if reverse:
        collected.reverse()
    return state, tuple(torch.stack(results, dim=1) for results in zip(*collected, strict=True))


class FusedLayer(nn.RNNBase):
    """Base of recurrent layers whose two products can be computed apart, forwards (0) or backwards (1)."""

    def project_input(self, hidden: torch.Tensor, direction: int = 0) -> torch.Tensor:
        """W_ih x + b, [..., in] -> [..., gates * d]."""
        return nn.functional.linear(hidden, *self._product("ih", direction))

    def project_state(self, state: torch.Tensor, direction: int = 0) -> torch.Tensor:
        """W_hh h + b, [..., d] -> [..., gates * d]."""
        return nn.functional.linear(state, *self._product("hh", direction))

    def _product(self, name: str, direction: int) -> Tensors:
        """Return weight and bias by name: `all_weights` holds tensors that an exporter does not know as parameters."""
        suffix = f"{name}_l0{'_reverse' * direction}"
        return getattr(self, f"weight_{suffix}"), getattr(self, f"bias_{suffix}")
