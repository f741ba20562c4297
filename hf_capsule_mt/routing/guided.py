"""Guided dynamic routing (Zheng et al. 2019): the decoder state guides which source words go to which capsule."""

import torch
from torch.nn.functional import linear

from hf_capsule_mt.routing.additive import additive_scores
from hf_capsule_mt.routing.common import RoutingOutput, check_shape, check_votes, iteration_dtype, without_autocast
from hf_capsule_mt.routing.forms import RoutingForm, choose_form
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
    projected_votes: torch.Tensor | None = None,
    return_weights: bool = True,
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
        projected_votes: W_v V [..., N, M, D], if `project_votes` has computed it before; then the votes must be those
            that it returned, which are zero where the mask is False.
        return_weights: whether to return C of every iteration.

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
    check_shape("capsule_weight", capsule_weight, torch.Size([width, width]), votes)
    check_shape("score_weight", score_weight, torch.Size([width]), votes)
    if projected_votes is None:
        votes, projected_votes = project_votes(votes, vote_weight, mask)
    else:
        check_shape("projected_votes", projected_votes, votes.shape, votes)
    dtype = iteration_dtype(votes)
    with without_autocast(votes):
        form = choose_form(votes, return_weights=False, detach_routing=False)
        route = guided_routing_plain if form is RoutingForm.PLAIN else guided_routing_chunked
        capsules, weights = route(
            votes.to(dtype),
            projected_votes.to(dtype),
            linear(query.to(dtype), query_weight.to(dtype)),
            capsule_weight.to(dtype),
            score_weight.to(dtype),
            num_iterations,
            mask,
        )
    if not return_weights:
        return RoutingOutput(capsules.to(votes.dtype), None)
    return RoutingOutput(capsules.to(votes.dtype), tuple(assignment.to(votes.dtype) for assignment in weights))


def project_votes(
    votes: torch.Tensor, vote_weight: torch.Tensor, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """V [..., N, M, D], zero where the mask [..., N] is False, and W_v V: what is the same for all queries."""
    check_shape("vote_weight", vote_weight, torch.Size([votes.shape[-1]] * 2), votes)
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, None], 0)  # whatever padding holds, even NaN, must not spread
    dtype = iteration_dtype(votes)
    with without_autocast(votes):
        return votes, linear(votes.to(dtype), vote_weight.to(dtype))


def guided_routing_plain(
    votes: torch.Tensor,
    projected_votes: torch.Tensor,
    projected_query: torch.Tensor,
    capsule_weight: torch.Tensor,
    score_weight: torch.Tensor,
    num_iterations: int,
    mask: torch.Tensor | None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The reference form: the equations, line by line. It holds tensors of [..., T, N, M, D]."""
    votes, projected_votes = votes.unsqueeze(-4), projected_votes.unsqueeze(-4)  # [..., 1, N, M, D]
    from_query = projected_query[..., None, None, :]  # [..., T, 1, 1, D]
    keep = 1.0 if mask is None else mask[..., None, :, None]  # [..., 1, N, 1]
    logits = votes.new_zeros(*projected_query.shape[:-1], *votes.shape[-3:-1])  # [..., T, N, M]
    weights = []
    for iteration in range(num_iterations):
        assignment = logits.softmax(dim=-1) * keep
        weights.append(assignment)
        capsules = squash((assignment.unsqueeze(-1) * votes).sum(dim=-3))  # [..., T, M, D]
        if iteration < num_iterations - 1:
            from_capsules = linear(capsules, capsule_weight).unsqueeze(-3)  # [..., T, 1, M, D]
            scores = torch.tanh(from_query + projected_votes + from_capsules)  # [..., T, N, M, D]
            logits = logits + torch.matmul(scores, score_weight)
    return capsules, weights


def guided_routing_chunked(
    votes: torch.Tensor,
    projected_votes: torch.Tensor,
    projected_query: torch.Tensor,
    capsule_weight: torch.Tensor,
    score_weight: torch.Tensor,
    num_iterations: int,
    mask: torch.Tensor | None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The same arithmetic with the output capsules in front, so that weighted sums are matrix products.

    The first iteration does not depend on the query and is computed once for all of them. The tensors of
    [..., T, N, M, D] inside the scores exist a slice at a time: see `additive_scores`. A training step holds about
    12 M D numbers for each word of the batch, whatever the length of its sentence, and the assignments [..., T, N, M].
    """
    votes = votes.transpose(-2, -3).contiguous()  # [..., M, N, D]
    projected_votes = projected_votes.transpose(-2, -3).contiguous()
    num_outputs, num_inputs = votes.shape[-3:-1]
    uniform = votes.new_full((*projected_query.shape[:-1], num_inputs, num_outputs), 1 / num_outputs)  # [..., T, N, M]
    weights = [uniform if mask is None else uniform * mask[..., None, :, None]]
    capsules = squash(votes.sum(dim=-2, keepdim=True) / num_outputs)  # [..., M, 1, D], as masked votes are zero
    logits = None
    for _ in range(num_iterations - 1):
        guide = projected_query.unsqueeze(-3) + linear(capsules, capsule_weight)  # [..., M, T, D]
        scores = additive_scores(guide, projected_votes, score_weight)  # [..., M, T, N]
        logits = scores if logits is None else logits + scores
        assignment = logits.softmax(dim=-3)
        if mask is not None:
            assignment = assignment * mask[..., None, None, :]
        weights.append(assignment.movedim(-3, -1))
        capsules = squash(torch.matmul(assignment, votes))  # [..., M, T, D]
    capsules = capsules.expand(*votes.shape[:-2], projected_query.shape[-2], votes.shape[-1])
    return capsules.transpose(-2, -3), weights
