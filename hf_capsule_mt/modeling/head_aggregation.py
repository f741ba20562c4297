"""Multi-head aggregation by routing (Li et al. 2019): what stands in the place of an attention's output projection.

Legend: B batch, T positions, H heads, d model width, N output capsules. It works on each position alone.
"""

from collections.abc import Callable

import torch
from torch import nn
from transformers import initialization as init

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.modeling.linear import FastLinear, linear_class
from hf_capsule_mt.modeling.outputs import IterationWeights
from hf_capsule_mt.routing import dynamic_routing, em_routing

# of the input capsules: the paper says "non-linear" and no more
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}


class HeadAggregation(nn.Module):
    """Equations 5 to 12: the heads become input capsules, routed to N output capsules whose concatenation is O."""

    def __init__(self, config: CapsuleMarianConfig, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_iterations = config.head_aggregation_num_iterations
        self.num_capsules = config.head_aggregation_num_capsules or config.d_model
        self.activation = ACTIVATIONS[config.head_aggregation_activation]
        # f_h, H maps d -> d / H of all heads; and the votes of each of the H capsules, made from all of them
        self.input_capsules = FastLinear(config.d_model, config.d_model)
        self.votes = FastLinear(config.d_model, num_heads * config.d_model, bias=False)
        std = config.head_aggregation_init_std
        self.input_capsules.init_std = self.votes.init_std = config.d_model**-0.5 if std is None else std

    def route(self, votes: torch.Tensor, output_routing_weights: bool) -> tuple[torch.Tensor, IterationWeights | None]:
        """Votes [B, T, H, N, d / N] -> output capsules [B, T, N, d / N] and the routing weights [B, T, H, N]."""
        raise NotImplementedError

    def forward(
        self, heads: torch.Tensor, output_routing_weights: bool = False
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        """Concatenated heads [B, T, d] -> O [B, T, d] and the routing weights."""
        input_capsules = self.activation(self.input_capsules(heads))  # [B, T, d]
        votes = self.votes(input_capsules).unflatten(-1, (self.num_heads, self.num_capsules, -1))
        output_capsules, weights = self.route(votes, output_routing_weights)
        return output_capsules.flatten(-2), weights


class SimpleRoutingAggregation(HeadAggregation):
    """Algorithm 1 of Li et al.: dynamic routing whose total input is normalised before it is squashed."""

    def route(self, votes: torch.Tensor, output_routing_weights: bool) -> tuple[torch.Tensor, IterationWeights | None]:
        return dynamic_routing(
            votes,
            num_iterations=self.num_iterations,
            normalize_total_input=True,
            return_weights=output_routing_weights,
        )


class EMRoutingAggregation(HeadAggregation):
    """Algorithm 2 of Li et al.: no activation of the input capsules."""

    def __init__(self, config: CapsuleMarianConfig, num_heads: int) -> None:
        super().__init__(config, num_heads)
        self.lambda_final = config.em_lambda_final
        self.min_variance = config.em_min_variance
        self.density = config.em_density
        self.beta_a = nn.Parameter(torch.zeros(self.num_capsules))
        self.beta_u = nn.Parameter(torch.zeros(self.num_capsules))

    def reset_parameters(self) -> None:
        """Hinton et al. start with half the capsules active."""
        init.zeros_(self.beta_a)
        init.zeros_(self.beta_u)

    def route(self, votes: torch.Tensor, output_routing_weights: bool) -> tuple[torch.Tensor, IterationWeights | None]:
        return em_routing(
            votes,
            num_iterations=self.num_iterations,
            beta_a=self.beta_a,
            beta_u=self.beta_u,
            lambda_final=self.lambda_final,
            min_variance=self.min_variance,
            density=self.density,
            return_weights=output_routing_weights,
        )


HEAD_AGGREGATIONS: dict[str, type[HeadAggregation]] = {
    "simple_routing": SimpleRoutingAggregation,
    "em_routing": EMRoutingAggregation,
}


def build_output_projection(config: CapsuleMarianConfig, num_heads: int, site: str, layer: int) -> nn.Module:
    """What makes an attention's output from its concatenated heads: W^O, or routing."""
    if config.aggregates_heads(site, layer):
        return HEAD_AGGREGATIONS[config.head_aggregation](config, num_heads)
    return linear_class(config)(config.d_model, config.d_model)


def project_heads(
    projection: nn.Module, heads: torch.Tensor, output_routing_weights: bool
) -> tuple[torch.Tensor, IterationWeights | None]:
    """Applies either of the two; only routing has weights to show."""
    if isinstance(projection, HeadAggregation):
        return projection(heads, output_routing_weights)
    return projection(heads), None
