"""The seam after a stack of layers: the top layer's output, or the base of what combines all layers.

Legend: B batch, S positions, L layers, d model width.
"""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.modeling.outputs import IterationWeights


class TopLayer(nn.Module):
    """No aggregation: the output of the top layer."""

    reads_embedding = False

    def forward(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool = False
    ) -> tuple[torch.Tensor, None]:
        return layer_outputs[-1], None


class ZeroGainLayerNorm(nn.LayerNorm):
    """Layer normalisation whose gain starts at zero, so that at first it adds nothing to a residual."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        init.zeros_(self.weight)


class LayerAggregation(nn.Module):
    """H~ = LayerNorm(dropout(aggregate(H^1 ... H^L))), which replaces H^L or is added to it; depth sums replace bare.

    reads_embedding: whether the embedding comes before the layers' outputs in what is combined.
    """

    reads_embedding = False
    layer_norm: nn.Module

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.width = config.d_model
        self.dropout = config.dropout
        self.adds = config.layer_aggregation_placement == "adds"
        if self.adds:
            self.layer_norm = ZeroGainLayerNorm(config.d_model, eps=config.layer_norm_eps)
        else:
            self.layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def aggregate(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        """L tensors [B, S, d] -> H~ [B, S, d] before dropout and norm; routing weights [B, S, L, N], if any."""
        raise NotImplementedError

    def forward(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool = False
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        aggregated, weights = self.aggregate(layer_outputs, output_routing_weights)
        aggregated = nn.functional.dropout(aggregated, p=self.dropout, training=self.training)
        aggregated = self.layer_norm(aggregated)
        if self.adds:
            # Deviation: the paper's code, if it added, would be LayerNorm(H^L + H~), which is not H^L for any H~. Here
            # it is H^L + LayerNorm(H~) with a gain that starts at zero: training starts exactly at the model without
            # aggregation, at the same number of parameters.
            aggregated = layer_outputs[-1] + aggregated
        return aggregated, weights


class WeightedLayers(LayerAggregation):
    """Base of H~ = sum_l a_l h_l, whose weights a can be shown: one for each source, or for each source and unit.

    has_distribution: whether the weights of a position are a distribution over the sources.
    """

    has_distribution = False

    @property
    def num_sources(self) -> int:
        return self.num_layers + self.reads_embedding

    def combine(self, sources: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Sources [B, S, L, d] -> their sum [B, S, d] and its weights: [L], [B, S, L] or [B, S, L, d]."""
        raise NotImplementedError

    def aggregate(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        return self.combine(torch.stack(layer_outputs, dim=-2))[0], None


def weighted_layers(model: PreTrainedModel) -> dict[str, WeightedLayers]:
    """Return the weighted sums of layers of a model by where they are, such as "encoder.layer_aggregation"."""
    return {name: module for name, module in model.base_model.named_modules() if isinstance(module, WeightedLayers)}
