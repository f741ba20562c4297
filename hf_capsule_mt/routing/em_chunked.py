"""EM routing a few positions at a time, with its backward pass written by hand: the fast form of `em_routing_plain`.

Legend: P positions of a chunk, N input capsules, M output capsules, D width of an output capsule. The names are those
of the plain form; `grad_x` is the derivative of the loss by x.
"""

import math
from typing import Any, NamedTuple

import torch

from hf_capsule_mt.routing.chunks import chunk_slices, chunk_values, flatten_positions, shares_, sum_width
from hf_capsule_mt.routing.common import log_activation

ENTROPY_CONSTANT = 1 + math.log(2 * math.pi)


def em_routing_chunked(
    votes: torch.Tensor,
    mask: torch.Tensor | None,
    input_activation: torch.Tensor | None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    lambdas: tuple[float, ...],
    min_variance: float,
) -> torch.Tensor:
    """The output capsules [..., M, D] of `em_routing_plain`, for the same arguments."""
    capsules = _EMRouting.apply(
        flatten_positions(votes, 3),
        flatten_positions(mask, 1),
        flatten_positions(input_activation, 2),
        beta_a,
        beta_u,
        lambdas,
        min_variance,
    )
    return capsules.view(*votes.shape[:-3], *votes.shape[-2:])


class _EMStep(NamedTuple):
    """One iteration, as the backward pass needs it."""

    log_assignment: torch.Tensor | None  # log C [P, N, M], None in the first iteration, where it is -log M
    share: torch.Tensor  # R / sum_n R [P, N, M]
    total_mass: torch.Tensor  # sum_n R [P, M]
    mean: torch.Tensor  # mu [P, M, D]
    variance: torch.Tensor  # sigma [P, M, D]
    half_entropy: torch.Tensor  # cost / sum_n R [P, M]
    log_output_activation: torch.Tensor  # log a [P, M]


def _route_em(
    values: torch.Tensor,
    keep: torch.Tensor | None,
    activation: torch.Tensor | None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    lambdas: tuple[float, ...],
    min_variance: float,
) -> list[_EMStep]:
    """The iterations over one chunk of votes [P, N, M, D], with the logarithm [P, N, M] of the input activation."""
    num_outputs = values.shape[-2]
    steps: list[_EMStep] = []
    log_assignment = None
    for iteration, inverse_temperature in enumerate(lambdas):
        if log_assignment is None:
            log_mass = values.new_full(values.shape[:-1], -math.log(num_outputs))
        else:
            log_mass = log_assignment.clone()
        if activation is not None:
            log_mass += activation
        share, total_mass = shares_(log_mass, keep)
        mean = (share.unsqueeze(-1) * values).sum(dim=1)  # [P, M, D]
        squared_distance = (values - mean.unsqueeze(1)).square_()  # [P, N, M, D]
        variance = (share.unsqueeze(-1) * squared_distance).sum(dim=1).add_(min_variance)  # [P, M, D]
        log_variance = variance.log().sum(dim=-1)  # [P, M]
        half_entropy = (log_variance + values.shape[-1] * ENTROPY_CONSTANT).mul_(0.5)
        log_output_activation = torch.nn.functional.logsigmoid(
            inverse_temperature * (beta_a - (beta_u + half_entropy) * total_mass)
        )  # [P, M]
        steps.append(_EMStep(log_assignment, share, total_mass, mean, variance, half_entropy, log_output_activation))
        if iteration < len(lambdas) - 1:
            distance = sum_width(squared_distance.div_(variance.unsqueeze(1)))  # [P, N, M]
            # the constant part of the log density is the same for every output and cancels in the softmax
            offset = log_output_activation - 0.5 * log_variance
            log_assignment = distance.mul_(-0.5).add_(offset.unsqueeze(1)).log_softmax(dim=-1)
    return steps


