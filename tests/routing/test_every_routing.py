"""What holds for every routing and every form of it: symmetries, masks, dtypes, gradients, errors."""

import pytest
import torch

from hf_capsule_mt.routing import dynamic_routing, em_routing
from hf_capsule_mt.routing.chunks import route_in_chunks
from hf_capsule_mt.routing.common import exp


def simple(votes, **settings):
    return dynamic_routing(votes, num_iterations=3, normalize_total_input=True, **settings)


def dynamic(votes, **settings):
    return dynamic_routing(votes, num_iterations=3, **settings)


def em(votes, **settings):
    betas = torch.zeros(votes.shape[-2], dtype=torch.promote_types(votes.dtype, torch.float32))
    return em_routing(votes, num_iterations=3, beta_a=betas, beta_u=betas, **settings)


ROUTINGS = pytest.mark.parametrize("routing", [dynamic, simple, em])
FORMS = pytest.mark.parametrize("return_weights", [True, False], ids=["whole", "in_chunks"])


@ROUTINGS
def test_weights_are_probabilities_over_the_outputs(routing):  # property 3
    votes = torch.randn(4, 6, 9, 2) * 3
    mask = torch.rand(4, 6) > 0.3
    for weights in routing(votes, mask=mask).weights:
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(dim=-1), mask.float())


@ROUTINGS
@pytest.mark.parametrize("device", ["cpu", "meta"])  # a tensor without values is routed as a compiler traces it
def test_weights_come_only_if_asked_for(routing, device):
    with torch.device(device):
        votes = torch.randn(4, 6, 9, 2)
        assert routing(votes, return_weights=False).weights is None
        assert len(routing(votes, return_weights=True).weights) == 3


@ROUTINGS
@FORMS
def test_order_of_inputs_and_outputs(routing, return_weights):  # property 8
    votes = torch.randn(3, 6, 5, 2, dtype=torch.float64)
    inputs, outputs = torch.randperm(6), torch.randperm(5)
    capsules = routing(votes, return_weights=return_weights).capsules
    torch.testing.assert_close(routing(votes[:, inputs], return_weights=return_weights).capsules, capsules)
    torch.testing.assert_close(
        routing(votes[:, :, outputs], return_weights=return_weights).capsules, capsules[:, outputs]
    )


@ROUTINGS
def test_equal_votes_stay_uniform(routing):  # properties 9 and 20
    for votes in (torch.ones(6, 5, 3), torch.randn(6, 1, 3).repeat(1, 5, 1)):
        output = routing(votes.requires_grad_())
        for weights in output.weights:
            torch.testing.assert_close(weights, torch.full((6, 5), 0.2))
        output.capsules.sum().backward()
        assert votes.grad.isfinite().all()
        assert output.capsules.isfinite().all()


@ROUTINGS
def test_detached_weights_change_the_gradient_and_not_the_result(routing):  # property 21
    votes = torch.randn(6, 8, 2, dtype=torch.float64, requires_grad=True)
    free, cut = routing(votes).capsules, routing(votes, detach_routing=True).capsules
    torch.testing.assert_close(free, cut)
    grads = [torch.autograd.grad(capsules.square().sum(), votes)[0] for capsules in (free, cut)]
    assert not torch.allclose(*grads)


@ROUTINGS
@pytest.mark.parametrize(("num_outputs", "width"), [(6, 1), (3, 4)])
@pytest.mark.parametrize("detached", [False, True])
def test_both_forms_have_the_same_gradient(routing, num_outputs, width, detached):
    votes = torch.randn(4, 5, num_outputs, width, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True] * 5, [True, False] * 2 + [True], [False] * 4 + [True], [False] * 5])
    whole, chunked = (
        torch.autograd.grad(
            routing(votes, mask=mask, detach_routing=detached, return_weights=return_weights).capsules.square().sum(),
            votes,
        )[0]
        for return_weights in (True, False)
    )
    assert whole.abs().max() > 0
    torch.testing.assert_close(chunked, whole, atol=1e-12, rtol=1e-9)


