"""The squashing nonlinearity: properties 1 and 2."""

import pytest
import torch

from hf_capsule_mt.routing import squash
from hf_capsule_mt.routing.squash import squash_backward


def test_known_values():
    torch.testing.assert_close(squash(torch.tensor([3.0, 4.0])), torch.tensor([0.576923, 0.769231]))
    for value, expected in ((0.5, 0.2), (-2.0, -0.8), (1.0, 0.5)):
        torch.testing.assert_close(squash(torch.tensor([value])), torch.tensor([expected]))


def test_shorter_than_one_and_same_direction():
    capsules = torch.randn(1000, 7, dtype=torch.float64) * torch.logspace(-6, 6, 1000, dtype=torch.float64)[:, None]
    squashed = squash(capsules)
    assert (squashed.norm(dim=-1) <= 1).all()
    cosine = torch.nn.functional.cosine_similarity(capsules, squashed, dim=-1, eps=1e-30)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [0.0, 1e-4, 1.0, 300.0, 1000.0])
def test_finite_with_finite_gradient_in_every_dtype(dtype, value):
    capsules = torch.full((2, 5), value, dtype=dtype, requires_grad=True)
    squashed = squash(capsules)
    squashed.sum().backward()
    assert squashed.dtype == dtype
    assert squashed.isfinite().all()
    assert capsules.grad.isfinite().all()
    if value == 0.0:
        assert (squashed == 0).all()


def test_gradient():
    capsules = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(squash, capsules)
    grad = torch.randn_like(capsules)
    expected = torch.autograd.grad(squash(capsules), capsules, grad)[0]
    torch.testing.assert_close(squash_backward(capsules, grad), expected)
