"""Multi-head aggregation by routing (Li et al. 2019), which replaces an attention's output projection or adds to it.

Legend: B batch, T positions, H heads, d model width, N output capsules. It works on each position alone.
"""

from collections.abc import Callable

import torch
from torch import nn

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.modeling.aggregation_base import ZeroGainLayerNorm
from hf_capsule_mt.modeling.capsule_maps import capsule_map
from hf_capsule_mt.modeling.initial_std import set_initial_std
from hf_capsule_mt.modeling.outputs import IterationWeights
from hf_capsule_mt.modeling.router import Router

# of the input capsules: the paper says "non-linear" and no more
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}


class HeadAggregation(Router):
    """Equations 5 to 12: the heads become input capsules, routed to N output capsules whose concatenation is O.

    Input capsules have no activation, also with EM routing (algorithm 2 of Li et al.).
    """

    def __init__(self, config: CapsuleMarianConfig, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.activation = ACTIVATIONS[config.head_aggregation_activation]
        width, source = config.d_model, config.head_aggregation_vote_input
        # f_1 ... f_H, each of which maps all heads, d -> d / H
        self.input_capsules = nn.Linear(width, width)
        # The votes of each of the H capsules.
        # Deviation: equation 6 is V_h->n = Omega_h W_h->n, from its own. By default all make them: the paper's numbers
        # of parameters (+12.6M in six layers) are those of such matrices, and not +1.6M.
        self.votes = capsule_map(source, num_heads, width // num_heads, width, bias=False)
        vote_inputs = width if source == "all" else width // num_heads
        for linear, inputs in ((self.input_capsules, width), (self.votes, vote_inputs)):
            std = config.head_aggregation_init_std
            set_initial_std(linear, inputs**-0.5 if std is None else std)
        num_capsules = config.head_aggregation_num_capsules or config.d_model
        self.add_routing(config, config.head_aggregation, num_capsules, config.head_aggregation_num_iterations)

    def forward(
        self, heads: torch.Tensor, output_routing_weights: bool = False
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        """Concatenated heads [B, T, d] -> O [B, T, d], and routing weights [B, T, H, N] if asked for."""
        input_capsules = self.activation(self.input_capsules(heads))  # [B, T, d]
        votes = self.votes(input_capsules).unflatten(-1, (self.num_heads, self.num_capsules, -1))
        routed = self.route(votes, return_weights=output_routing_weights)
        return routed.capsules.flatten(-2), routed.weights


class AddedHeadAggregation(HeadAggregation):
    """LayerNorm(O), which is added to what the linear map W^O gives."""

    def __init__(self, config: CapsuleMarianConfig, num_heads: int) -> None:
        super().__init__(config, num_heads)
        # Deviation: the paper routes in place of W^O. Here a normalised O with a gain that starts at zero is added to
        # what W^O gives, as where layers are aggregated: training starts exactly at the model without routing.
        self.layer_norm = ZeroGainLayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(
        self, heads: torch.Tensor, output_routing_weights: bool = False
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        """Concatenated heads [B, T, d] -> LayerNorm(O) [B, T, d], and routing weights if asked for."""
        routed, weights = super().forward(heads, output_routing_weights)
        return self.layer_norm(routed), weights
