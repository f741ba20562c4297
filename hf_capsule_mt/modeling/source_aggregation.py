"""Aggregate a source of any length to a fixed number of vectors, for CapsNMT (sections 2 and 3 of the paper).

Legend: B batch, S source positions, M vectors, d model width, T routing iterations. In every mask `True` keeps.
"""

import math

import torch
from torch import nn

from hf_capsule_mt.configuration.configuration_capsnmt import CapsNMTConfig
from hf_capsule_mt.modeling.initial_std import set_initial_std
from hf_capsule_mt.modeling.matrices import matrix_of, vector_of
from hf_capsule_mt.modeling.outputs import IterationWeights
from hf_capsule_mt.modeling.positions import sinusoids
from hf_capsule_mt.routing.dynamic import dynamic_routing
from hf_capsule_mt.routing.separable import ScoringNetwork, separable_routing


class SourceCapsules(nn.Module):
    """Route the states of the source, as child capsules, to M parent capsules.

    A vote is f(h_i, W_j) = ReLU(h_i W_j), and W_j may differ from iteration to iteration.
    """

    _no_split_modules = ["SourceCapsules"]  # of a model that has one: accelerate refuses a name that it does not find

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.num_capsules = config.num_capsules
        self.num_iterations = config.num_iterations
        self.num_weights = 1 if config.share_iteration_weights else config.num_iterations
        self.adds_positions = config.position_aware
        self.votes = nn.Linear(width, self.num_weights * self.num_capsules * width, bias=False)
        set_initial_std(self.votes, math.sqrt(2) / math.sqrt(width))  # the rectifier halves the mean square
        self.score_scale, self.comparison_scale = config.score_scale, config.compared_capsule_scale
        self.norm = nn.LayerNorm(width) if config.normalize_capsules else nn.Identity()
        self.scores_separately = config.separable_scoring
        if config.separable_scoring:
            self.inner_scoring = nn.Linear(width, width)
            self.outer_scoring = nn.Linear(width, width)
            # scores of about one, so that no choice is made at the start
            set_initial_std(self.outer_scoring, width**-0.25 / math.sqrt(width))

    def forward(
        self, states: torch.Tensor, mask: torch.Tensor | None, output_routing_weights: bool = False
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        """States [B, S, d] of the source and their mask [B, S] -> capsules [B, M, d].

        The routing weights are the coefficients [B, S, M] of each word for each capsule, for every iteration.
        """
        width = states.shape[-1]
        if self.adds_positions:
            capsule_positions = sinusoids(self.num_capsules, width, states.device).to(states.dtype)
            positions = sinusoids(states.shape[1], width, states.device).to(states.dtype)
            if mask is not None:
                positions = positions[(mask.cumsum(dim=1) - 1).clamp(min=0)]  # counted without padding
            states = states + positions
        else:
            capsule_positions = None
        votes = self.votes(states).relu()  # [B, S, num_weights * M * d]
        votes = votes.unflatten(-1, (self.num_weights, self.num_capsules, width))
        if (
            not (self.adds_positions or self.scores_separately)
            and self.num_weights == self.score_scale == self.comparison_scale == 1
        ):
            routed = dynamic_routing(
                votes.squeeze(-3), num_iterations=self.num_iterations, mask=mask, return_weights=output_routing_weights
            )
            return self.norm(routed.capsules), routed.weights
        votes_by_iteration = (
            votes.unbind(dim=-3) if self.num_weights > 1 else (votes.squeeze(-3),) * self.num_iterations
        )
        routed = separable_routing(
            votes_by_iteration,
            mask=mask,
            capsule_positions=capsule_positions,
            inputs=states if self.scores_separately else None,
            scoring=self._scoring_network(),
            score_scale=self.score_scale,
            comparison_scale=self.comparison_scale,
        )
        return self.norm(routed.capsules), routed.weights if output_routing_weights else None

    def _scoring_network(self) -> ScoringNetwork | None:
        if not self.scores_separately:
            return None
        inner, outer = self.inner_scoring, self.outer_scoring
        return ScoringNetwork(matrix_of(inner), vector_of(inner), matrix_of(outer), vector_of(outer))


class SourcePooling(nn.Module):
    """The paper's simple baseline (equations 2 to 4): the maximum, the mean, the first and the last state."""

    def forward(
        self, states: torch.Tensor, mask: torch.Tensor | None, output_routing_weights: bool = False
    ) -> tuple[torch.Tensor, None]:
        """States [B, S, d] of the source and their mask [B, S] -> [B, 4, d]."""
        if mask is None:
            pooled = [states.amax(dim=1), states.mean(dim=1), states[:, 0], states[:, -1]]
        else:
            keep = mask.unsqueeze(-1)  # [B, S, 1]
            rows = torch.arange(states.shape[0], device=states.device)
            positions = torch.arange(states.shape[1], device=states.device).expand_as(mask)
            first = positions.masked_fill(~mask, states.shape[1]).amin(dim=1)
            last = positions.masked_fill(~mask, -1).amax(dim=1)
            pooled = [
                states.masked_fill(~keep, -torch.inf).amax(dim=1),
                states.masked_fill(~keep, 0).sum(dim=1) / mask.sum(dim=1, keepdim=True).to(states.dtype),
                states[rows, first],
                states[rows, last],
            ]
        return torch.stack(pooled, dim=1), None


def build_source_aggregation(config: CapsNMTConfig) -> nn.Module:
    return SourceCapsules(config) if config.aggregation == "capsules" else SourcePooling()
