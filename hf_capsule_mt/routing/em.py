"""EM routing (Hinton et al. 2018) as Dou et al. 2019 (algorithm 2) and Li et al. 2019 (algorithm 2) use it."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import logsigmoid, mse_loss

from hf_capsule_mt.routing.chunks import route_in_chunks
from hf_capsule_mt.routing.common import (
    RoutingOutput,
    check_shape,
    check_votes,
    exp,
    is_traced,
    iteration_dtype,
    sum_inputs,
    sum_width,
    uniform_log_assignment,
    with_weights,
    without_masked,
    zero_masked,
)

LOG_TWO_PI = math.log(2 * math.pi)
SMALLEST_ACTIVATION = 1e-20  # 1 / A in a backward pass must not overflow


def em_lambda_schedule(num_iterations: int, lambda_final: float = 0.01) -> tuple[float, ...]:
    """Return the inverse temperatures lambda_t = lambda_final * (1 - 0.95^(t+1)), t = 0 ... T-1, of Hinton et al."""
    return tuple(lambda_final * (1 - 0.95 ** (iteration + 1)) for iteration in range(num_iterations))


def em_routing(
    votes: torch.Tensor,
    *,
    num_iterations: int,
    mask: torch.Tensor | None = None,
    input_activation: torch.Tensor | None = None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    lambda_final: float = 0.01,
    min_variance: float = 5e-4,
    lambda_schedule: Sequence[float] | None = None,
    detach_routing: bool = False,
    return_weights: bool = True,
) -> RoutingOutput:
    """Route N input capsules to M Gaussians fitted to their votes.

    With C_nm = 1/M at the start, each of the T iterations computes, for inputs n, outputs m and dimensions d,

        M-step  R_nm     = C_nm A_n                              (A: the input activation, 1 if there is none)
                mu_md    = sum_n R_nm V_nmd / sum_n R_nm
                sigma_md = sum_n R_nm (V_nmd - mu_md)^2 / sum_n R_nm + min_variance       (the variance)
                cost_m   = sum_d (log(sigma_md) + 1 + log 2 pi) / 2 * sum_n R_nm
                a_m      = logistic(lambda_t (beta_a - beta_u sum_n R_nm - cost_m))
        E-step  C_nm     = softmax_m(log a_m + log N(V_nm; mu_m, sigma_m))                (not after the last)

    and the output capsule is a_m mu_m. C, A and a are kept as logarithms.

    Args:
        votes: V [..., N, M, D].
        num_iterations: T, the number of M-steps.
        mask: [..., N], True keeps an input capsule.
        input_activation: A, the probability that an input capsule is present, [..., N] or, one for each output that
            it votes for, [..., N, M]. Less than 1e-20 counts as 1e-20.
        beta_a, beta_u: the learned costs [M].
        lambda_final: the limit of Hinton's schedule of inverse temperatures.
        lambda_schedule: the inverse temperatures one by one, in its place.
        min_variance: added to every variance.
        detach_routing: treat C as a constant in the backward pass.
        return_weights: whether to return C of every iteration; without them it is faster, and takes less memory.

    Returns:
        `RoutingOutput`: a mu [..., M, D] and T tensors C [..., N, M] (before they meet A), in the dtype of the votes.

    Relations: one iteration gives the (A-weighted) mean of the votes times a; shifting all votes for one output by a
    constant shifts its mu and changes nothing else. With the default temperatures and M = 512, a stays within 1e-3
    of one half and the betas hardly matter.
    """
    # Deviation: the density is divided by sigma, not by sigma^2 as both papers print it: the text says "probability
    # density under the Gaussian", which the printed form is not. The densities of the D dimensions are multiplied, as
    # in Hinton et al. and Dou et al.; Li et al. print a sum, which is the same at D = 1, the setting of every table.
    # Dividing by sigma^2 is not: it changes every number there, too.
    # Deviation: no paper adds `min_variance`. Without it the variance of equal votes is 0, and its density infinite.
    check_votes(votes, num_iterations, mask)
    for name, beta in (("beta_a", beta_a), ("beta_u", beta_u)):
        check_shape(name, beta, votes.shape[-2:-1], votes)
    check_activation(input_activation, votes)
    if input_activation is not None and input_activation.dim() == votes.dim() - 2:
        input_activation = input_activation.unsqueeze(-1)
    if lambda_schedule is not None and len(lambda_schedule) != num_iterations:
        raise ValueError(f"`lambda_schedule` has {len(lambda_schedule)} values for `num_iterations` {num_iterations}")
    lambdas = em_lambda_schedule(num_iterations, lambda_final) if lambda_schedule is None else tuple(lambda_schedule)
    if mask is not None:  # whatever padding holds, even NaN, must not spread
        votes = votes.masked_fill(~mask[..., None, None], 0)
        if input_activation is not None:
            input_activation = input_activation.masked_fill(~mask.unsqueeze(-1), 1)

    beta_a, beta_u = beta_a.to(iteration_dtype(votes)), beta_u.to(iteration_dtype(votes))

    def route(*tensors: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return _route_em(*tensors, lambdas=lambdas, min_variance=min_variance, detach_routing=detach_routing)

    if return_weights or is_traced(votes):
        capsules, log_assignments = route(votes, mask, input_activation, beta_a, beta_u)
        if not return_weights:
            return RoutingOutput(capsules, None)
        return with_weights(capsules, [zero_masked(logs.exp(), mask) for logs in log_assignments], votes)
    capsules = route_in_chunks(lambda *chunk: route(*chunk)[0], votes, mask, input_activation, shared=(beta_a, beta_u))
    return RoutingOutput(capsules, None)


def check_activation(input_activation: torch.Tensor | None, votes: torch.Tensor) -> None:
    """Check that an input activation is [..., N] or [..., N, M]."""
    if input_activation is not None:
        is_per_vote = input_activation.dim() != votes.dim() - 2
        check_shape("input_activation", input_activation, votes.shape[: -1 if is_per_vote else -2], votes)


def _route_em(
    votes: torch.Tensor,
    mask: torch.Tensor | None,
    input_activation: torch.Tensor | None,
    beta_a: torch.Tensor,
    beta_u: torch.Tensor,
    *,
    lambdas: tuple[float, ...],
    min_variance: float,
    detach_routing: bool,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The equations, line by line: the output capsules, and log C of every iteration."""
    values = votes.to(iteration_dtype(votes))  # [..., N, M, D]
    width = values.shape[-1]
    log_presence = None
    if input_activation is not None:
        log_presence = input_activation.to(values.dtype).clamp(min=SMALLEST_ACTIVATION).log()  # [..., N, 1 or M]
    log_assignments = [uniform_log_assignment(values)]  # [..., N, 1], then [..., N, M]
    for iteration, inverse_temperature in enumerate(lambdas):
        log_assignment = log_assignments[-1].detach() if detach_routing else log_assignments[-1]

        # M-step; as few passes as possible go over all votes. R is divided by its largest value, so that a sum is at
        # least 1. This factor cancels in mu and sigma: their slope by it is 0, so it counts as a constant.
        log_mass = log_assignment if log_presence is None else log_assignment + log_presence
        log_mass = without_masked(log_mass, mask)  # log R [..., N, M]
        peak = log_mass.detach().amax(dim=-2)  # [..., M]
        relative_mass = exp(log_mass, peak.unsqueeze(-2))  # [..., N, M]
        relative_total = relative_mass.sum(dim=-2)  # [..., M]
        total_mass = exp(peak) * relative_total
        is_uniform = iteration == 0 and mask is None and log_presence is None
        weight, scale = None if is_uniform else relative_mass, (1 / relative_total).unsqueeze(-1)
        mean = sum_inputs(weight, values) * scale  # [..., M, D]
        # sigma has its minimum at mu, so its slope by mu is 0; without an E-step nothing else asks for that slope
        center = mean if iteration < len(lambdas) - 1 else mean.detach()
        # (V - mu)^2 in one pass, as is its gradient by V: the difference is not kept
        squared_distance = mse_loss(values, center.unsqueeze(-3).expand_as(values), reduction="none")  # [..., N, M, D]
        variance = sum_inputs(weight, squared_distance) * scale + min_variance  # [..., M, D]
        log_variance = sum_width(variance.log())  # [..., M]
        cost = 0.5 * (log_variance + width * (1 + LOG_TWO_PI)) * total_mass  # [..., M]
        log_output_activation = logsigmoid(inverse_temperature * (beta_a - beta_u * total_mass - cost))  # [..., M]

        # E-step; the part of 2 pi is the same for all outputs
        if iteration < len(lambdas) - 1:
            output_terms = (log_output_activation - 0.5 * log_variance).unsqueeze(-2)  # [..., 1, M]
            factor = (-0.5 / variance).unsqueeze(-3)  # [..., 1, M, D]
            if width == 1:
                logits = torch.addcmul(output_terms, squared_distance.squeeze(-1), factor.squeeze(-1))
            else:
                logits = output_terms + (squared_distance * factor).sum(dim=-1)
            log_assignments.append(logits.log_softmax(dim=-1))
    capsules = log_output_activation.exp().unsqueeze(-1) * mean  # [..., M, D]
    return capsules.to(votes.dtype), log_assignments
