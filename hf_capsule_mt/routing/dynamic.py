"""Dynamic routing (Sabour et al. 2017; algorithm 1 of Dou et al. 2019), and the simple routing of Li et al. 2019."""

import torch

from hf_capsule_mt.routing.chunks import route_in_chunks
from hf_capsule_mt.routing.common import (
    RoutingOutput,
    check_votes,
    is_traced,
    iteration_dtype,
    sum_width,
    with_weights,
    zero_masked,
)
from hf_capsule_mt.routing.squash import squash

# Added to sum_n C_nm before S is divided by it: 1 / 1e-30 times a vote is still finite in float32, and C below 1e-38,
# which float32 rounds to zero, adds nothing. The engine (kernels/routing.h) adds the same.
TOTAL_EPSILON = 1e-30


def dynamic_routing(
    votes: torch.Tensor,
    *,
    num_iterations: int,
    mask: torch.Tensor | None = None,
    normalize_total_input: bool = False,
    detach_routing: bool = False,
    return_weights: bool = True,
) -> RoutingOutput:
    """Route N input capsules to M output capsules by the scalar product of a vote with the capsule it votes for.

    With B = 0 at the start, each of the T iterations computes, for inputs n and outputs m,

        C_nm    = softmax_m(B_nm)
        S_m     = sum_n C_nm V_nm        (divided by sum_n C_nm if `normalize_total_input`)
        Omega_m = squash(S_m)
        B_nm   += Omega_m . V_nm         (not after the last)

    Args:
        votes: V [..., N, M, D].
        num_iterations: T, the number of weighted sums.
        mask: [..., N], True keeps an input capsule.
        normalize_total_input: equation 7 of Li et al., which makes this their simple routing. Many output capsules
            need it: at M = 512 and D = 1 the total input is a sum of a few votes times 1/512, squash squares it, and
            no routing happens.
        detach_routing: treat C as a constant in the backward pass.
        return_weights: whether to return C of every iteration; without them it is faster, and takes less memory.

    Returns:
        `RoutingOutput`: Omega [..., M, D] and T tensors C [..., N, M], in the dtype of the votes.

    Relations: one iteration is `squash` of the sum of the votes divided by M, or of their mean if normalised; one
    output capsule makes the result independent of T; votes that are equal for all outputs stay uniformly routed.
    """
    # Deviation: `normalize_total_input` divides by sum_n C_nm + 1e-30. An output whose sum is below 1e-30 gets a short
    # capsule instead of the mean of its votes; only very long votes make a sum that small.
    check_votes(votes, num_iterations, mask)
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, None], 0)  # whatever padding holds, even NaN, must not spread

    def route(votes: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return _route_dynamic(votes, mask, num_iterations, normalize_total_input, detach_routing=detach_routing)

    if return_weights:
        return with_weights(*route(votes, mask), votes)
    if is_traced(votes):
        return RoutingOutput(route(votes, mask)[0], None)
    return RoutingOutput(route_in_chunks(lambda *chunk: route(*chunk)[0], votes, mask), None)


def _route_dynamic(
    votes: torch.Tensor,
    mask: torch.Tensor | None,
    num_iterations: int,
    normalize_total_input: bool,
    detach_routing: bool,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The equations, line by line: Omega, and C of every iteration."""

    def squashed(weighted_sum: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Sum of C V [..., 1, M, D] and C [..., N, 1 or M] -> Omega [..., 1, M, D]."""
        if normalize_total_input:
            weighted_sum = weighted_sum / (weight.sum(dim=-2, keepdim=True).unsqueeze(-1) + TOTAL_EPSILON)
        return squash(weighted_sum)

    values = votes.to(iteration_dtype(votes))  # [..., N, M, D]
    # the first C is the same for all outputs, and its sum takes no product; masked votes are zero
    assignments = [zero_masked(values.new_full((*values.shape[:-2], 1), 1 / values.shape[-2]), mask)]  # [..., N, 1]
    capsules = squashed(values.sum(dim=-3, keepdim=True) / values.shape[-2], assignments[0])
    comparison = capsules  # the sum of all Omega so far: B = (sum of Omega) . V
    for iteration in range(1, num_iterations):
        if iteration > 1:
            comparison = comparison + capsules
        assignments.append(zero_masked(sum_width(comparison * values).softmax(dim=-1), mask))  # [..., N, M]
        weight = assignments[-1].detach() if detach_routing else assignments[-1]
        capsules = squashed((weight.unsqueeze(-1) * values).sum(dim=-3, keepdim=True), weight)
    return capsules.squeeze(-3).to(votes.dtype), assignments
