"""EM routing a few positions at a time, with its backward pass written by hand: the fast form of `em_routing_plain`.

Legend: P positions of a chunk, N input capsules, M output capsules, D width of an output capsule. The names are those
of the plain form; `grad_x` is the derivative of the loss by x. R / sum_n R is kept as a weight [P, N, M] times a scale
[P, M, 1] or a number.
"""

import math
from typing import Any, NamedTuple

import torch

from hf_capsule_mt.routing.chunks import (
    chunk_slices,
    chunk_values,
    exponential_weights,
    flatten_positions,
    sum_width,
    times_weight,
    weighted_sum,
)

ENTROPY_CONSTANT = 1 + math.log(2 * math.pi)
# Up to this width the mass of an output capsule cannot underflow: some input is within one standard deviation per
# dimension, so its density is at worst some e^-18 of the largest, to the power of the width, for votes up to 1e6.
LARGEST_DIRECT_WIDTH = 4
LARGEST_DIRECT_WIDTH_WITH_ACTIVATION = 2  # which may be 1e-20
SMALLEST_ACTIVATION = 1e-20  # what is multiplied by 1 / A in a backward pass must not overflow


def em_routing_chunked(
    votes: torch.Tensor,
    mask: torch.Tensor | None,
    input_activation: torch.Tensor | None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    lambdas: tuple[float, ...],
    min_variance: float,
) -> torch.Tensor:
    """Return the output capsules [..., M, D] of `em_routing_plain` for the same arguments."""
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

    assignment: torch.Tensor | None  # C [P, N, M], None in the first iteration, where it is constant
    weight: torch.Tensor | None  # R / sum_n R [P, N, M], or R over its peak; None where it is the same for all inputs
    scale: torch.Tensor  # weight * scale = R / sum_n R [P, M, 1] or []
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
    """Run the iterations over one chunk of votes [P, N, M, D], with the input activation [P, N, M]."""
    steps: list[_EMStep] = []
    logits = None
    for iteration, inverse_temperature in enumerate(lambdas):
        # M-step
        assignment, weight, total_mass, scale = _weights(values, logits, keep, activation)
        mean = weighted_sum(weight, values).mul_(scale)  # [P, M, D]
        squared_distance = (values - mean.unsqueeze(1)).square_()  # [P, N, M, D]
        variance = weighted_sum(weight, squared_distance).mul_(scale).add_(min_variance)  # [P, M, D]
        log_variance = variance.log().sum(dim=-1)  # [P, M]
        half_entropy = (log_variance + values.shape[-1] * ENTROPY_CONSTANT).mul_(0.5)
        log_output_activation = torch.nn.functional.logsigmoid(
            inverse_temperature * (beta_a - (beta_u + half_entropy) * total_mass)
        )  # [P, M]
        steps.append(
            _EMStep(assignment, weight, scale, total_mass, mean, variance, half_entropy, log_output_activation)
        )

        # E-step; the constant part of the log density is the same for every output and cancels in the softmax
        if iteration < len(lambdas) - 1:
            offset = (log_output_activation - 0.5 * log_variance).unsqueeze(1)  # [P, 1, M]
            half_precision = (0.5 / variance).unsqueeze(1)  # [P, 1, M, D]
            if values.shape[-1] == 1:
                logits = torch.addcmul(
                    offset, squared_distance.squeeze(-1), half_precision.squeeze(-1), value=-1
                )  # [P, N, M]
            else:
                logits = offset - squared_distance.mul_(half_precision).sum(dim=-1)
    return steps


