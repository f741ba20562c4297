"""Dynamic routing (Sabour et al. 2017; algorithm 1 of Dou et al. 2019), and the simple routing of Li et al. 2019."""

import torch

from hf_capsule_mt.routing.chunks import route_in_chunks
from hf_capsule_mt.routing.common import (
    RoutingOutput,
    check_votes,
    exp,
    is_traced,
    iteration_dtype,
    sum_inputs,
    sum_width,
    uniform_log_assignment,
    with_weights,
    without_masked,
)
from hf_capsule_mt.routing.squash import squash


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

    Relations: one iteration is `squash` of the sum (of the mean) of the votes over M; one output capsule makes the
    result independent of T; votes that are equal for all outputs stay uniformly routed.
    """
    check_votes(votes, num_iterations, mask)
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, None], 0)  # whatever padding holds, even NaN, must not spread

    def route(votes: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return _route_dynamic(votes, mask, num_iterations, normalize_total_input, detach=detach_routing)

    if return_weights or is_traced(votes):
        return with_weights(*route(votes, mask), votes, mask)
    return RoutingOutput(route_in_chunks(lambda *chunk: route(*chunk)[0], votes, mask), None)


def _route_dynamic(
    votes: torch.Tensor, mask: torch.Tensor | None, num_iterations: int, normalize_total_input: bool, *, detach: bool
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The equations, line by line: Omega, and log C of every iteration."""
    values = votes.to(iteration_dtype(votes))  # [..., N, M, D]
    log_assignments = [uniform_log_assignment(values)]  # [..., N, 1], then [..., N, M]
    comparison = values.new_zeros(())  # the sum of all Omega so far: B = (sum of Omega) . V
    for iteration in range(num_iterations):
        log_assignment = log_assignments[-1].detach() if detach else log_assignments[-1]
        if iteration == 0 and mask is None:  # a share that is the same for all takes no pass over the votes
            num_inputs, num_outputs = values.shape[-3:-1]
            total_input = sum_inputs(None, values) / (num_inputs if normalize_total_input else num_outputs)
        elif normalize_total_input:  # as a softmax over the inputs: exact, without dividing by a tiny sum
            total_input = sum_inputs(without_masked(log_assignment, mask).softmax(dim=-2), values)
        else:
            total_input = sum_inputs(exp(log_assignment), values)
        capsules = squash(total_input)  # [..., M, D]
        if iteration < num_iterations - 1:
            comparison = comparison + capsules
            logits = sum_width(comparison.unsqueeze(-3) * values)  # [..., N, M]
            log_assignments.append(logits.log_softmax(dim=-1))
    return capsules.to(votes.dtype), log_assignments
