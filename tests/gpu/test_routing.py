"""The forms of routing agree on a GPU, in values and gradients."""

import pytest
import torch

from hf_capsule_mt.routing import additive_scores, dynamic_routing, em_routing

pytestmark = pytest.mark.gpu


def em(votes, beta_a, beta_u, *, chunked):
    settings = {"beta_a": beta_a, "beta_u": beta_u, "return_weights": not chunked}
    return em_routing(votes, num_iterations=3, **settings).capsules


def dynamic(votes, *_, chunked):
    return dynamic_routing(votes, num_iterations=3, normalize_total_input=True, return_weights=not chunked).capsules


def additive(query, keys, weight, *, chunked):
    if chunked:
        return additive_scores(query, keys, weight)
    return torch.matmul(torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3)), weight)


def measured(function, tensors, *, chunked):
    tensors = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    result = function(*tensors, chunked=chunked)
    grad = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    used = tensors if function is not dynamic else tensors[:1]
    return [result.detach(), *torch.autograd.grad(result, used, grad.to(result))]


def check(function, tensors):
    exact = measured(function, [tensor.double() for tensor in tensors], chunked=False)
    plain, chunked = (measured(function, tensors, chunked=one) for one in (False, True))
    for truth, expected, actual in zip(exact, plain, chunked, strict=True):
        error = (actual.double() - truth).norm() / truth.norm()
        assert error <= 2 * (expected.double() - truth).norm() / truth.norm() + 2e-6


@pytest.mark.parametrize("function", [em, dynamic])
@pytest.mark.parametrize("shape", [(6, 512, 1), (8, 64, 8), (8, 8, 64), (12, 1024, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forms_agree(device, function, shape, dtype):
    positions = 1000 if device.type == "cuda" else 20
    votes = torch.randn(positions, *shape, device=device).to(dtype)
    check(function, [votes, *torch.randn(2, shape[1], device=device)])


def test_additive_scores(device):
    shapes = ((4, 12, 31, 256), (4, 12, 45, 256), (256,))
    check(additive, [torch.randn(shape, device=device) * 0.1 for shape in shapes])
