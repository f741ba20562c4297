"""Routing by agreement, and sums over depth: pure functions on tensors, written once and used by every model."""

from hf_capsule_mt.routing.additive import additive_scores
from hf_capsule_mt.routing.common import RoutingOutput
from hf_capsule_mt.routing.depth import depth_attention, generalized_residual, multiway_dense, weighted_sum
from hf_capsule_mt.routing.dynamic import dynamic_routing
from hf_capsule_mt.routing.em import em_lambda_schedule, em_routing
from hf_capsule_mt.routing.guided import GuidedScorer, GuidedVotes, guided_routing, project_votes, route_guided_votes
from hf_capsule_mt.routing.separable import ScoringNetwork, separable_routing
from hf_capsule_mt.routing.squash import squash

__all__ = [
    "GuidedScorer",
    "GuidedVotes",
    "RoutingOutput",
    "ScoringNetwork",
    "additive_scores",
    "depth_attention",
    "dynamic_routing",
    "em_lambda_schedule",
    "em_routing",
    "generalized_residual",
    "guided_routing",
    "multiway_dense",
    "project_votes",
    "route_guided_votes",
    "separable_routing",
    "squash",
    "weighted_sum",
]
