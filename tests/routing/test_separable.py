"""The routing of CapsNMT, against loops: properties 34 and 35."""

import itertools

import pytest
import torch

from hf_capsule_mt.routing import ScoringNetwork, dynamic_routing, separable_routing
from tests.routing import reference

N, M, D = 5, 3, 4


def make(num_iterations=3, batch=(), dtype=torch.float64):
    def draw(*shape):
        return torch.randn(*shape, dtype=dtype)

    votes = [draw(*batch, N, M, D).relu() for _ in range(num_iterations)]
    scoring = ScoringNetwork(draw(6, D), draw(6), draw(5, 6), draw(5))
    return votes, {"capsule_positions": draw(M, D), "inputs": draw(*batch, N, D), "scoring": scoring}


SCALES = {"score_scale": 0.3, "comparison_scale": 1.7}
STRATEGIES = [(), ("capsule_positions",), ("inputs", "scoring"), ("capsule_positions", "inputs", "scoring")]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["plain", "positions", "scoring", "all"])
@pytest.mark.parametrize("num_iterations", [1, 2, 4])
def test_equals_the_loops(strategy, num_iterations):
    votes, settings = make(num_iterations)
    settings = {name: settings[name] for name in strategy}
    keep = torch.tensor([True, False, True, True, False])
    for mask, scales in itertools.product((None, keep), ({}, SCALES)):
        output = separable_routing(votes, **settings, mask=mask, **scales)
        lists = {
            name: [weight.tolist() for weight in value] if name == "scoring" else value.tolist()
            for name, value in settings.items()
        }
        capsules, history = reference.separable_routing(
            torch.stack(votes).tolist(), **lists, mask=None if mask is None else mask.tolist(), **scales
        )
        torch.testing.assert_close(output.capsules, torch.tensor(capsules, dtype=torch.float64), atol=2e-9, rtol=1e-7)
        assert len(output.weights) == num_iterations
        torch.testing.assert_close(
            torch.stack(output.weights), torch.tensor(history, dtype=torch.float64), atol=1e-8, rtol=1e-7
        )


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["plain", "positions", "scoring", "all"])
def test_gradient(strategy):
    votes, settings = make(batch=(2,))
    settings = {name: settings[name] for name in strategy}
    tensors = [*votes]
    for value in settings.values():
        tensors += list(value) if isinstance(value, ScoringNetwork) else [value]
    mask = torch.arange(N).expand(2, N) < torch.tensor([[N], [2]])

    def run(*tensors):
        remaining = iter(tensors[len(votes) :])
        arguments = {
            name: ScoringNetwork(*(next(remaining) for _ in range(4))) if name == "scoring" else next(remaining)
            for name in settings
        }
        return separable_routing(tensors[: len(votes)], **arguments, mask=mask).capsules

    assert torch.autograd.gradcheck(run, [tensor.requires_grad_() for tensor in tensors])


@pytest.mark.parametrize(
    ("num_iterations", "expected"),
    [(1, (0.5, 0.692308)), (2, (0.535880, 0.821788)), (3, (0.556744, 0.864417))],
)
def test_printed_numbers(num_iterations, expected):  # property 34
    votes = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], dtype=torch.float64).unsqueeze(-1)
    output = separable_routing([votes] * num_iterations)
    torch.testing.assert_close(
        output.capsules.squeeze(-1), torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0
    )


def test_shared_votes_without_strategies_are_dynamic_routing():
    votes, _ = make(1, batch=(2,))
    mask = torch.arange(N).expand(2, N) < torch.tensor([[N], [2]])
    expected = dynamic_routing(votes[0], num_iterations=3, mask=mask)
    output = separable_routing(votes * 3, mask=mask)
    torch.testing.assert_close(output.capsules, expected.capsules)
    torch.testing.assert_close(output.weights, expected.weights)


def test_padding_is_worth_nothing():  # property 35
    votes, settings = make(batch=(2,))
    expected = separable_routing(votes, **settings)
    nothing = torch.full((2, 3, M, D), float("nan"), dtype=torch.float64)
    padded = [torch.cat([nothing, v], dim=1) for v in votes]
    settings["inputs"] = torch.cat([nothing[:, :, 0], settings["inputs"]], dim=1).requires_grad_()
    mask = torch.arange(N + 3).expand(2, N + 3) >= 3
    output = separable_routing(padded, **settings, mask=mask)
    torch.testing.assert_close(output.capsules, expected.capsules)
    for iteration, unpadded in zip(output.weights, expected.weights, strict=True):
        torch.testing.assert_close(iteration[:, 3:], unpadded)
        assert (iteration[:, :3] == 0).all()
    output.capsules.sum().backward()
    assert settings["inputs"].grad.isfinite().all()


def test_half_precision_iterates_in_float32():
    votes, settings = make(dtype=torch.bfloat16)
    output = separable_routing(votes, **settings)
    assert output.capsules.dtype == output.weights[0].dtype == torch.bfloat16
    in_float32 = separable_routing(
        [v.float() for v in votes],
        capsule_positions=settings["capsule_positions"].float(),
        inputs=settings["inputs"].float(),
        scoring=ScoringNetwork(*(weight.float() for weight in settings["scoring"])),
    )
    assert torch.equal(output.capsules, in_float32.capsules.bfloat16())


def test_refuses_what_does_not_fit():
    votes, settings = make()
    with pytest.raises(ValueError, match="at least one iteration"):
        separable_routing([])
    with pytest.raises(ValueError, match=r"`votes` must have shape \[5, 3, 4\]"):
        separable_routing([votes[0], votes[1][:4]])
    with pytest.raises(ValueError, match="give both or neither"):
        separable_routing(votes, inputs=settings["inputs"])
    with pytest.raises(ValueError, match=r"`inputs` must have shape \[5, 4\]"):
        separable_routing(votes, inputs=settings["inputs"][:4], scoring=settings["scoring"])
    with pytest.raises(ValueError, match=r"`capsule_positions` must have shape \[3, 4\]"):
        separable_routing(votes, capsule_positions=settings["capsule_positions"][:2])
    with pytest.raises(ValueError, match="must be a bool tensor"):
        separable_routing(votes, mask=torch.ones(5))