@ROUTINGS
@FORMS
def test_masked_inputs_have_no_effect(routing, return_weights):
    votes = torch.randn(3, 6, 5, 2, dtype=torch.float64)
    mask = torch.tensor([[True] * 4 + [False] * 2, [False] + [True] * 3 + [False] * 2, [True, False] * 3])
    output = routing(votes, mask=mask, return_weights=return_weights)
    spoilt = votes.masked_fill(~mask[..., None, None], float("nan"))
    torch.testing.assert_close(routing(spoilt, mask=mask, return_weights=return_weights).capsules, output.capsules)
    for row in range(3):
        alone = routing(votes[row, mask[row]], return_weights=return_weights)
        torch.testing.assert_close(output.capsules[row], alone.capsules)


@ROUTINGS
@FORMS
def test_a_mask_that_keeps_nothing_gives_nothing(routing, return_weights):
    votes = torch.randn(2, 4, 5, 2, requires_grad=True)
    mask = torch.tensor([[False] * 4, [True] * 4])
    capsules = routing(votes, mask=mask, return_weights=return_weights).capsules
    capsules.square().sum().backward()
    assert (capsules[0] == 0).all()
    assert (votes.grad[0] == 0).all()
    assert votes.grad.isfinite().all()


@ROUTINGS
@FORMS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("num_outputs", "width"), [(32, 1), (8, 16), (4, 64)])
def test_finite_in_every_dtype(routing, return_weights, dtype, num_outputs, width):  # property 20
    scales = torch.tensor([1e-4, 1e-2, 1.0, 1e2, 1e3]).view(5, 1, 1, 1, 1)
    votes = (torch.randn(5, 6, num_outputs, width) * scales).to(dtype).requires_grad_()
    capsules = routing(votes, return_weights=return_weights).capsules
    capsules.float().square().sum().backward()
    assert capsules.dtype == dtype
    assert capsules.isfinite().all()
    assert votes.grad.dtype == dtype
    assert votes.grad.isfinite().all()


@ROUTINGS
@FORMS
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("num_outputs", "width"), [(4, 1), (2, 3)])
def test_gradcheck(routing, return_weights, masked, num_outputs, width):  # property 21
    votes = torch.randn(2, 3, num_outputs, width, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False, True], [True] * 3]) if masked else None
    assert torch.autograd.gradcheck(
        lambda votes: routing(votes, mask=mask, return_weights=return_weights).capsules, votes
    )


@FORMS
@pytest.mark.parametrize("vector", [False, True])
def test_gradcheck_of_everything_that_em_learns(return_weights, vector):  # property 21
    votes = torch.randn(2, 3, 4, 2, dtype=torch.float64, requires_grad=True)
    activation = torch.rand(*((2, 3, 4) if vector else (2, 3)), dtype=torch.float64) + 0.1
    # The second row has one alone: its share is exactly 1, where clamp has the slope 0 from torch 2.14 on.
    mask = torch.tensor([[True] * 3, [False, True, False]])
    betas = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)

    def run(votes, activation, betas):
        return em_routing(
            votes,
            num_iterations=3,
            mask=mask,
            input_activation=activation,
            beta_a=betas[0],
            beta_u=betas[1],
            lambda_final=10.0,
            return_weights=return_weights,
        ).capsules

    assert torch.autograd.gradcheck(run, (votes, activation.requires_grad_(), betas))


@ROUTINGS
@pytest.mark.parametrize("shape", [(1000, 6, 64, 1), (3, 70, 4, 16, 4), (0, 3, 4, 2)])
def test_forms_agree_over_many_chunks(routing, shape, monkeypatch):
    monkeypatch.setattr("hf_capsule_mt.routing.chunks.chunk_rows", lambda votes: 64)
    votes = torch.randn(*shape, requires_grad=True)
    plain, chunked = (routing(votes, return_weights=return_weights).capsules for return_weights in (True, False))
    torch.testing.assert_close(plain, chunked, atol=2e-6, rtol=1e-5)
    grad = torch.randn_like(plain)
    expected, actual = (torch.autograd.grad(capsules, votes, grad)[0] for capsules in (plain, chunked))
    torch.testing.assert_close(expected, actual, atol=2e-6, rtol=1e-4)


def test_chunks_are_as_large_whatever_dimensions_the_positions_have():
    sizes = []

    def route(votes):
        sizes[-1].append(len(votes))
        return votes[:, 0]

    for positions in ((240,), (8, 30), (2, 4, 30)):
        sizes.append([])
        route_in_chunks(route, torch.ones(*positions, 4, 512, 1))
    assert sizes == [[128, 112]] * 3


