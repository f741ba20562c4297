"""Dynamic routing a few positions at a time, with its backward pass written by hand: the fast form of
`dynamic_routing_plain`.

Legend: P positions of a chunk, N input capsules, M output capsules, D width of an output capsule. The names are those
of the plain form; `grad_x` is the derivative of the loss by x.
"""

from typing import Any, NamedTuple

import torch

from hf_capsule_mt.routing.chunks import chunk_slices, chunk_values, flatten_positions, shares_, sum_width
from hf_capsule_mt.routing.squash import squash, squash_backward


def dynamic_routing_chunked(
    votes: torch.Tensor, mask: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
) -> torch.Tensor:
    """The output capsules [..., M, D] of `dynamic_routing_plain`, for the same arguments."""
    capsules = _DynamicRouting.apply(
        flatten_positions(votes, 3), flatten_positions(mask, 1), num_iterations, normalize_total_input
    )
    return capsules.view(*votes.shape[:-3], *votes.shape[-2:])


class _DynamicStep(NamedTuple):
    """One iteration, as the backward pass needs it."""

    log_assignment: torch.Tensor  # log C [P, N, M]
    share: torch.Tensor  # what multiplies the votes [P, N, M]
    total_input: torch.Tensor  # S [P, M, D]
    capsules: torch.Tensor  # Omega [P, M, D]


def _route_dynamic(
    values: torch.Tensor, keep: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
) -> list[_DynamicStep]:
    """The iterations over one chunk of votes [P, N, M, D]."""
    steps: list[_DynamicStep] = []
    logits = values.new_zeros(values.shape[:-1])  # B [P, N, M]
    for iteration in range(num_iterations):
        log_assignment = logits.log_softmax(dim=-1)
        if normalize_total_input:
            share, _ = shares_(log_assignment.clone(), keep)
        else:
            share = log_assignment.exp()
            if keep is not None:
                share.mul_(keep)
        total_input = (share.unsqueeze(-1) * values).sum(dim=1)  # [P, M, D]
        capsules = squash(total_input)
        steps.append(_DynamicStep(log_assignment, share, total_input, capsules))
        if iteration < num_iterations - 1:
            logits = logits + sum_width(values * capsules.unsqueeze(1))
    return steps


class _DynamicRouting(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, votes: torch.Tensor, mask: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
    ) -> torch.Tensor:
        ctx.save_for_backward(votes, mask)
        ctx.settings = (num_iterations, normalize_total_input)
        capsules = votes.new_empty(votes.shape[0], *votes.shape[2:])
        for rows in chunk_slices(votes):
            values, keep = chunk_values(rows, votes, mask)
            capsules[rows] = _route_dynamic(values, keep, num_iterations, normalize_total_input)[-1].capsules
        return capsules

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_capsules: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        votes, mask = ctx.saved_tensors
        grad_votes = torch.empty_like(votes)
        for rows in chunk_slices(votes):
            values, keep = chunk_values(rows, votes, mask)
            steps = _route_dynamic(values, keep, *ctx.settings)
            grad_votes[rows] = _dynamic_backward(
                values, keep, steps, grad_capsules[rows].to(values.dtype), normalized=ctx.settings[1]
            )
        return grad_votes, None, None, None


def _dynamic_backward(
    values: torch.Tensor,
    keep: torch.Tensor | None,
    steps: list[_DynamicStep],
    grad_capsules: torch.Tensor,
    normalized: bool,
) -> torch.Tensor:
    """The gradient by the votes [P, N, M, D] of one chunk."""
    grad_values = torch.zeros_like(values)
    grad_logits = None  # by the logits B of the following iteration [P, N, M]
    for step in reversed(steps):
        # B of the following iteration = B + Omega . V
        if grad_logits is not None:
            grad_capsules = (grad_logits.unsqueeze(-1) * values).sum(dim=1)  # [P, M, D]
            grad_values.addcmul_(grad_logits.unsqueeze(-1), step.capsules.unsqueeze(1))

        # Omega = squash(sum_n share V)
        grad_total_input = squash_backward(step.total_input, grad_capsules).unsqueeze(1)  # [P, 1, M, D]
        grad_values.addcmul_(step.share.unsqueeze(-1), grad_total_input)
        if step is steps[0]:
            break  # its logits are the constant 0
        grad_share = sum_width(values * grad_total_input)  # [P, N, M]

        # share = softmax_n(log C), or C
        if normalized:
            grad_share -= (step.share * grad_share).sum(dim=1, keepdim=True)
        grad_log_assignment = grad_share.mul_(step.share)

        # log C = log_softmax_m(B)
        total = grad_log_assignment.sum(dim=-1, keepdim=True)
        through_assignment = grad_log_assignment.addcmul_(step.log_assignment.exp(), total, value=-1)
        grad_logits = through_assignment if grad_logits is None else grad_logits.add_(through_assignment)
    return grad_values
