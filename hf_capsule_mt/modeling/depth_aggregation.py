"""Depth aggregation: weighted sums of the embedding and of all layers' outputs, the successors of Dou et al. 2019.

The mathematics is in `routing/depth.py`. A sum is the result of a stack and, with `depth_connections`, the input of
each layer from the second on, too. Legend: L sources, the embedding first; d model width.
"""

import torch
from torch import nn
from transformers import initialization as init

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.modeling.aggregation_base import WeightedLayers
from hf_capsule_mt.routing.depth import depth_attention, generalized_residual, multiway_dense, weighted_sum


class DepthAggregation(WeightedLayers):
    """Base of the sums: the sum replaces h_L as it is, or is normalised and added to it.

    Where it replaces h_L there is neither dropout nor LayerNorm, so that a sum can be exactly h_L at first.
    """

    reads_embedding = True

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        self.epsilon = config.layer_norm_eps
        if not self.adds:
            self.dropout, self.layer_norm = 0.0, nn.Identity()

    def reset_parameters(self, std: float) -> None:
        """Initialise the weights; `std` is that of random matrices."""
        raise NotImplementedError


class DenseSum(DepthAggregation):
    """DenseFormer: one learnt number for each source, (0 ... 0, 1) at first."""

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        self.weights = nn.Parameter(torch.empty(self.num_sources))

    def reset_parameters(self, std: float) -> None:
        _select_top(self.weights)

    def combine(self, sources: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return weighted_sum(sources, self.weights.unsqueeze(-1)), self.weights


class DepthAttention(DepthAggregation):
    """Attention Residuals: a learnt query attends to the sources. It starts at zero: at their mean."""

    has_distribution = True

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        self.query = nn.Parameter(torch.empty(1, self.width))
        self.gain = nn.Parameter(torch.empty(self.width))

    def reset_parameters(self, std: float) -> None:
        init.zeros_(self.query)
        init.ones_(self.gain)

    def combine(self, sources: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return depth_attention(sources, self.query[0], self.gain, epsilon=self.epsilon)


class MultiwayDenseSum(DepthAggregation):
    """MUDD: a small network of h_L gives the numbers. Its last matrix starts at zero: at h_L."""

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        self.inner = nn.Parameter(torch.empty(self.num_sources, self.width))
        self.outer = nn.Parameter(torch.empty(self.num_sources, self.num_sources))
        self.offsets = nn.Parameter(torch.empty(self.num_sources))

    def reset_parameters(self, std: float) -> None:
        init.normal_(self.inner, std=std)
        init.zeros_(self.outer)
        _select_top(self.offsets)

    def combine(self, sources: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return multiway_dense(sources, self.inner, self.outer, self.offsets, epsilon=self.epsilon)


class GeneralizedResidual(DepthAggregation):
    """GRN of DeepCrossAttention: a learnt number for each source and unit, and one that the source itself gives.

    Deviation: the direction w starts at small random numbers, and not at zero, where the relu's gradient is zero and
    it would never learn. So the sum starts near h_L, and at h_L only where it adds.
    """

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        self.direction = nn.Parameter(torch.empty(1, self.width))
        self.offsets = nn.Parameter(torch.empty(self.num_sources, self.width))

    def reset_parameters(self, std: float) -> None:
        init.normal_(self.direction, std=std)
        _select_top(self.offsets)

    def combine(self, sources: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return generalized_residual(sources, self.direction[0], self.offsets, epsilon=self.epsilon)


def _select_top(weights: nn.Parameter) -> None:
    """Set the weights of all sources to zero, and those of the last to one."""
    top = torch.zeros_like(weights)
    top[-1] = 1.0
    init.copy_(weights, top)
