"""Linear maps from capsules to capsules, votes or activations: each result from all capsules, or from its own one.

A map with an update scale s holds W / s and multiplies by s: with SGD or Adam, W moves s times as far.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import initialization as init


def scaled(parameter: torch.Tensor, scale: float) -> torch.Tensor:
    """Return W = scale * parameter, and give the parameter W's own gradient.

    So a step of SGD or Adam (without weight decay) moves W by `scale` times what it would move W itself. With the
    true gradient, which is `scale` times that one, SGD would move W by `scale` squared.
    """
    if scale == 1.0:
        return parameter
    product = parameter * scale
    if torch.is_grad_enabled() and parameter.requires_grad:
        product = product + (parameter - parameter.detach()) * (1.0 - scale)  # adds 0
    return product


class ScaledLinear(nn.Module):
    """A linear map that moves `update_scale` times as fast as the rest of a model.

    It is not an `nn.Linear`: what adapts or quantises those would take its weight for the whole matrix.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, update_scale: float = 1.0) -> None:
        super().__init__()
        self.update_scale = update_scale
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None

    def reset_parameters(self, std: float) -> None:
        """Initialise as transformers initialises a linear map."""
        init.normal_(self.weight, mean=0.0, std=std / self.update_scale)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else scaled(self.bias, self.update_scale)
        return nn.functional.linear(hidden, scaled(self.weight, self.update_scale), bias)


class PerCapsuleLinear(nn.Module):
    """A linear map of its own for each of L capsules: [..., L * in] -> [..., L * out]."""

    def __init__(
        self,
        num_capsules: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        update_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.num_capsules = num_capsules
        self.update_scale = update_scale
        self.weight = nn.Parameter(torch.empty(num_capsules, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(num_capsules * out_features)) if bias else None

    def reset_parameters(self, std: float) -> None:
        """Initialise as transformers initialises a linear map."""
        init.normal_(self.weight, mean=0.0, std=std / self.update_scale)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        capsules = hidden.unflatten(-1, (self.num_capsules, -1))  # [..., L, in]
        weight = scaled(self.weight, self.update_scale)
        mapped = torch.einsum("...li,loi->...lo", capsules, weight).flatten(-2)  # [..., L * out]
        return mapped if self.bias is None else mapped + scaled(self.bias, self.update_scale)


def linear_map(in_features: int, out_features: int, bias: bool = True, update_scale: float = 1.0) -> nn.Module:
    """Return a linear map, an `nn.Linear` where its updates are not scaled."""
    if update_scale == 1.0:
        return nn.Linear(in_features, out_features, bias)
    return ScaledLinear(in_features, out_features, bias, update_scale)


def capsule_map(
    capsule_source: str,
    num_capsules: int,
    in_features: int,
    out_features: int,
    bias: bool = True,
    update_scale: float = 1.0,
) -> nn.Module:
    """L * in -> L * out: each of the L results from "all" capsules, or from its "own", which has the same index."""
    if capsule_source == "own":
        return PerCapsuleLinear(num_capsules, in_features, out_features, bias, update_scale)
    return linear_map(num_capsules * in_features, num_capsules * out_features, bias, update_scale)


class Start(NamedTuple):
    """What the blocks of a map's outputs are at its start but for noise, each of the width of a layer.

    weight: for each block, the number by which each block of inputs is multiplied before they are added; bias: what is
    added. Empty ones stay as they are drawn.

    Deviation: the papers do not say how F_l, W_l and W_l->n start. As the only way to the decoder, maps that start at
    random do not learn from scratch, with routing or without: until the decoder reads the source, Adam moves them on
    noise in the few directions that tokens share, and LayerNorm divides the rest away. On top of a trained model they
    learn. From scratch they do if they start at layers and also move a tenth as fast; either alone is not enough.
    """

    weight: tuple[tuple[float, ...], ...]
    bias: tuple[float, ...]


def set_start(module: Any, *, weight: Sequence[Sequence[float]] = (), bias: Sequence[float] = ()) -> None:
    """Let the model add this to what it draws when it initialises a map."""
    module.start = Start(tuple(tuple(row) for row in weight), tuple(bias))


@torch.no_grad()
def move_to_start(module: Any) -> None:
    """Add what `set_start` set, if anything, to the parameters of a map that have just been drawn."""
    start: Start | None = vars(module).get("start")
    if start is None:
        return
    scale = getattr(module, "update_scale", 1.0)
    if start.weight:
        weight = module.weight
        is_own = weight.dim() == 3  # from each input to its own output
        blocks = weight.new_tensor(start.weight) / scale
        width = weight.shape[-1] if is_own else weight.shape[-1] // blocks.shape[1]
        identity = torch.eye(width, dtype=weight.dtype, device=weight.device)
        target = blocks.diagonal().view(-1, 1, 1) * identity if is_own else torch.kron(blocks, identity)
        init.copy_(weight, weight + target)
    if start.bias:
        values = module.bias.new_tensor(start.bias) / scale
        init.copy_(module.bias, values.repeat_interleave(len(module.bias) // len(values)))
