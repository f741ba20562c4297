"""Sinusoids of positions."""

import torch


def sinusoids(
    num_positions: int, width: int, device: torch.device | None = None, *, last_exponent: bool = False
) -> torch.Tensor:
    """Compute positions [positions, d] in float64: sines in the first half of the width, then cosines.

    Wave k of d / 2 has the frequency 10000^(-k / (d / 2)), as in transformers' Marian and Vaswani et al.; with
    `last_exponent`, 10000^(-k / (d / 2 - 1)), whose last exponent is -1, as in Marian itself.
    """
    exponents = 2 * (torch.arange(width, dtype=torch.float64, device=device) // 2) / (width - 2 * last_exponent)
    angles = torch.arange(num_positions, dtype=torch.float64, device=device)[:, None] / 10000**exponents
    return torch.cat([angles[:, 0::2].sin(), angles[:, 1::2].cos()], dim=1)
