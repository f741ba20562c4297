"""The routing functions beside their textbook forms, forward and backward."""

import math
from collections.abc import Callable

import torch

from hf_capsule_mt.routing import dynamic_routing, em_lambda_schedule, em_routing, squash


def textbook_dynamic_routing(votes: torch.Tensor, num_iterations: int) -> torch.Tensor:
    """Algorithm 1 of Li et al., line by line."""
    logits = torch.zeros(votes.shape[:-1], device=votes.device)
    for _ in range(num_iterations):
        weights = torch.softmax(logits, dim=-1)
        total = (weights.unsqueeze(-1) * votes).sum(dim=-3) / weights.sum(dim=-2).unsqueeze(-1)
        capsules = squash(total)
        logits = logits + (capsules.unsqueeze(-3) * votes).sum(dim=-1)
    return capsules


def textbook_em_routing(
    votes: torch.Tensor, beta_a: torch.Tensor, beta_u: torch.Tensor, num_iterations: int
) -> torch.Tensor:
    """Algorithm 2 of Dou et al., line by line (with the density divided by sigma)."""
    weights = torch.full(votes.shape[:-1], 1 / votes.shape[-2], device=votes.device)
    for inverse_temperature in em_lambda_schedule(num_iterations):
        mass = weights.sum(dim=-2)
        mean = (weights.unsqueeze(-1) * votes).sum(dim=-3) / mass.unsqueeze(-1)
        squared = (votes - mean.unsqueeze(-3)) ** 2
        variance = (weights.unsqueeze(-1) * squared).sum(dim=-3) / mass.unsqueeze(-1) + 5e-4
        cost = ((torch.log(torch.sqrt(variance)) + (1 + math.log(2 * math.pi)) / 2) * mass.unsqueeze(-1)).sum(dim=-1)
        activation = torch.sigmoid(inverse_temperature * (beta_a - beta_u * mass - cost))
        density = torch.exp(-squared / (2 * variance.unsqueeze(-3))) / torch.sqrt(2 * math.pi * variance.unsqueeze(-3))
        joint = activation.unsqueeze(-2) * density.prod(dim=-1)
        weights = joint / joint.sum(dim=-1, keepdim=True)
    return activation.unsqueeze(-1) * mean


def core_runs(size: dict[str, int], device: str) -> tuple[dict[str, Callable[[], None]], Callable[[], None], int]:
    """Return forward and backward of each form, a function that clears the gradients, and the votes' bytes."""
    positions, inputs, outputs = 4096, size["layers"], size["d_model"]
    votes = torch.randn(positions, inputs, outputs, 1, device=device, requires_grad=True)
    betas = torch.zeros(2, outputs, device=device, requires_grad=True)
    grad = torch.randn(positions, outputs, 1, device=device)

    def em(return_weights: bool) -> Callable[[], torch.Tensor]:
        return lambda: (
            em_routing(
                votes, num_iterations=3, beta_a=betas[0], beta_u=betas[1], return_weights=return_weights
            ).capsules
        )

    def dynamic(return_weights: bool) -> Callable[[], torch.Tensor]:
        return lambda: (
            dynamic_routing(
                votes, num_iterations=3, normalize_total_input=True, return_weights=return_weights
            ).capsules
        )

    forms = {
        "em textbook": lambda: textbook_em_routing(votes, betas[0], betas[1], 3),
        "em plain": em(return_weights=True),
        "em chunked": em(return_weights=False),
        "dynamic textbook": lambda: textbook_dynamic_routing(votes, 3),
        "dynamic plain": dynamic(return_weights=True),
        "dynamic chunked": dynamic(return_weights=False),
    }

    def clear() -> None:
        votes.grad = betas.grad = None

    def run(name: str) -> Callable[[], None]:
        def forward_and_backward() -> None:
            clear()
            forms[name]().backward(grad)

        return forward_and_backward

    return {name: run(name) for name in forms}, clear, votes.numel() * votes.element_size()