@pytest.mark.parametrize("frozen", ["votes", "activation", "beta_a", "beta_u", "none"])
def test_chunks_have_the_gradients_of_the_whole_for_what_is_not_frozen(frozen, monkeypatch):
    monkeypatch.setattr("hf_capsule_mt.routing.chunks.chunk_rows", lambda votes: 3)
    tensors = {"votes": torch.randn(8, 4, 5, 2), "activation": torch.rand(8, 4), "beta_a": torch.randn(5)}
    tensors = {name: tensor.double() for name, tensor in tensors.items()} | {"beta_u": torch.randn(5).double()}
    mask = torch.rand(8, 4) > 0.3
    learned = [tensor.requires_grad_() for name, tensor in tensors.items() if name != frozen]

    def gradients(return_weights):
        capsules = em_routing(
            tensors["votes"],
            num_iterations=3,
            mask=mask,
            input_activation=tensors["activation"],
            beta_a=tensors["beta_a"],
            beta_u=tensors["beta_u"],
            lambda_final=5.0,
            return_weights=return_weights,
        ).capsules
        return torch.autograd.grad(capsules.square().sum(), learned)

    for expected, actual in zip(gradients(True), gradients(False), strict=True):
        assert expected.abs().max() > 0
        torch.testing.assert_close(actual, expected)


@ROUTINGS
def test_a_second_derivative_needs_the_weights(routing):
    votes = torch.randn(2, 3, 4, 2, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(routing(votes).capsules.sum(), votes, create_graph=True)
    assert torch.autograd.grad(grad.square().sum(), votes)[0].abs().max() > 0
    with pytest.raises(RuntimeError, match="only the first derivative: use `return_weights=True`"):
        torch.autograd.grad(routing(votes, return_weights=False).capsules.sum(), votes, create_graph=True)


def test_votes_must_be_a_tensor():
    with pytest.raises(TypeError, match=r"`votes` must be a tensor of shape \[..., N, M, D\], got list"):
        dynamic_routing([[[1.0]]], num_iterations=1)


@ROUTINGS
def test_errors_name_the_argument_and_the_shapes(routing):
    with pytest.raises(ValueError, match=r"`votes` must be .* got torch.float32 of shape \[3, 4\]"):
        routing(torch.randn(3, 4))
    with pytest.raises(ValueError, match=r"`votes` must be .* got torch.int64"):
        routing(torch.ones(3, 4, 2, dtype=torch.long))
    with pytest.raises(ValueError, match=r"`votes` .* got shape \[3, 0, 2\]"):
        routing(torch.randn(3, 0, 2))
    with pytest.raises(
        ValueError, match=r"`mask` must have shape \[2, 3\] for `votes` of shape \[2, 3, 4, 2\], got \[3, 2\]"
    ):
        routing(torch.randn(2, 3, 4, 2), mask=torch.ones(3, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="`mask` must be a bool tensor"):
        routing(torch.randn(2, 3, 4, 2), mask=torch.ones(2, 3))


@pytest.mark.parametrize("num_iterations", [0, -1, 1.5, True])
def test_refuses_fewer_than_one_iteration(num_iterations):
    votes, betas = torch.randn(3, 4, 2), torch.zeros(4)
    with pytest.raises(ValueError, match=f"`num_iterations` must be an integer of at least 1, got {num_iterations}"):
        dynamic_routing(votes, num_iterations=num_iterations)
    with pytest.raises(ValueError, match=f"`num_iterations` must be an integer of at least 1, got {num_iterations}"):
        em_routing(votes, num_iterations=num_iterations, beta_a=betas, beta_u=betas)


def test_exp_is_e_to_the_x_also_where_it_underflows():
    values = torch.cat([torch.linspace(-120, 2, 400), torch.tensor([torch.finfo(torch.float32).min])]).requires_grad_()
    result = exp(values)
    (slope,) = torch.autograd.grad(result.sum(), values)
    expected = values.detach().double().exp()
    for actual in (result.detach(), slope):
        torch.testing.assert_close(actual.double(), expected, rtol=2e-5, atol=1e-37)