class _EMRouting(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        votes: torch.Tensor,
        mask: torch.Tensor | None,
        input_activation: torch.Tensor | None,
        beta_a: torch.Tensor,
        beta_u: torch.Tensor,
        lambdas: tuple[float, ...],
        min_variance: float,
    ) -> torch.Tensor:
        ctx.save_for_backward(votes, mask, input_activation, beta_a, beta_u)
        ctx.settings = (lambdas, min_variance)
        capsules = votes.new_empty(votes.shape[0], *votes.shape[2:])
        for rows in chunk_slices(votes):
            values, keep = chunk_values(rows, votes, mask)
            activation = None if input_activation is None else log_activation(input_activation[rows], values)
            last = _route_em(values, keep, activation, beta_a, beta_u, lambdas, min_variance)[-1]
            capsules[rows] = last.log_output_activation.exp().unsqueeze(-1) * last.mean
        return capsules

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_capsules: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        votes, mask, input_activation, beta_a, beta_u = ctx.saved_tensors
        lambdas, min_variance = ctx.settings
        grad_votes = torch.empty_like(votes)
        grad_activation = None if input_activation is None else torch.empty_like(input_activation)
        grad_beta_a, grad_beta_u = torch.zeros_like(beta_a), torch.zeros_like(beta_u)
        for rows in chunk_slices(votes):
            values, keep = chunk_values(rows, votes, mask)
            activation = None if input_activation is None else log_activation(input_activation[rows], values)
            steps = _route_em(values, keep, activation, beta_a, beta_u, lambdas, min_variance)
            grads = _em_backward(values, steps, beta_u, lambdas, grad_capsules[rows].to(values.dtype))
            grad_votes[rows] = grads[0]
            if grad_activation is not None and activation is not None:
                grad_activation[rows] = grads[1].div_(activation.exp_())
            grad_beta_a += grads[2]
            grad_beta_u += grads[3]
        return grad_votes, None, grad_activation, grad_beta_a, grad_beta_u, None, None


def _em_backward(
    values: torch.Tensor,
    steps: list[_EMStep],
    beta_u: torch.Tensor,
    lambdas: tuple[float, ...],
    grad_capsules: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients by the votes [P, N, M, D], the log activation [P, N, M], beta_a [M] and beta_u [M]."""
    last = steps[-1]
    activation = last.log_output_activation.exp().unsqueeze(-1)  # [P, M, 1]
    grad_mean = grad_capsules * activation  # [P, M, D]
    grad_log_output_activation = (grad_mean * last.mean).sum(dim=-1)  # [P, M]
    grad_values = torch.zeros_like(values)
    grad_log_activation = values.new_zeros(values.shape[:-1])
    grad_beta_a, grad_beta_u = torch.zeros_like(beta_u), torch.zeros_like(beta_u)
    grad_score = None  # by the logits of the next iteration's C [P, N, M]
    for step, inverse_temperature in zip(reversed(steps), reversed(lambdas), strict=True):
        offset = values - step.mean.unsqueeze(1)  # V - mu [P, N, M, D]
        grad_variance = torch.zeros_like(step.variance)  # [P, M, D]

        # E-step
        if grad_score is not None:
            pull = offset / step.variance.unsqueeze(1)
            weighted = pull * grad_score.unsqueeze(-1)  # [P, N, M, D]
            total_score = grad_score.sum(dim=1)  # [P, M]
            grad_values -= weighted
            grad_mean = weighted.sum(dim=1)
            grad_variance += 0.5 * ((weighted.mul_(pull)).sum(dim=1) - total_score.unsqueeze(-1) / step.variance)
            grad_log_output_activation = total_score

        # the output activation
        grad_gate = (
            grad_log_output_activation * inverse_temperature * -torch.expm1(step.log_output_activation)
        )  # [P, M]
        gated_mass = grad_gate * step.total_mass
        grad_beta_a += grad_gate.sum(dim=0)
        grad_beta_u -= gated_mass.sum(dim=0)
        grad_variance -= 0.5 * gated_mass.unsqueeze(-1) / step.variance
        grad_log_total_mass = -gated_mass * (beta_u + step.half_entropy)  # [P, M]

        # M-step
        spread = offset * grad_variance.unsqueeze(1)  # [P, N, M, D]
        shift = spread + grad_mean.unsqueeze(1)
        grad_share = sum_width(offset.mul_(shift))  # [P, N, M]
        grad_values.addcmul_(step.share.unsqueeze(-1), shift.add_(spread))
        common = grad_log_total_mass - (step.share * grad_share).sum(dim=1)  # [P, M]
        grad_log_mass = grad_share.add_(common.unsqueeze(1)).mul_(step.share)  # [P, N, M]
        grad_log_activation += grad_log_mass
        if step.log_assignment is not None:
            total = grad_log_mass.sum(dim=-1, keepdim=True)
            grad_score = grad_log_mass.addcmul_(step.log_assignment.exp(), total, value=-1)
    return grad_values, grad_log_activation, grad_beta_a, grad_beta_u
