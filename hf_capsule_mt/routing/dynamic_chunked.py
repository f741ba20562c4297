"""Dynamic routing a few positions at a time, with its backward pass written by hand: the fast form of
`dynamic_routing_plain`.

Legend: P positions of a chunk, N input capsules, M output capsules, D width of an output capsule. The names are those
of the plain form; `grad_x` is the derivative of the loss by x.
"""

from typing import Any, NamedTuple

import torch

from hf_capsule_mt.routing.chunks import (
    chunk_slices,
    chunk_values,
    flatten_positions,
    sum_width,
    times_weight,
    weighted_sum,
)
from hf_capsule_mt.routing.squash import squash, squash_backward


def dynamic_routing_chunked(
    votes: torch.Tensor, mask: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
) -> torch.Tensor:
    """Return the output capsules [..., M, D] of `dynamic_routing_plain` for the same arguments."""
    capsules = _DynamicRouting.apply(
        flatten_positions(votes, 3), flatten_positions(mask, 1), num_iterations, normalize_total_input
    )
    return capsules.view(*votes.shape[:-3], *votes.shape[-2:])


class _DynamicStep(NamedTuple):
    """One iteration, as the backward pass needs it."""

    log_assignment: torch.Tensor | None  # log C [P, N, M], None in the first iteration, where it is constant
    weight: torch.Tensor | None  # what multiplies the votes [P, N, M]; None where it is the same for all inputs
    scale: float  # and what multiplies it
    total_input: torch.Tensor  # S [P, M, D]
    capsules: torch.Tensor  # Omega [P, M, D]


def _route_dynamic(
    values: torch.Tensor, keep: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
) -> list[_DynamicStep]:
    """Run the iterations over one chunk of votes [P, N, M, D]."""
    num_inputs, num_outputs = values.shape[1:3]
    steps: list[_DynamicStep] = []
    logits = None  # B [P, N, M]
    for iteration in range(num_iterations):
        log_assignment, weight, scale = None, None, 1.0
        if logits is None and keep is None:
            scale = 1 / num_inputs if normalize_total_input else 1 / num_outputs
        else:
            if logits is None:
                logits = values.new_zeros(values.shape[:-1])
            log_assignment = logits.log_softmax(dim=-1)
            if normalize_total_input:
                weight = _shares(log_assignment, keep)
            else:
                weight = log_assignment.exp()
                if keep is not None:
                    weight.mul_(keep)
        total_input = weighted_sum(weight, values) * scale  # [P, M, D]
        capsules = squash(total_input)
        steps.append(_DynamicStep(log_assignment, weight, scale, total_input, capsules))
        if iteration < num_iterations - 1:
            agreement = sum_width(values * capsules.unsqueeze(1))  # [P, N, M]
            logits = agreement if logits is None else logits + agreement
    return steps


def _shares(log_assignment: torch.Tensor, keep: torch.Tensor | None) -> torch.Tensor:
    """Return C / sum_n C [P, N, M] without dividing by a tiny sum."""
    if keep is None:
        return log_assignment.softmax(dim=1)
    lowest = torch.finfo(log_assignment.dtype).min
    return log_assignment.masked_fill(~keep, lowest).softmax(dim=1).mul_(keep)


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
            capsules[rows] = _dynamic_forward(values, keep, num_iterations, normalize_total_input)
        return capsules

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_capsules: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        votes, mask = ctx.saved_tensors
        grad_votes = torch.empty_like(votes)
        for rows in chunk_slices(votes):
            values, keep = chunk_values(rows, votes, mask)
            grad_votes[rows] = _dynamic_backward(grad_capsules[rows].to(values.dtype), values, keep, *ctx.settings)
        return grad_votes, None, None, None


def _dynamic_forward(
    values: torch.Tensor, keep: torch.Tensor | None, num_iterations: int, normalize_total_input: bool
) -> torch.Tensor:
    """Return the output capsules [P, M, D] of one chunk."""
    return _route_dynamic(values, keep, num_iterations, normalize_total_input)[-1].capsules


def _dynamic_backward(
    grad_capsules: torch.Tensor,
    values: torch.Tensor,
    keep: torch.Tensor | None,
    num_iterations: int,
    normalize_total_input: bool,
) -> torch.Tensor:
    """Return the gradient by the votes [P, N, M, D] of one chunk."""
    steps = _route_dynamic(values, keep, num_iterations, normalize_total_input)
    grad_values = torch.zeros_like(values)
    grad_logits = None  # by the logits B of the following iteration [P, N, M]
    for step in reversed(steps):
        # B of the following iteration = B + Omega . V
        if grad_logits is not None:
            grad_capsules = weighted_sum(grad_logits, values)  # [P, M, D]
            grad_values.addcmul_(grad_logits.unsqueeze(-1), step.capsules.unsqueeze(1))

        # Omega = squash(scale sum_n weight V)
        grad_total_input = squash_backward(step.total_input, grad_capsules).unsqueeze(1) * step.scale  # [P, 1, M, D]
        grad_values.add_(times_weight(step.weight, grad_total_input))
        if step is steps[0] or step.weight is None or step.log_assignment is None:
            break  # the logits of the first iteration are constant
        grad_weight = sum_width(values * grad_total_input)  # [P, N, M]

        # weight = softmax_n(log C), or C
        if normalize_total_input:
            grad_weight -= (step.weight * grad_weight).sum(dim=1, keepdim=True)
        grad_log_assignment = grad_weight.mul_(step.weight)

        # log C = log_softmax_m(B)
        total = grad_log_assignment.sum(dim=-1, keepdim=True)
        through_assignment = grad_log_assignment.addcmul_(step.log_assignment.exp(), total, value=-1)
        grad_logits = through_assignment if grad_logits is None else grad_logits.add_(through_assignment)
    return grad_values
