"""Linear maps from capsules to capsules, votes or activations: each result from all capsules, or from its own one."""

import torch
from torch import nn
from transformers import initialization as init


class PerCapsuleLinear(nn.Module):
    """A linear map of its own for each of L capsules: [..., L * in] -> [..., L * out]."""

    def __init__(self, num_capsules: int, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.num_capsules = num_capsules
        self.weight = nn.Parameter(torch.empty(num_capsules, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(num_capsules * out_features)) if bias else None

    def reset_parameters(self, std: float) -> None:
        """Initialise as transformers initialises a linear map."""
        init.normal_(self.weight, mean=0.0, std=std)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        capsules = hidden.unflatten(-1, (self.num_capsules, -1))  # [..., L, in]
        mapped = torch.einsum("...li,loi->...lo", capsules, self.weight).flatten(-2)  # [..., L * out]
        return mapped if self.bias is None else mapped + self.bias


def capsule_map(source: str, num_capsules: int, in_features: int, out_features: int, bias: bool = True) -> nn.Module:
    """L * in -> L * out: each of the L results from "all" capsules, or from its "own", which has the same index."""
    if source == "own":
        return PerCapsuleLinear(num_capsules, in_features, out_features, bias)
    return nn.Linear(num_capsules * in_features, num_capsules * out_features, bias)