def _weights(
    values: torch.Tensor, logits: torch.Tensor | None, keep: torch.Tensor | None, activation: torch.Tensor | None
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """Return C from its logits [P, N, M] (None in the first iteration), the weight, the mass [P, M] and the scale."""
    num_inputs, num_outputs, width = values.shape[1:]
    if logits is None and activation is None and keep is None:
        mass = values.new_full((values.shape[0], num_outputs), num_inputs / num_outputs)
        return None, None, mass, values.new_full((), 1 / num_inputs)

    if width > (LARGEST_DIRECT_WIDTH if activation is None else LARGEST_DIRECT_WIDTH_WITH_ACTIVATION):
        if logits is None:
            log_assignment = values.new_full(values.shape[:-1], -math.log(num_outputs))
        else:
            log_assignment = logits.log_softmax(dim=-1)
        assignment = None if logits is None else log_assignment.exp()
        log_mass = log_assignment
        if activation is not None:
            log_mass = log_mass + activation.log()
        weight, total, peak = exponential_weights(log_mass, keep)
        return assignment, weight, peak.exp() * total, (1 / total).unsqueeze(-1)

    if logits is None:
        assignment, weight = None, values.new_full(values.shape[:-1], 1 / num_outputs)
    else:
        assignment = weight = logits.softmax(dim=-1)
    if activation is not None:
        weight = weight * activation
    if keep is not None:
        weight = weight * keep
    mass = weight.sum(dim=1)
    # divided, not multiplied by 1 / mass, which would leave an input that is alone at a rounding error from its mean
    share = weight / mass.clamp(min=torch.finfo(mass.dtype).tiny).unsqueeze(1)
    return assignment, share, mass, values.new_ones(())


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
            activation = _chunk_of_activation(rows, input_activation, values)
            capsules[rows] = _em_forward(values, keep, activation, beta_a, beta_u, lambdas, min_variance)
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
            activation = _chunk_of_activation(rows, input_activation, values)
            grad_chunk = grad_capsules[rows].to(values.dtype)
            grad_votes[rows], of_activation, of_beta_a, of_beta_u = _em_backward(
                grad_chunk, values, keep, activation, beta_a, beta_u, lambdas, min_variance
            )
            if grad_activation is not None and of_activation is not None:
                clamped = input_activation[rows].to(values.dtype) < SMALLEST_ACTIVATION
                grad_activation[rows] = of_activation.masked_fill_(clamped, 0)
            grad_beta_a += of_beta_a
            grad_beta_u += of_beta_u
        return grad_votes, None, grad_activation, grad_beta_a, grad_beta_u, None, None


def _chunk_of_activation(
    rows: slice, input_activation: torch.Tensor | None, values: torch.Tensor
) -> torch.Tensor | None:
    """Return the input activation [P, N, M] of one chunk, in the dtype of its values, without copying the others."""
    return None if input_activation is None else input_activation[rows].to(values.dtype).clamp(min=SMALLEST_ACTIVATION)


def _em_forward(
    values: torch.Tensor,
    keep: torch.Tensor | None,
    activation: torch.Tensor | None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    lambdas: tuple[float, ...],
    min_variance: float,
) -> torch.Tensor:
    """Return the output capsules [P, M, D] of one chunk."""
    last = _route_em(values, keep, activation, beta_a, beta_u, lambdas, min_variance)[-1]
    return last.log_output_activation.exp().unsqueeze(-1) * last.mean


def _em_backward(
    grad_capsules: torch.Tensor,
    values: torch.Tensor,
    keep: torch.Tensor | None,
    activation: torch.Tensor | None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    lambdas: tuple[float, ...],
    min_variance: float,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """Return the gradients by the votes [P, N, M, D], the input activation [P, N, M], beta_a [M] and beta_u [M]."""
    steps = _route_em(values, keep, activation, beta_a, beta_u, lambdas, min_variance)
    last = steps[-1]
    grad_mean = grad_capsules * last.log_output_activation.exp().unsqueeze(-1)  # [P, M, D]
    grad_log_output_activation = (grad_mean * last.mean).sum(dim=-1)  # [P, M]
    grad_values = torch.zeros_like(values)
    grad_log_activation = None if activation is None else values.new_zeros(values.shape[:-1])
    grad_beta_a, grad_beta_u = torch.zeros_like(beta_u), torch.zeros_like(beta_u)
    grad_logits = None  # by the logits of the next iteration's C [P, N, M]
    for step, inverse_temperature in zip(reversed(steps), reversed(lambdas), strict=True):
        offset = values - step.mean.unsqueeze(1)  # V - mu [P, N, M, D]
        precision = 1 / step.variance  # [P, M, D]
        grad_variance = torch.zeros_like(precision)

        # E-step: logits = log a - sum_d (log sigma + (V - mu)^2 / sigma) / 2
        if grad_logits is not None:
            product = grad_logits.unsqueeze(-1) * offset  # [P, N, M, D]
            grad_mean = product.sum(dim=1).mul_(precision)
            second_moment = product.mul_(offset).sum(dim=1)
            grad_log_output_activation = grad_logits.sum(dim=1)  # [P, M]
            grad_variance = 0.5 * precision * (precision * second_moment - grad_log_output_activation.unsqueeze(-1))

        # log a = logsigmoid(lambda (beta_a - (beta_u + half_entropy) mass))
        gate = grad_log_output_activation * inverse_temperature * -torch.expm1(step.log_output_activation)  # [P, M]
        gated_mass = gate * step.total_mass
        grad_beta_a += gate.sum(dim=0)
        grad_beta_u -= gated_mass.sum(dim=0)
        grad_variance -= 0.5 * gated_mass.unsqueeze(-1) * precision
        grad_log_mass = -gated_mass * (beta_u + step.half_entropy)  # [P, M]

        # M-step: mu = sum_n share V, sigma = sum_n share (V - mu)^2 + min_variance, share = softmax_n(log R). The
        # softmax takes from each input's gradient the mean over the inputs, which is that of the variance:
        # sum_n share (V - mu) = 0, and sum_n share (V - mu)^2 = sigma - min_variance
        common = grad_log_mass - (grad_variance * (step.variance - min_variance)).sum(dim=-1)  # [P, M]
        scaled_mean = (grad_mean * step.scale).unsqueeze(1)  # [P, 1, M, D]
        scaled_variance = (grad_variance * step.scale).unsqueeze(1)
        slope = times_weight(step.weight, 2 * scaled_variance)  # [P, N, M, D], or [P, 1, M, D]
        if grad_logits is not None:
            slope = torch.addcmul(slope, grad_logits.unsqueeze(-1), precision.unsqueeze(1), value=-1)
        grad_values.add_(times_weight(step.weight, scaled_mean)).addcmul_(offset, slope)
        if step is steps[0] and grad_log_activation is None:
            break  # its C is constant
        inner = torch.addcmul(scaled_mean, offset, scaled_variance).mul_(offset)  # [P, N, M, D]
        grad_log_weight = sum_width(inner).add_((common.unsqueeze(-1) * step.scale).transpose(1, 2))
        grad_log_weight = times_weight(step.weight, grad_log_weight.unsqueeze(-1)).squeeze(-1)
        if grad_log_activation is not None:
            grad_log_activation += grad_log_weight

        # C = softmax_m(logits)
        if step.assignment is not None:
            total = grad_log_weight.sum(dim=-1, keepdim=True)
            grad_logits = grad_log_weight.addcmul_(step.assignment, total, value=-1)
    if grad_log_activation is None or activation is None:
        return grad_values, None, grad_beta_a, grad_beta_u
    return grad_values, grad_log_activation.div_(activation), grad_beta_a, grad_beta_u
