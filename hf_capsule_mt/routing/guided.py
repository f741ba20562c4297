"""Guided dynamic routing (Zheng et al. 2019): the decoder state guides which source words go to which capsule."""

from typing import NamedTuple

import torch
from torch.nn.functional import linear

from hf_capsule_mt.routing.additive import additive_scores
from hf_capsule_mt.routing.common import (
    RoutingOutput,
    check_num_iterations,
    check_shape,
    check_votes,
    iteration_dtype,
    without_autocast,
)
from hf_capsule_mt.routing.squash import squash


class GuidedScorer(NamedTuple):
    """The weights of the scores: W_z [D, d], W_v [D, D], W_o [D, D] and w [D]."""

    query_weight: torch.Tensor
    vote_weight: torch.Tensor
    capsule_weight: torch.Tensor
    score_weight: torch.Tensor


class GuidedVotes(NamedTuple):
    """The votes, shared by all queries, with the output capsules in front: weighted sums are then matrix products.

    votes: V [..., M, N, D], zero where the mask is False.
    projected: W_v V [..., M, N, D].
    """

    votes: torch.Tensor
    projected: torch.Tensor


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
    return_weights: bool = True,
) -> RoutingOutput:
    """Route N input capsules (source words) to M output capsules, anew for each of T queries (decoder states).

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
        return_weights: whether to return C of every iteration.

    Returns:
        `RoutingOutput`: Omega [..., T, M, D] and, for each iteration, C [..., T, N, M], in the dtype of the votes.

    Relations: with w = 0, or one iteration, C is uniform and the query has no influence. `project_votes` and then
    `route_guided_votes` for each query give the same: a decoder does that, and projects once per sentence.
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
    scorer = GuidedScorer(query_weight, vote_weight, capsule_weight, score_weight)
    prepared = project_votes(votes.transpose(-2, -3).contiguous(), vote_weight, mask)
    return route_guided_votes(
        prepared, query, scorer, num_iterations=num_iterations, mask=mask, return_weights=return_weights
    )


def project_votes(
    votes: torch.Tensor, vote_weight: torch.Tensor | None, mask: torch.Tensor | None = None
) -> GuidedVotes:
    """Mask votes V [..., M, N, D] by [..., N] and project them by W_v; without W_v, which one iteration does not need,
    return the votes in its place."""
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, :, None], 0)  # whatever padding holds, even NaN, must not spread
    if vote_weight is None:
        return GuidedVotes(votes, votes)
    dtype = iteration_dtype(votes)
    with without_autocast(votes):
        return GuidedVotes(votes, linear(votes.to(dtype), vote_weight.to(dtype)))


def route_guided_votes(
    prepared: GuidedVotes,
    query: torch.Tensor,
    scorer: GuidedScorer | None,
    *,
    num_iterations: int,
    mask: torch.Tensor | None = None,
    return_weights: bool = True,
) -> RoutingOutput:
    """Route votes that `project_votes` prepared with the same mask [..., N], as `guided_routing` does.

    Args:
        prepared: V and W_v V, each [..., M, N, D].
        query: z [..., T, d].
        scorer: `None` for a single iteration, which scores nothing.
    """
    votes = prepared.votes
    check_num_iterations(num_iterations)
    if scorer is None and num_iterations > 1:
        raise ValueError(f"`scorer` must be given for `num_iterations` {num_iterations}, got None")
    dtype = iteration_dtype(votes)
    with without_autocast(votes):
        capsules, weights = _route_guided(
            GuidedVotes(*(tensor.to(dtype) for tensor in prepared)),
            query.to(dtype),
            None if scorer is None else GuidedScorer(*(weight.to(dtype) for weight in scorer)),
            num_iterations,
            mask,
        )
    if not return_weights:
        return RoutingOutput(capsules.to(votes.dtype), None)
    # [..., T, M, N] -> [..., T, N, M]
    return RoutingOutput(
        capsules.to(votes.dtype), tuple(assignment.transpose(-2, -1).to(votes.dtype) for assignment in weights)
    )


def _route_guided(
    prepared: GuidedVotes,
    query: torch.Tensor,
    scorer: GuidedScorer | None,
    num_iterations: int,
    mask: torch.Tensor | None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The equations, with the queries behind the output capsules, so that weighted sums are matrix products.

    The first iteration does not depend on the query and is computed once for all of them. The tensors of
    [..., M, T, N, D] inside the scores exist a slice at a time: see `additive_scores`. A training step holds about
    12 M D numbers for each word of the batch, whatever the length of its sentence, and the assignments [..., T, M, N].
    """
    votes, projected = prepared  # [..., M, N, D]
    num_outputs, num_inputs = votes.shape[-3:-1]
    uniform = votes.new_full((*query.shape[:-1], num_outputs, num_inputs), 1 / num_outputs)  # [..., T, M, N]
    weights = [uniform if mask is None else uniform * mask[..., None, None, :]]
    capsules = squash(votes.sum(dim=-2, keepdim=True) / num_outputs)  # [..., M, 1, D], as masked votes are zero
    if scorer is not None:
        projected_query = linear(query, scorer.query_weight).unsqueeze(-3)  # [..., 1, T, D]
        logits = None
        for _ in range(num_iterations - 1):
            guide = projected_query + linear(capsules, scorer.capsule_weight)  # [..., M, T, D]
            scores = additive_scores(guide, projected, scorer.score_weight)  # [..., M, T, N]
            logits = scores if logits is None else logits + scores
            assignment = logits.softmax(dim=-3)
            if mask is not None:
                assignment = assignment * mask[..., None, None, :]
            weights.append(assignment.transpose(-2, -3))
            capsules = squash(torch.matmul(assignment, votes))  # [..., M, T, D]
    capsules = capsules.expand(*votes.shape[:-2], query.shape[-2], votes.shape[-1])
    return capsules.transpose(-2, -3), weights  # [..., T, M, D]
