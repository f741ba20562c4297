"""Squashing and dynamic routing, against the plain loops of their equations."""

import pytest
import torch

from hf_capsule_mt.routing import RoutingOutput, dynamic_routing, squash
from tests.routing import reference


def test_squash_of_known_values():  # property 1
    torch.testing.assert_close(squash(torch.tensor([3.0, 4.0])), torch.tensor([0.576923, 0.769231]))
    for value, expected in ((0.5, 0.2), (-2.0, -0.8), (1.0, 0.5)):
        torch.testing.assert_close(squash(torch.tensor([value])), torch.tensor([expected]))


def test_squashed_capsules_are_shorter_than_one_and_keep_their_direction():  # property 1
    capsules = torch.randn(1000, 7, dtype=torch.float64) * torch.logspace(-6, 6, 1000, dtype=torch.float64)[:, None]
    squashed = squash(capsules)
    assert (squashed.norm(dim=-1) <= 1).all()
    cosine = torch.nn.functional.cosine_similarity(capsules, squashed, dim=-1, eps=1e-30)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_squash_is_finite_with_a_finite_gradient_in_every_dtype(dtype):  # property 2
    values = torch.tensor([0.0, 1e-4, 1.0, 300.0, 1000.0], dtype=dtype)
    capsules = values[:, None].repeat(1, 5).requires_grad_()
    squashed = squash(capsules)
    squashed.sum().backward()
    assert squashed.dtype == dtype
    assert squashed.isfinite().all()
    assert capsules.grad.isfinite().all()
    assert (squashed[0] == 0).all()


VOTES = torch.tensor([[1.0, 0.0], [1.0, 2.0]]).unsqueeze(-1)  # [N=2, M=2, D=1]


@pytest.mark.parametrize(
    ("num_iterations", "weights", "capsules"),
    [
        (1, [[0.5, 0.5], [0.5, 0.5]], [0.5, 0.5]),
        (2, [[0.622459, 0.377541], [0.377541, 0.622459]], [0.5, 0.607816]),
        (3, [[0.731059, 0.268941], [0.228706, 0.771294]], [0.479478, 0.704105]),
    ],
)
def test_worked_numbers(num_iterations, weights, capsules):  # property 5
    output = dynamic_routing(VOTES, num_iterations=num_iterations)
    assert isinstance(output, RoutingOutput)
    torch.testing.assert_close(output.weights[-1], torch.tensor(weights), atol=1e-6, rtol=0)
    torch.testing.assert_close(output.capsules.squeeze(-1), torch.tensor(capsules), atol=1e-6, rtol=0)


def test_worked_numbers_with_normalized_total_input():  # property 6
    output = dynamic_routing(VOTES, num_iterations=3, normalize_total_input=True)
    torch.testing.assert_close(output.capsules.squeeze(-1), torch.tensor([0.5, 0.687408]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("num_inputs", "num_outputs", "width"), [(6, 8, 1), (4, 3, 5), (1, 4, 2), (3, 1, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_loops(normalize, num_inputs, num_outputs, width, masked):  # properties 4 and 7
    votes = torch.randn(num_inputs, num_outputs, width, dtype=torch.float64)
    mask = torch.tensor([n % 3 != 1 for n in range(num_inputs)]) if masked else None
    for num_iterations in (1, 2, 4):
        capsules, weights = reference.dynamic_routing(
            votes.tolist(), num_iterations, normalize, None if mask is None else mask.tolist()
        )
        for return_weights in (True, False):
            output = dynamic_routing(
                votes,
                num_iterations=num_iterations,
                mask=mask,
                normalize_total_input=normalize,
                return_weights=return_weights,
            )
            expected = torch.tensor(capsules, dtype=torch.float64)
            torch.testing.assert_close(output.capsules, expected, atol=2e-9, rtol=1e-7)  # squash's epsilon
        output = dynamic_routing(votes, num_iterations=num_iterations, mask=mask, normalize_total_input=normalize)
        assert len(output.weights) == num_iterations  # property 10
        torch.testing.assert_close(
            torch.stack(output.weights), torch.tensor(weights, dtype=torch.float64), atol=1e-8, rtol=1e-7
        )


@pytest.mark.parametrize("return_weights", [False, True])
@pytest.mark.parametrize(("length", "smallest", "largest"), [(15, 1e-20, 1e-10), (45, 1e-40, 1e-30), (90, 0, 1e-60)])
def test_sharp_routing_in_float32_is_that_of_the_loops(length, smallest, largest, return_weights):
    votes = torch.tensor([[length, 1.0], [length - 1, 0.5], [length + 1, -1.0]]).unsqueeze(-1)
    expected, weights = reference.dynamic_routing(votes.tolist(), 3, normalize_total_input=True)
    # the total that the second output's sum is divided by
    assert smallest < sum(row[1] for row in weights[-1]) < largest
    output = dynamic_routing(votes, num_iterations=3, normalize_total_input=True, return_weights=return_weights)
    torch.testing.assert_close(output.capsules.double(), torch.tensor(expected).double(), atol=1e-5, rtol=1e-4)


def test_an_output_that_gets_nothing_is_short_with_finite_gradients():
    votes = torch.tensor([[500.0, -500.0], [400.0, -500.0]]).unsqueeze(-1).requires_grad_()  # B_n2 - B_n1 < -800
    output = dynamic_routing(votes, num_iterations=3, normalize_total_input=True)
    assert (output.weights[-1][:, 0] == 0).any() or (output.weights[-1][:, 1] == 0).any()
    output.capsules.sum().backward()
    assert output.capsules.isfinite().all()
    assert votes.grad.isfinite().all()


def test_the_form_in_the_paper_does_not_route_with_512_capsules():  # property 29
    votes = torch.randn(50, 6, 512, 1)
    in_paper = dynamic_routing(votes, num_iterations=3)
    assert in_paper.capsules.square().mean().sqrt() < 1e-3
    assert (512 * in_paper.weights[-1] - 1).abs().max() < 1e-2
    normalized = dynamic_routing(votes, num_iterations=3, normalize_total_input=True)
    assert (512 * normalized.weights[-1] - 1).abs().max() > 0.5
