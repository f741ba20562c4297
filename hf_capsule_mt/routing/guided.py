"""Guided dynamic routing (Zheng et al. 2019): the decoder state guides which source words go to which capsule."""

import math
from typing import Literal, NamedTuple, get_args

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

GuidedScore = Literal["printed", "released"]
SCORES = get_args(GuidedScore)


class GuidedScorer(NamedTuple):
    """The weights that compute scores: W_z [D, d], W_v [D, D], W_o [D, D] and w [D]."""

    query_weight: torch.Tensor
    vote_weight: torch.Tensor
    capsule_weight: torch.Tensor
    score_weight: torch.Tensor


class GuidedVotes(NamedTuple):
    """Votes that all queries share. M comes before N, so that weighted sums over N are matrix products.

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
    score: GuidedScore = "printed",
    mask: torch.Tensor | None = None,
    return_weights: bool = True,
) -> RoutingOutput:
    """Route N input capsules (source words) to M output capsules, anew for each of T queries (decoder states).

    With B = 0 at the start, each of the iterations computes, for query t, inputs n and outputs m,

        C_tnm    = softmax_m(B_tnm)
        Omega_tm = squash(sum_n C_tnm V_nm)
        s_tnm    = w . tanh(W_b [z_t; V_nm; Omega_tm])
        B_tnm   += s_tnm, or tanh(s_tnm) / sqrt(D) if `score` is "released"       (not after the last)

    where W_b [z; V; Omega] = W_z z + W_v V + W_o Omega, so votes are projected only once for all queries.

    Args:
        votes: V [..., N, M, D], the same for all queries.
        query: z [..., T, d].
        query_weight, vote_weight, capsule_weight: W_z [D, d], W_v [D, D] and W_o [D, D].
        score_weight: w [D].
        num_iterations: the number of weighted sums.
        score: "printed", equation 7 of the paper, or "released", the score of its authors' code.
        mask: [..., N], True keeps an input capsule.
        return_weights: whether to return C of every iteration.

    Returns:
        `RoutingOutput`: Omega [..., T, M, D] and, for each iteration, C [..., T, N, M], in the dtype of the votes.

    Relations: with w = 0, or one iteration, C is uniform and the query has no influence. A decoder gets the same
    with one `project_votes` per sentence and a `route_guided_votes` per step. "released" is the loop of
    zhengzx-nlp/dynamic-nmt with its biases at zero (`tests/authors`). Each of its updates moves a logit by at most
    1 / sqrt(D), so C stays near uniform at the widths of the paper.
    """
    # Deviation: the released loop gives padded words C = 1/M in every iteration. With "released", too, a masked word
    # takes no part here: otherwise a translation would depend on its batch.
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
    guided_votes = project_votes(votes.transpose(-2, -3).contiguous(), vote_weight, mask)
    return route_guided_votes(
        guided_votes,
        query,
        scorer,
        num_iterations=num_iterations,
        score=score,
        mask=mask,
        return_weights=return_weights,
    )


def project_votes(
    votes: torch.Tensor, vote_weight: torch.Tensor | None, mask: torch.Tensor | None = None
) -> GuidedVotes:
    """Set masked votes V [..., M, N, D] to zero, mask [..., N], and compute W_v V.

    A single iteration does not need W_v V: `vote_weight` may then be `None`, and `projected` is V.
    """
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, :, None], 0)  # padding may hold NaN, which times 0 would spread
    if vote_weight is None:
        return GuidedVotes(votes, votes)
    dtype = iteration_dtype(votes)
    with without_autocast(votes):
        return GuidedVotes(votes, linear(votes.to(dtype), vote_weight.to(dtype)))


def route_guided_votes(
    guided_votes: GuidedVotes,
    query: torch.Tensor,
    scorer: GuidedScorer | None,
    *,
    num_iterations: int,
    score: GuidedScore = "printed",
    mask: torch.Tensor | None = None,
    return_weights: bool = True,
) -> RoutingOutput:
    """Route the votes of `project_votes`, called with the same mask [..., N], for T queries: see `guided_routing`.

    Args:
        guided_votes: V and W_v V, each [..., M, N, D].
        query: z [..., T, d].
        scorer: may be `None` for a single iteration, which does not compute scores.
        score: "printed" or "released".
    """
    votes = guided_votes.votes
    check_num_iterations(num_iterations)
    if score not in SCORES:
        raise ValueError(f"`score` must be one of {', '.join(SCORES)}, got {score!r}")
    if scorer is None and num_iterations > 1:
        raise ValueError(f"`scorer` must be given for `num_iterations` {num_iterations}, got None")
    dtype = iteration_dtype(votes)
    with without_autocast(votes):
        capsules, weights = _route_guided(
            GuidedVotes(*(tensor.to(dtype) for tensor in guided_votes)),
            query.to(dtype),
            None if scorer is None else GuidedScorer(*(weight.to(dtype) for weight in scorer)),
            num_iterations,
            score,
            mask,
        )
    if not return_weights:
        return RoutingOutput(capsules.to(votes.dtype), None)
    # [..., T, M, N] -> [..., T, N, M]
    return RoutingOutput(
        capsules.to(votes.dtype), tuple(assignment.transpose(-2, -1).to(votes.dtype) for assignment in weights)
    )


def _route_guided(
    guided_votes: GuidedVotes,
    query: torch.Tensor,
    scorer: GuidedScorer | None,
    num_iterations: int,
    score: GuidedScore,
    mask: torch.Tensor | None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Compute the equations of `guided_routing`, with M before T in all tensors.

    The first iteration does not depend on the query and is computed once for all of them. Scores need
    tensors [..., M, T, N, D], of which `additive_scores` computes a slice at a time. A training step stores the
    assignments [..., T, M, N], and about 12 M D numbers for each word of the batch, for sentences of any length.
    """
    votes, projected = guided_votes  # [..., M, N, D]
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
            if score == "released":
                scores = scores.tanh() / math.sqrt(votes.shape[-1])
            logits = scores if logits is None else logits + scores
            assignment = logits.softmax(dim=-3)
            if mask is not None:
                assignment = assignment * mask[..., None, None, :]
            weights.append(assignment.transpose(-2, -3))
            capsules = squash(torch.matmul(assignment, votes))  # [..., M, T, D]
    capsules = capsules.expand(*votes.shape[:-2], query.shape[-2], votes.shape[-1])
    return capsules.transpose(-2, -3), weights  # [..., T, M, D]
