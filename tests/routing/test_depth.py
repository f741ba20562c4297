"""Sums over depth: against plain loops, gradients, relations, dtypes."""

import pytest
import torch

from hf_capsule_mt.routing import depth_attention, generalized_residual, multiway_dense, weighted_sum
from tests.routing import reference

EPSILON, LAYERS, WIDTH = 1e-5, 4, 6


def dense(sources, weights):
    return weighted_sum(sources, weights.unsqueeze(-1))


def attention(sources, query, gain):
    return depth_attention(sources, query, gain, epsilon=EPSILON)[0]


def mudd(sources, inner, outer, offsets):
    return multiway_dense(sources, inner, outer, offsets, epsilon=EPSILON)[0]


def grn(sources, direction, offsets):
    return generalized_residual(sources, direction, offsets, epsilon=EPSILON)[0]


LOOPS = {
    dense: reference.weighted_sum,
    attention: lambda *values: reference.depth_attention(*values, EPSILON)[0],
    mudd: lambda *values: reference.multiway_dense(*values, EPSILON)[0],
    grn: lambda *values: reference.generalized_residual(*values, EPSILON)[0],
}
SHAPES = {
    dense: [(LAYERS,)],
    attention: [(WIDTH,), (WIDTH,)],
    mudd: [(LAYERS, WIDTH), (LAYERS, LAYERS), (LAYERS,)],
    grn: [(WIDTH,), (LAYERS, WIDTH)],
}
METHODS = pytest.mark.parametrize("method", list(LOOPS))


def weights_of(method):
    return [torch.randn(*shape, dtype=torch.float64) for shape in SHAPES[method]]


@METHODS
def test_equals_the_loops(method):
    sources, weights = torch.randn(3, 2, LAYERS, WIDTH, dtype=torch.float64), weights_of(method)
    results = method(sources, *weights)
    for row in range(3):
        for position in range(2):
            expected = LOOPS[method](sources[row, position].tolist(), *(weight.tolist() for weight in weights))
            torch.testing.assert_close(results[row, position], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(
    ("method", "function"), [(attention, depth_attention), (mudd, multiway_dense), (grn, generalized_residual)]
)
def test_weights_equal_the_loops(method, function):
    sources, parameters = torch.randn(LAYERS, WIDTH, dtype=torch.float64), weights_of(method)
    _, weights = function(sources, *parameters, epsilon=EPSILON)
    loops = getattr(reference, function.__name__)
    _, expected = loops(sources.tolist(), *(parameter.tolist() for parameter in parameters), EPSILON)
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))


@METHODS
def test_gradcheck(method):
    sources = torch.randn(2, LAYERS, WIDTH, dtype=torch.float64)
    values = [tensor.requires_grad_() for tensor in (sources, *weights_of(method))]
    assert torch.autograd.gradcheck(method, values)


@METHODS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(method, dtype):
    """The result is that of float32, rounded once; also under autocast, which would round the products."""
    sources = torch.randn(5, LAYERS, WIDTH).to(dtype)
    weights = [weight.float() for weight in weights_of(method)]
    expected = method(sources.float(), *weights).to(dtype)
    assert torch.equal(method(sources, *weights), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(method(sources, *weights), expected)


def test_relations():
    sources = torch.randn(3, LAYERS, WIDTH, dtype=torch.float64)
    zeros, top = torch.zeros(WIDTH, dtype=torch.float64), torch.eye(LAYERS, dtype=torch.float64)[-1]
    numbers, inner = torch.randn(LAYERS, dtype=torch.float64), torch.randn(LAYERS, WIDTH, dtype=torch.float64)
    assert torch.equal(dense(sources, top), sources[:, -1])
    torch.testing.assert_close(attention(sources, zeros, zeros + 2), sources.mean(dim=-2))
    order = torch.tensor([2, 0, 3, 1])
    query, gain = weights_of(attention)
    torch.testing.assert_close(attention(sources[:, order], query, gain), attention(sources, query, gain))
    torch.testing.assert_close(mudd(sources, inner, torch.zeros(LAYERS, LAYERS), numbers), dense(sources, numbers))
    torch.testing.assert_close(grn(sources, zeros, numbers[:, None].expand(-1, WIDTH)), dense(sources, numbers))
