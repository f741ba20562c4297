"""EM routing: the numbers and properties of tests/PROPERTIES.md."""

import itertools

import pytest
import torch

from hf_capsule_mt.routing import em_lambda_schedule, em_routing
from tests.routing import reference

VOTES = torch.tensor([[0.0, 0.0], [1.0, 4.0], [2.0, 0.0]], dtype=torch.float64).unsqueeze(-1)  # [N=3, M=2, D=1]


def route(votes, num_iterations=3, **settings):
    betas = torch.zeros(votes.shape[-2], dtype=torch.promote_types(votes.dtype, torch.float32))
    return em_routing(votes, num_iterations=num_iterations, **{"beta_a": betas, "beta_u": betas, **settings})


def close(actual, expected):
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)


def test_worked_numbers():  # property 11
    settings = {"lambda_schedule": [1.0] * 3, "min_variance": 0.0}
    first = route(VOTES, 1, lambda_schedule=[1.0], min_variance=0.0)
    close(first.capsules.squeeze(-1), [1 * 0.138918, 1.333333 * 0.043949])
    second = route(VOTES, 2, lambda_schedule=[1.0] * 2, min_variance=0.0)
    close(second.weights[1], [[0.815755, 0.184245], [0.952022, 0.047978], [0.815755, 0.184245]])
    close(second.capsules.squeeze(-1), [1 * 0.044272, 0.460808 * 0.333412])
    third = route(VOTES, 3, **settings)
    close(third.weights[2][:2], [[0.093529, 0.906471], [0.908510, 0.091490]])
    close(third.capsules.squeeze(-1), [0.357490, 0.015912])


def test_worked_numbers_with_hintons_temperatures():  # property 12
    output = route(VOTES, 2, min_variance=0.0)
    close(route(VOTES, 1, min_variance=0.0).capsules.squeeze(-1), [0.499772, 1.333333 * 0.499615])
    close(output.weights[1][:2], [[0.583535, 0.416465], [0.862629, 0.137371]])
    close(output.capsules.squeeze(-1), [0.499435, 0.282916])


def test_worked_numbers_with_input_activation():  # property 13
    activation = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)
    for input_activation in (activation, activation.unsqueeze(-1).expand(3, 2)):
        for return_weights in (True, False):
            output = route(
                VOTES,
                1,
                input_activation=input_activation,
                lambda_schedule=[1.0],
                min_variance=0.0,
                return_weights=return_weights,
            )
            close(output.capsules.squeeze(-1), [0.157723, 0.167862])


def test_lambda_schedule():  # property 14
    assert em_lambda_schedule(3) == pytest.approx((5.0e-4, 9.75e-4, 1.42625e-3))


@pytest.mark.parametrize(("num_inputs", "num_outputs", "width"), [(6, 8, 1), (4, 3, 5), (2, 1, 2)])
@pytest.mark.parametrize("activated", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_loops(num_inputs, num_outputs, width, activated, masked):  # properties 15, 16 and 23
    votes = torch.randn(num_inputs, num_outputs, width, dtype=torch.float64)
    activation = torch.rand(num_inputs, num_outputs, dtype=torch.float64) if activated else None
    mask = torch.tensor([n % 3 != 1 for n in range(num_inputs)]) if masked else None
    beta_a, beta_u = torch.randn(2, num_outputs, dtype=torch.float64)
    for num_iterations, lambda_final in itertools.product((1, 2, 4), (0.01, 5.0)):
        capsules, weights = reference.em_routing(
            votes.tolist(),
            num_iterations,
            em_lambda_schedule(num_iterations, lambda_final),
            beta_a.tolist(),
            beta_u.tolist(),
            None if activation is None else activation.tolist(),
            1e-3,
            None if mask is None else mask.tolist(),
        )
        settings = {"input_activation": activation, "beta_a": beta_a, "beta_u": beta_u, "lambda_final": lambda_final}
        settings |= {"num_iterations": num_iterations, "mask": mask, "min_variance": 1e-3}
        for return_weights in (True, False):
            output = em_routing(votes, **settings, return_weights=return_weights)
            torch.testing.assert_close(
                output.capsules, torch.tensor(capsules, dtype=torch.float64), atol=1e-10, rtol=1e-10
            )
            if return_weights:
                assert len(output.weights) == num_iterations  # property 10
                torch.testing.assert_close(
                    torch.stack(output.weights), torch.tensor(weights, dtype=torch.float64), atol=1e-10, rtol=1e-10
                )


@pytest.mark.parametrize("width", [1, 2, 8])
def test_activations_that_vanish(width):
    """Both forms agree and stay finite where the probability of every input is too small for float32, or nearly."""
    values, noise, weight = torch.randn(3, 4, 5, 3, 4, width)
    start = torch.tensor([-30.0, -50.0, -86.0, -120.0]).view(4, 1, 1, 1)
    results = []
    for return_weights in (True, False):
        votes = (3 * values).requires_grad_()
        logits = (start + noise[..., 0]).requires_grad_()
        capsules = em_routing(
            votes,
            num_iterations=3,
            input_activation=logits.sigmoid(),
            beta_a=torch.zeros(4),
            beta_u=torch.zeros(4),
            return_weights=return_weights,
        ).capsules
        (capsules * weight[:, :, 0]).sum().backward()
        results.append((capsules, votes.grad, logits.grad))
    for plain, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-3, atol=1e-4)  # which fails where anything is NaN
    assert (results[0][0].abs().amax(dim=(1, 2, 3)) > 0.1).all()


