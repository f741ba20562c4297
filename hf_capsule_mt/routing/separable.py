"""The routing of CapsNMT (Wang et al., section 3): composition and scoring may each have weights of their own."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn.functional import linear

from hf_capsule_mt.routing.common import RoutingOutput, check_shape, check_votes, iteration_dtype, without_autocast
from hf_capsule_mt.routing.squash import squash


class ScoringNetwork(NamedTuple):
    """The weights of g(x) = W_2 ReLU(W_1 x + b_1) + b_2: W_1 [K, D], b_1 [K], W_2 [K', K], b_2 [K']."""

    inner_weight: torch.Tensor
    inner_bias: torch.Tensor
    outer_weight: torch.Tensor
    outer_bias: torch.Tensor

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """[..., D] -> [..., K'], in the dtype of the values."""
        inner_weight, inner_bias, outer_weight, outer_bias = (weight.to(values.dtype) for weight in self)
        return linear(linear(values, inner_weight, inner_bias).relu(), outer_weight, outer_bias)


def separable_routing(
    votes: Sequence[torch.Tensor],
    *,
    mask: torch.Tensor | None = None,
    capsule_positions: torch.Tensor | None = None,
    inputs: torch.Tensor | None = None,
    scoring: ScoringNetwork | None = None,
    score_scale: float = 1.0,
    comparison_scale: float = 1.0,
) -> RoutingOutput:
    """Route N input capsules (words) to M output capsules, with separate votes for each iteration.

    With B = 0 at the start, iteration t of T computes, for inputs n and outputs m,

        C_nm    = softmax_m(B_nm)
        Omega_m = squash(sum_n C_nm V^t_nm)
        B_nm   += s (k Omega_m + P_m) . V^t_nm      (equation 12; not after the last)
        or        s g(k Omega_m + P_m) . g(h_n)     (equation 14, if `scoring` is given)

    Args:
        votes: for each of the T iterations V^t [..., N, M, D]; the same tensor where iterations share their weights.
        mask: [..., N], True keeps an input capsule.
        capsule_positions: P [M, D], the positional encodings of the output capsules, which take part in the comparison
            alone and not in the result; none if it is not given.
        inputs: h [..., N, D], the input capsules that g compares, with their positional encodings; only for `scoring`.
        scoring: the weights of g.
        score_scale: s, the factor of every score; 1 in the paper.
        comparison_scale: k, the factor of the output capsules where they are compared; 1 in the paper, where P, of
            length sqrt(D / 2), is much longer than Omega.

    Returns:
        `RoutingOutput`: Omega [..., M, D] and T tensors C [..., N, M], in the dtype of the votes.

    Relations: with the same votes in all iterations, scales of 1, no positions and no network it is `dynamic_routing`.
    """
    check_separable(votes, mask, capsule_positions, inputs, scoring)
    with without_autocast(votes[0]):
        return _routed(votes, mask, capsule_positions, inputs, scoring, score_scale, comparison_scale)


def check_separable(
    votes: Sequence[torch.Tensor],
    mask: torch.Tensor | None,
    capsule_positions: torch.Tensor | None,
    inputs: torch.Tensor | None,
    scoring: ScoringNetwork | None,
) -> None:
    """Check that the arguments of `separable_routing` fit together."""
    for iteration_votes in votes:
        check_votes(iteration_votes, len(votes), mask)
        check_shape("votes", iteration_votes, votes[0].shape, votes[0])
    if not votes:
        raise ValueError("`votes` must have the votes of at least one iteration, got none")
    *batch, num_inputs, num_outputs, width = votes[0].shape
    if (inputs is None) != (scoring is None):
        raise ValueError("`inputs` and `scoring` go together: give both or neither")
    if inputs is not None:
        check_shape("inputs", inputs, torch.Size([*batch, num_inputs, width]), votes[0])
    if capsule_positions is not None:
        check_shape("capsule_positions", capsule_positions, torch.Size([num_outputs, width]), votes[0])


def _routed(
    votes: Sequence[torch.Tensor],
    mask: torch.Tensor | None,
    capsule_positions: torch.Tensor | None,
    inputs: torch.Tensor | None,
    scoring: ScoringNetwork | None,
    score_scale: float,
    comparison_scale: float,
) -> RoutingOutput:
    *batch, num_inputs, num_outputs, _ = votes[0].shape
    num_iterations = len(votes)
    dtype = iteration_dtype(votes[0])
    keep = None if mask is None else mask.unsqueeze(-1)  # [..., N, 1]
    words = None
    if scoring is not None and inputs is not None:
        words = scoring(inputs.to(dtype) if keep is None else inputs.to(dtype).masked_fill(~keep, 0))  # [..., N, K']
    logits = torch.zeros((*batch, num_inputs, num_outputs), dtype=dtype, device=votes[0].device)
    weights = []
    for iteration, iteration_votes in enumerate(votes):
        values = iteration_votes.to(dtype).transpose(-3, -2)  # [..., M, N, D]
        assignment = logits.softmax(dim=-1)
        if keep is not None:  # whatever padding holds, even NaN, must not spread
            values = values.masked_fill(~keep.unsqueeze(-3), 0)
            assignment = assignment * keep
        weights.append(assignment.to(votes[0].dtype))
        totals = torch.matmul(assignment.transpose(-2, -1).unsqueeze(-2), values).squeeze(-2)
        capsules = squash(totals)  # [..., M, D]
        if iteration < num_iterations - 1:
            compared = comparison_scale * capsules
            if capsule_positions is not None:
                compared = compared + capsule_positions.to(dtype)
            if words is not None and scoring is not None:
                scores = torch.matmul(words, scoring(compared).transpose(-2, -1))  # [..., N, M]
            else:
                scores = torch.matmul(values, compared.unsqueeze(-1)).squeeze(-1).transpose(-2, -1)
            logits = logits + score_scale * scores
    return RoutingOutput(capsules.to(votes[0].dtype), tuple(weights))
