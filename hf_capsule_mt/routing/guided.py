"""Guided dynamic routing (Zheng et al. 2019): the decoder state guides which source words go to which capsule."""

import torch

from hf_capsule_mt.routing.common import RoutingOutput, check_shape, check_votes, iteration_dtype
from hf_capsule_mt.routing.squash import squash


def guided_routing(
    votes: torch.Tensor,
    query: torch.Tensor,
    *,
    query_weight: torch.Tensor,
    vote_weight: torch.Tensor,
    capsule_weight: torch.Tensor,
    score_weight: torch.Tensor,
    num_iterations: int,
    mask: torch.Tensor | None = None,
) -> RoutingOutput:
    """Routes N input capsules (source words) to M output capsules, anew for each of T queries (decoder states).

    With B = 0 at the start, each of the iterations computes, for query t, inputs n and outputs m,

        C_tnm    = softmax_m(B_tnm)
        Omega_tm = squash(sum_n C_tnm V_nm)
        B_tnm   += w . tanh(W_b [z_t; V_nm; Omega_tm])       (not after the last)

    where W_b [z; V; Omega] = W_z z + W_v V + W_o Omega, so that a vote is projected once and not once per query.

    Args:
        votes: V [..., N, M, D], the same for all queries.
        query: z [..., T, d].
        query_weight, vote_weight, capsule_weight: W_z [D, d], W_v [D, D] and W_o [D, D].
        score_weight: w [D].
        num_iterations: the number of weighted sums.
        mask: [..., N], True keeps an input capsule.

    Returns:
        `RoutingOutput`: Omega [..., T, M, D] and, for each iteration, C [..., T, N, M], in the dtype of the votes.

    Relations: with w = 0, or one iteration, C is uniform and the query has no influence.
    """
    check_votes(votes, num_iterations, mask)
    width = votes.shape[-1]
    if query.dim() != votes.dim() - 1 or query.shape[:-2] != votes.shape[:-3]:
        raise ValueError(
            f"`query` must be [..., T, d] with the leading sizes of `votes`, got {list(query.shape)} for `votes` of "
            f"shape {list(votes.shape)}"
        )
    check_shape("query_weight", query_weight, torch.Size([width, query.shape[-1]]), votes)
    check_shape("vote_weight", vote_weight, torch.Size([width, width]), votes)
    check_shape("capsule_weight", capsule_weight, torch.Size([width, width]), votes)
    check_shape("score_weight", score_weight, torch.Size([width]), votes)
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, None], 0)  # whatever padding holds, even NaN, must not spread

    dtype = iteration_dtype(votes)
    values = votes.to(dtype).unsqueeze(-4)  # [..., 1, N, M, D]
    from_query = _linear(query, query_weight, dtype)[..., None, None, :]  # [..., T, 1, 1, D]
    from_votes = _linear(votes, vote_weight, dtype).unsqueeze(-4)  # [..., 1, N, M, D]
    keep = 1.0 if mask is None else mask[..., None, :, None]  # [..., 1, N, 1]
    logits = values.new_zeros(*query.shape[:-1], *votes.shape[-3:-1])  # [..., T, N, M]
    weights = []
    for iteration in range(num_iterations):
        assignment = logits.softmax(dim=-1) * keep
        weights.append(assignment.to(votes.dtype))
        capsules = squash((assignment.unsqueeze(-1) * values).sum(dim=-3))  # [..., T, M, D]
        if iteration < num_iterations - 1:
            from_capsules = _linear(capsules, capsule_weight, dtype).unsqueeze(-3)  # [..., T, 1, M, D]
            scores = torch.tanh(from_query + from_votes + from_capsules)  # [..., T, N, M, D]
            logits = logits + torch.matmul(scores, score_weight.to(dtype))
    return RoutingOutput(capsules.to(votes.dtype), tuple(weights))


def _linear(values: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.nn.functional.linear(values.to(dtype), weight.to(dtype))
