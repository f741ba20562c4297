"""Layer aggregation (Dou et al. 2019): combine the outputs of all layers of a stack into its result.

Its successors are in `depth_aggregation.py`, what all share in `aggregation_base.py`.

Legend: B batch, S positions, L layers, d model width, N output capsules. Every method works on each position alone.
"""

import torch
from torch import nn
from transformers import initialization as init

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.modeling.aggregation_base import LayerAggregation, TopLayer, WeightedLayers, ZeroGainLayerNorm
from hf_capsule_mt.modeling.capsule_maps import (
    PerCapsuleLinear,
    ScaledLinear,
    capsule_map,
    linear_map,
    move_to_start,
    set_start,
)
from hf_capsule_mt.modeling.depth_aggregation import (
    DenseSum,
    DepthAggregation,
    DepthAttention,
    GeneralizedResidual,
    MultiwayDenseSum,
)
from hf_capsule_mt.modeling.initial_std import get_initial_std, set_initial_std
from hf_capsule_mt.modeling.outputs import IterationWeights
from hf_capsule_mt.modeling.router import Router


class LinearCombination(LayerAggregation):
    """Equation 3: H~ = sum_l W_l H^l, the same at every position.

    W_l = U S_l through a hidden width of 4d without nonlinearity: a reading of "trainable parameter matrices" that
    has the paper's number of parameters.
    """

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        update_scale = config.layer_aggregation_update_scale
        self.fc1 = linear_map(num_layers * self.width, 4 * self.width, update_scale=update_scale)
        self.fc2 = linear_map(4 * self.width, self.width, update_scale=update_scale)
        # the hidden width has room for four layers: the fifth is added to the first
        layers = {"random": [], "layers": range(num_layers), "top": [num_layers - 1]}[config.layer_aggregation_start]
        if layers:
            blocks = [[float(layer in layers[block::4]) for layer in range(num_layers)] for block in range(4)]
            set_start(self.fc1, weight=blocks)
            set_start(self.fc2, weight=[[max(block) / len(layers) for block in blocks]])

    def aggregate(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        return self.fc2(self.fc1(torch.cat(layer_outputs, dim=-1))), None


class DynamicCombination(WeightedLayers):
    """Equation 4: H~ = sum_l G_l * H^l elementwise, with weights G = FFN(H^1 ... H^L) for each position and unit."""

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        update_scale = config.layer_aggregation_update_scale
        self.fc1 = linear_map(num_layers * self.width, 4 * self.width, update_scale=update_scale)
        self.fc2 = linear_map(4 * self.width, num_layers * self.width, update_scale=update_scale)
        if config.layer_aggregation_start == "layers":
            set_start(self.fc2, bias=[1.0 / num_layers] * num_layers)
        elif config.layer_aggregation_start == "top":
            set_start(self.fc2, bias=[0.0] * (num_layers - 1) + [1.0])

    def combine(self, sources: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gates = self.fc2(nn.functional.relu(self.fc1(sources.flatten(-2))))  # [B, S, L * d]
        gates = gates.unflatten(-1, (self.num_layers, self.width))
        return (gates * sources).sum(dim=-2), gates


class RoutedCombination(LayerAggregation, Router):
    """Equations 5 to 16: the layers are input capsules, routed to N output capsules whose concatenation is H~."""

    input_activation: nn.Module | None

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        num_capsules = config.layer_aggregation_num_capsules or config.d_model
        update_scale = config.layer_aggregation_update_scale
        # F_l: each input capsule, from all layers or its own
        self.input_capsules = capsule_map(
            config.layer_aggregation_capsule_input, num_layers, self.width, self.width, update_scale=update_scale
        )
        # V_l->*: each input capsule's votes for all outputs, from all input capsules or its own.
        # Deviation: equation 7 is V_l->n = Omega_l W_l->n, from its own. By default all make the votes: the paper's
        # numbers of parameters (+37.8M and +56.8M) are those of such matrices, and not +22.0M and +25.2M.
        self.votes = capsule_map(
            config.layer_aggregation_vote_input, num_layers, self.width, self.width, False, update_scale
        )
        self.add_routing(config, config.layer_aggregation, num_capsules, config.layer_aggregation_num_iterations)
        self.activates_each_output = config.em_input_activation == "vector"
        if config.layer_aggregation == "em_routing" and config.em_input_activation != "none":
            self.input_activation = capsule_map(
                config.layer_aggregation_vote_input,
                num_layers,
                self.width,
                num_capsules if config.em_input_activation == "vector" else 1,
                update_scale=update_scale,
            )
        else:
            self.input_activation = None
        if config.layer_aggregation_init_std is not None:
            for module in (self.input_capsules, self.votes, self.input_activation):
                if module is not None:
                    set_initial_std(module, config.layer_aggregation_init_std)
        if config.layer_aggregation_start != "random":
            itself = [[float(source == layer) for source in range(num_layers)] for layer in range(num_layers)]
            set_start(self.votes, weight=itself)
            top = [itself[-1]] * num_layers
            set_start(self.input_capsules, weight=top if config.layer_aggregation_start == "top" else itself)

    def aggregate(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        maps = [self.votes] if self.input_activation is None else [self.votes, self.input_activation]
        input_capsules = self.input_capsules(torch.cat(layer_outputs, dim=-1))  # [B, S, L * d]
        mapped = [module(input_capsules) for module in maps]
        votes = mapped[0].unflatten(-1, (self.num_layers, self.num_capsules, -1))
        activation = None
        if self.input_activation is not None:
            # Deviation: equation 10 is linear, but what it computes is called a probability: a sigmoid follows;
            # in float32 at least: routing takes its logarithm, whose gradient float16 does not hold
            wide = torch.promote_types(mapped[1].dtype, torch.float32)
            activation = mapped[1].to(wide).sigmoid()  # [B, S, L * N], or [B, S, L] for a scalar
            if self.activates_each_output:
                activation = activation.unflatten(-1, (self.num_layers, self.num_capsules))
        routed = self.route(votes, input_activation=activation, return_weights=output_routing_weights)
        return routed.capsules.flatten(-2), routed.weights


COMBINATIONS: dict[str, type[LayerAggregation]] = {
    "linear": LinearCombination,
    "dynamic_combination": DynamicCombination,
    "dynamic_routing": RoutedCombination,
    "em_routing": RoutedCombination,
    "dense": DenseSum,
    "depth_attention": DepthAttention,
    "mudd": MultiwayDenseSum,
    "grn": GeneralizedResidual,
}


def build_layer_aggregation(
    config: CapsuleMarianConfig, num_layers: int, enabled: bool
) -> LayerAggregation | TopLayer:
    """Return what follows a stack of layers: the configured aggregation, or the top layer's output as it is."""
    if not enabled:
        return TopLayer()
    return COMBINATIONS[config.layer_aggregation](config, num_layers)


def build_depth_connections(config: CapsuleMarianConfig, num_layers: int, enabled: bool) -> nn.ModuleList:
    """Return what precedes each layer of a stack: the configured sum of all below, or what is just below it.

    The first layer has nothing below it but the embedding.
    """
    connects = enabled and config.depth_connections
    return nn.ModuleList(build_layer_aggregation(config, layer, connects and layer > 0) for layer in range(num_layers))


@torch.no_grad()
def initialize_part(module: nn.Module, std: float) -> None:
    """Initialise one module of an aggregation, where it is not a linear map or a norm as any other.

    std: that of random matrices which have none of their own.
    """
    own_std = get_initial_std(module)
    if isinstance(module, nn.Linear) and own_std is not None:
        init.normal_(module.weight, std=own_std)
    elif isinstance(module, (PerCapsuleLinear, ScaledLinear, DepthAggregation)):
        module.reset_parameters(std if own_std is None else own_std)
    elif isinstance(module, (Router, ZeroGainLayerNorm)):
        module.reset_parameters()
    move_to_start(module)
