"""The weights of layers: how much a sum of layers takes of each (`WeightedLayers`).

Legend: B sentences, T positions, L sources: the layers, in some sums after the embedding.
U weights of a source: 1, or one for each unit.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel

from hf_capsule_mt.analysis.routing_statistics import assignment_entropy, real_positions
from hf_capsule_mt.modeling.aggregation_base import WeightedLayers, weighted_layers


def _zero() -> torch.Tensor:
    return torch.zeros((), dtype=torch.float64)


@dataclass
class LayerWeightStatistics:
    """The weights of one sum over all positions.

    sources: their names, the lowest first.
    has_distribution: whether the weights of a position are a distribution over the sources, so that they have an
        entropy.
    """

    sources: list[str]
    has_distribution: bool
    mean: torch.Tensor = field(default_factory=_zero)  # [L], over positions and units
    mean_square: torch.Tensor = field(default_factory=_zero)  # [L]
    mean_entropy: float = 0.0
    positions: int = 0

    def add(self, weights: torch.Tensor) -> None:
        """Add weights [positions, L, U]."""
        weights = weights.double()
        self.positions += len(weights)
        share = len(weights) / max(self.positions, 1)
        self.mean = self.mean + share * (weights.mean(dim=(0, 2)) - self.mean)
        self.mean_square = self.mean_square + share * (weights.square().mean(dim=(0, 2)) - self.mean_square)
        if self.has_distribution:
            entropy = float(assignment_entropy(weights.mT).mean())  # the sum is one input, the sources are its outputs
            self.mean_entropy += share * (entropy - self.mean_entropy)

    @property
    def deviation(self) -> torch.Tensor:
        """The standard deviation [L] over positions and units: 0 if a source has one weight everywhere."""
        return (self.mean_square - self.mean.square()).clamp(min=0).sqrt()

    @property
    def entropy(self) -> float | None:
        """The mean entropy of a position's weights in nats, at most ln L; `None` if they are not a distribution."""
        return self.mean_entropy if self.has_distribution else None

    def __str__(self) -> str:
        weights = zip(self.sources, self.mean.tolist(), self.deviation.tolist(), strict=True)
        text = ", ".join(f"{source} {mean:.2f} ± {deviation:.2f}" for source, mean, deviation in weights)
        if self.entropy is None:
            return text
        return f"{text}; entropy {self.entropy:.2f} of at most {math.log(len(self.sources)):.2f}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "sources": self.sources,
            "weights": self.mean.tolist(),
            "deviation": self.deviation.tolist(),
            "entropy": self.entropy,
            "positions": self.positions,
        }


def layer_sums(model: PreTrainedModel) -> dict[str, WeightedLayers]:
    """Return the weighted sums of a model, and of adapters beside it, such as "encoder.adapter.0", by their names."""
    adapters = re.compile(r"depth_adapter\.capsule_layers\.\w+")
    return {adapters.sub("adapter", name): module for name, module in weighted_layers(model).items()}


@torch.no_grad()
def layer_weights_of(model: PreTrainedModel, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights [B, T, L, U] of every sum of layers during forced decoding of the batch's labels."""
    all_weights: dict[str, torch.Tensor] = {}
    names = {module: name for name, module in layer_sums(model).items()}

    def keep_weights(module: WeightedLayers, inputs: tuple[Any, ...]) -> None:
        sources = torch.stack(inputs[0], dim=-2)
        _, weights = module.combine(sources)
        if weights.dim() < sources.dim():
            weights = weights.unsqueeze(-1)  # one weight for all units of a source
        all_weights[names[module]] = weights.detach().expand(*sources.shape[:-1], -1)

    handles = [module.register_forward_pre_hook(keep_weights) for module in names]
    try:
        model.eval()(**batch)
    finally:
        for handle in handles:
            handle.remove()
    return all_weights


def layer_weight_statistics(
    model: PreTrainedModel, batches: Iterable[dict[str, torch.Tensor]]
) -> dict[str, LayerWeightStatistics]:
    """Return mean, deviation and entropy of the weights of every sum of layers, without padding.

    {} for a model without such sums.
    """
    statistics = {
        name: LayerWeightStatistics(_sources_of(module), module.has_distribution)
        for name, module in layer_sums(model).items()
    }
    if not statistics:
        return {}
    for batch in batches:
        for name, weights in layer_weights_of(model, batch).items():
            statistics[name].add(real_positions(name, weights, batch).cpu())
    if not all(entry.positions for entry in statistics.values()):
        raise ValueError("`batches` must have at least one batch")
    return statistics


def _sources_of(module: WeightedLayers) -> list[str]:
    """Name the sources of a sum."""
    layers = [f"layer {number}" for number in range(1, module.num_layers + 1)]
    return ["embedding", *layers] if module.reads_embedding else layers
