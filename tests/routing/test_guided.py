"""Guided routing: properties 39 and 40."""

import pytest
import torch

from hf_capsule_mt.routing import (
    GuidedScorer,
    guided_routing,
    project_votes,
    route_guided_votes,
)
from tests.routing import reference

WIDTH, QUERY_WIDTH = 3, 4


def make_inputs(num_inputs=5, num_outputs=4, num_queries=2, batch=(), dtype=torch.float64):
    arguments = {
        "votes": torch.randn(*batch, num_inputs, num_outputs, WIDTH, dtype=dtype),
        "query": torch.randn(*batch, num_queries, QUERY_WIDTH, dtype=dtype),
    }
    weights = {
        "query_weight": torch.randn(WIDTH, QUERY_WIDTH, dtype=dtype),
        "vote_weight": torch.randn(WIDTH, WIDTH, dtype=dtype),
        "capsule_weight": torch.randn(WIDTH, WIDTH, dtype=dtype),
        "score_weight": torch.randn(WIDTH, dtype=dtype),
    }
    return arguments, weights


@pytest.mark.parametrize("num_iterations", [1, 2, 4])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("score", ["printed", "released"])
def test_equals_plain_loops(num_iterations, masked, score):
    arguments, weights = make_inputs()
    mask = torch.tensor([True, False, True, True, False]) if masked else None
    output = guided_routing(**arguments, **weights, num_iterations=num_iterations, score=score, mask=mask)
    lists = {name: weight.tolist() for name, weight in weights.items()}
    for index, query in enumerate(arguments["query"].tolist()):
        capsules, history = reference.guided_routing(
            arguments["votes"].tolist(),
            query,
            **lists,
            num_iterations=num_iterations,
            score=score,
            mask=None if mask is None else mask.tolist(),
        )
        torch.testing.assert_close(
            output.capsules[index], torch.tensor(capsules, dtype=torch.float64), atol=2e-9, rtol=1e-7
        )
        torch.testing.assert_close(
            torch.stack([weights[index] for weights in output.weights]),
            torch.tensor(history, dtype=torch.float64),
            atol=1e-8,
            rtol=1e-7,
        )


def test_padding_has_no_influence():  # property 39
    arguments, weights = make_inputs(batch=(2,))
    expected = guided_routing(**arguments, **weights, num_iterations=3)
    padded = torch.cat([arguments["votes"], torch.full((2, 3, 4, WIDTH), float("nan"), dtype=torch.float64)], dim=1)
    mask = torch.arange(8).expand(2, 8) < 5
    output = guided_routing(padded, arguments["query"], **weights, num_iterations=3, mask=mask)
    torch.testing.assert_close(output.capsules, expected.capsules)
    for iteration, unpadded in zip(output.weights, expected.weights, strict=True):
        torch.testing.assert_close(iteration[:, :, :5], unpadded)
        assert (iteration[:, :, 5:] == 0).all()
        torch.testing.assert_close(iteration[:, :, :5].sum(dim=-1), torch.ones(2, 2, 5, dtype=torch.float64))


def test_the_query_changes_the_assignments():  # property 40
    arguments, weights = make_inputs()
    output = guided_routing(**arguments, **weights, num_iterations=3)
    assert torch.equal(output.weights[0][0], output.weights[0][1])
    assert not torch.allclose(output.weights[1][0], output.weights[1][1])
    unguided = guided_routing(
        **arguments, **{**weights, "score_weight": torch.zeros(WIDTH, dtype=torch.float64)}, num_iterations=3
    )
    for iteration in unguided.weights:
        torch.testing.assert_close(iteration, torch.full_like(iteration, 0.25))


@pytest.mark.parametrize("score", ["printed", "released"])
def test_gradient(score):
    arguments, weights = make_inputs(num_inputs=3, num_outputs=2)
    mask = torch.tensor([True, False, True])
    tensors = [value.requires_grad_() for value in (*arguments.values(), *weights.values())]

    def run(votes, query, *matrices):
        scorer = dict(zip(weights, matrices, strict=True))
        return guided_routing(votes, query, **scorer, num_iterations=3, score=score, mask=mask).capsules

    assert torch.autograd.gradcheck(run, tensors)


def test_an_unknown_score_is_refused():
    arguments, weights = make_inputs()
    with pytest.raises(ValueError, match="`score` must be one of printed, released, got 'tanh'"):
        guided_routing(**arguments, **weights, num_iterations=2, score="tanh")


def test_mismatched_shapes_are_refused():
    arguments, weights = make_inputs()
    with pytest.raises(ValueError, match=r"`query` must be .* got \[2, 2, 4\] for `votes` of shape \[5, 4, 3\]"):
        guided_routing(arguments["votes"], torch.randn(2, 2, 4), **weights, num_iterations=1)
    with pytest.raises(ValueError, match=r"`vote_weight` must have shape \[3, 3\] .* got \[3, 4\]"):
        guided_routing(**arguments, **{**weights, "vote_weight": torch.randn(3, 4)}, num_iterations=1)


def test_votes_projected_once_serve_every_query():
    arguments, weights = make_inputs(batch=(2,))
    mask = torch.arange(5).expand(2, 5) < torch.tensor([[5], [3]])
    expected = guided_routing(**arguments, **weights, num_iterations=3, mask=mask)
    guided_votes = project_votes(arguments["votes"].transpose(-2, -3).contiguous(), weights["vote_weight"], mask)
    for step in range(2):
        query = arguments["query"][:, step : step + 1]
        output = route_guided_votes(guided_votes, query, GuidedScorer(**weights), num_iterations=3, mask=mask)
        torch.testing.assert_close(output.capsules, expected.capsules[:, step : step + 1])
        for weights_of_step, weights_of_all in zip(output.weights, expected.weights, strict=True):
            torch.testing.assert_close(weights_of_step, weights_of_all[:, step : step + 1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_iterations_run_in_float32(dtype):
    arguments, weights = make_inputs(dtype=torch.float32)
    expected = guided_routing(**arguments, **weights, num_iterations=3)
    with torch.autocast("cpu", dtype=dtype):
        under_autocast = guided_routing(**arguments, **weights, num_iterations=3)
    torch.testing.assert_close(under_autocast.capsules, expected.capsules)
    votes, query = arguments["votes"].to(dtype), arguments["query"].to(dtype)
    assert guided_routing(votes, query, **weights, num_iterations=3).capsules.dtype == dtype