@pytest.mark.parametrize("return_weights", [True, False], ids=["plain", "chunked"])
@pytest.mark.parametrize("vector", [True, False])
def test_activations_of_masked_inputs_have_no_effect(return_weights, vector):
    votes, mask = torch.randn(2, 4, 3, 1), torch.tensor([[True, True, False, False], [False, True, True, True]])
    activation = torch.rand(2, 4, 3) if vector else torch.rand(2, 4)
    results = []
    for padding in (0.5, float("nan"), float("inf")):
        poisoned = activation.masked_fill(~(mask.unsqueeze(-1) if vector else mask), padding).requires_grad_()
        given_votes = votes.clone().requires_grad_()
        capsules = route(given_votes, mask=mask, input_activation=poisoned, return_weights=return_weights).capsules
        grads = torch.autograd.grad(capsules.square().sum(), (poisoned, given_votes))
        assert (grads[0][~mask] == 0).all()
        results.append((capsules, *grads))
    for result in results[1:]:
        for actual, expected in zip(result, results[0], strict=True):
            torch.testing.assert_close(actual, expected)  # which fails where anything is NaN


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("alone", ["by its mask", "by its activation", "by itself"])
def test_the_gradient_of_an_input_that_is_alone_is_exact(width, alone):
    """Its distance to the mean is 0; a rounding error there, times 1 / variance, would outweigh all else."""
    num_inputs = 1 if alone == "by itself" else 4
    exact_votes = (300 + torch.randn(8, num_inputs, 5, width, dtype=torch.float64)).float().double()
    activation = (torch.rand(8, num_inputs, 5, dtype=torch.float64) + 0.1).float().double()
    mask = None
    if alone == "by its mask":
        mask = torch.arange(num_inputs).expand(8, -1) == torch.arange(8).unsqueeze(-1) % num_inputs
    elif alone == "by its activation":
        activation[:, 1:] = 1e-20
    grads = []
    for dtype, return_weights in ((torch.float64, True), (torch.float32, True), (torch.float32, False)):
        votes = exact_votes.to(dtype).requires_grad_()
        betas = torch.zeros(5, dtype=dtype)
        capsules = em_routing(
            votes,
            num_iterations=3,
            mask=mask,
            input_activation=activation.to(dtype),
            beta_a=betas,
            beta_u=betas,
            lambda_final=5.0,
            return_weights=return_weights,
        ).capsules
        grads.append(torch.autograd.grad(capsules.sum(), votes)[0].double())
    for grad in grads[1:]:
        torch.testing.assert_close(grad, grads[0], atol=1e-4, rtol=1e-4)


def test_the_activation_is_inert_at_512_capsules():  # property 22
    votes = torch.randn(20, 6, 512, 1, dtype=torch.float64)
    output = route(votes)
    shifted = route(votes + 1)
    activation = shifted.capsules - output.capsules  # a (mu + 1) - a mu
    assert ((activation > 0) & (activation < 1)).all()
    assert (activation - 0.5).abs().max() < 1e-3


def test_refuses_bad_settings():
    with pytest.raises(ValueError, match=r"`beta_a` must have shape \[2\] .* got \[3\]"):
        route(VOTES, beta_a=torch.zeros(3))
    with pytest.raises(ValueError, match=r"`input_activation` must have shape \[3, 2\] .* got \[2, 3\]"):
        route(VOTES, input_activation=torch.ones(2, 3))
    with pytest.raises(ValueError, match="`lambda_schedule` has 2 values for `num_iterations` 3"):
        route(VOTES, lambda_schedule=[1.0, 1.0])
