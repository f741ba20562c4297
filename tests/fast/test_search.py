"""The search of the PyTorch backend: the largest values of a large vocabulary."""

import pytest
import torch

from hf_capsule_mt.fast.search import GROUP, largest


@pytest.mark.parametrize("size", [1, 100, GROUP - 1, 1000, 21 * GROUP, 21 * GROUP + 1, 32000, 65001])
@pytest.mark.parametrize("count", [1, 2, 10])
def test_largest_is_topk(size, count):
    values = torch.randn(2, 3, size)
    count = min(count, size)
    best, indices = largest(values, count)
    expected = values.topk(count, dim=-1)
    assert torch.equal(best, expected.values)
    assert torch.equal(indices, expected.indices)


def test_largest_of_the_rest_and_of_forbidden_values():
    values = torch.full((1, 1, 50 * GROUP + 7), -torch.inf)
    values[..., -1], values[..., 5] = 2, 3
    best, indices = largest(values, 2)
    assert best.tolist() == [[[3, 2]]]
    assert indices.tolist() == [[[5, 50 * GROUP + 6]]]
    assert largest(values, 4)[0].isneginf().sum() == 2  # forbidden ones make up the number
