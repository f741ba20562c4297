"""Additive scores: the chunked form against the plain one, in values, gradients, range and memory."""

import itertools

import pytest
import torch

from hf_capsule_mt.routing import additive_scores, guided_routing
from hf_capsule_mt.routing.additive import _chunks_of_gates


def plain(query, keys, weight):
    return torch.matmul(torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3)), weight)


def make(num_queries=4, num_keys=5, width=3, batch=(2,), dtype=torch.float64, scale=1.0):
    query = torch.randn(*batch, num_queries, width, dtype=dtype) * scale
    keys = torch.randn(*batch, num_keys, width, dtype=dtype) * scale
    return query, keys, torch.randn(width, dtype=dtype)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("numbers", [2**18, 40, 7])  # one chunk; some queries of a row; one query at a time
def test_equals_the_plain_form(scale, numbers, monkeypatch):
    monkeypatch.setattr("hf_capsule_mt.routing.additive.chunk_numbers", lambda keys, total, max_on_host: numbers)
    arguments = [tensor.requires_grad_() for tensor in make(batch=(2, 3), scale=scale)]
    expected, actual = plain(*arguments), additive_scores(*arguments)
    torch.testing.assert_close(actual, expected)
    grad = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad(actual, arguments, grad), torch.autograd.grad(expected, arguments, grad), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-6)


@pytest.mark.parametrize(("num_rows", "num_chunks"), [(1, 3), (24, 24), (96, 96)])
def test_chunks_are_few_and_small(num_rows, num_chunks):
    """Threads wait for each other after each pass over a chunk, so many small chunks take long on a busy machine."""
    query, keys, _ = make(32, 43, 512, batch=(num_rows,), dtype=torch.float32)
    sizes = [gates.numel() for _, _, gates in _chunks_of_gates(query, keys)]
    assert sum(sizes) == num_rows * 32 * 43 * 512
    assert len(sizes) <= num_chunks
    assert max(sizes) <= 2**20  # 4 MiB


def test_large_numbers_that_cancel():
    """e^(2q) and e^(2k) may overflow where the tanh of the sum does not."""
    sizes = (0.0, 39.9, 44.0, 100.0, 1e4)
    for from_query, from_key in itertools.product((*sizes, -39.9, -1e4), (*(-size for size in sizes), 39.9, 1e4)):
        query = torch.full((1, 1, 2), from_query, requires_grad=True)
        keys = torch.full((1, 1, 2), from_key) + torch.tensor([0.0, 0.5])
        score = additive_scores(query, keys, torch.ones(2))
        exact = torch.tanh(query.double() + keys.double())
        torch.testing.assert_close(score.squeeze(), exact.sum().float(), atol=2e-5, rtol=1e-5)
        score.sum().backward()
        slope = (1 - exact.square()).squeeze().float()
        torch.testing.assert_close(query.grad.squeeze(), slope, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_are_float32_under_half_precision_and_autocast(dtype):
    query, keys, weight = make(dtype=torch.float32)
    expected = additive_scores(query, keys, weight)
    with torch.autocast("cpu", dtype=dtype):
        under_autocast = additive_scores(query, keys, weight)
    torch.testing.assert_close(under_autocast, expected)
    assert additive_scores(query.to(dtype), keys.to(dtype), weight.to(dtype)).dtype == torch.float32


class LargestTensor(torch.utils._python_dispatch.TorchDispatchMode):
    """The most numbers that any tensor made inside has."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


def largest_tensor(length, num_outputs=6, width=64):
    """Of guided routing, forward and backward, with so many source and target words."""
    votes = torch.randn(1, length, num_outputs, width, requires_grad=True)
    query = torch.randn(1, length, width, requires_grad=True)
    matrix = torch.randn(width, width, requires_grad=True)
    weights = {"query_weight": matrix, "vote_weight": matrix, "capsule_weight": matrix, "score_weight": matrix[0]}
    with LargestTensor() as largest:
        guided_routing(votes, query, **weights, num_iterations=3).capsules.sum().backward()
    return largest.numbers


def test_no_tensor_of_all_pairs_in_guided_routing():
    short, long = largest_tensor(64), largest_tensor(128)
    assert short < 64 * 64 * 6 * 64 / 4
    assert long <= 2 * short  # linear, not quadratic
