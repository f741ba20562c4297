"""Additive attention, against loops."""

import pytest
import torch

from hf_capsule_mt.modeling.additive_attention import AdditiveAttention


@pytest.fixture
def attention():
    return AdditiveAttention(query_size=3, key_size=5, attention_size=4).double()


def make(batch_size=2, num_words=6, num_queries=3):
    return (
        torch.randn(batch_size, num_queries, 3, dtype=torch.float64),
        torch.randn(batch_size, num_words, 5, dtype=torch.float64),
    )


def test_equals_loops(attention):
    query, states = make()
    mask = torch.tensor([[True] * 6, [True, True, False, True, False, False]])
    contexts, weights = attention(query, attention.project_keys(states), states, mask)
    for row in range(2):
        words = [word for word in range(6) if mask[row, word]]
        for step in range(3):
            scores = []
            for word in words:
                hidden = attention.query_projection(query[row, step]) + attention.key_projection(states[row, word])
                scores.append(attention.score(hidden.tanh()))
            expected = torch.cat(scores).softmax(dim=0)
            torch.testing.assert_close(weights[row, step, words], expected)
            torch.testing.assert_close(contexts[row, step], expected @ states[row, words])
    assert (weights[1, :, ~mask[1]] == 0).all()


def test_padding_changes_nothing(attention):
    query, states = make()
    expected, _ = attention(query, attention.project_keys(states), states)
    padded = torch.cat([torch.randn(2, 2, 5, dtype=torch.float64), states], dim=1)
    mask = torch.arange(8).expand(2, 8) >= 2
    contexts, _ = attention(query, attention.project_keys(padded), padded, mask)
    torch.testing.assert_close(contexts, expected)


def test_gradient(attention):
    query, states = make()
    mask = torch.arange(6).expand(2, 6) < torch.tensor([[6], [3]])
    assert torch.autograd.gradcheck(
        lambda query, states: attention(query, attention.project_keys(states), states, mask),
        (query.requires_grad_(), states.requires_grad_()),
    )


def test_half_precision():
    attention = AdditiveAttention(3, 5, 4).to(torch.bfloat16)
    query, states = (tensor.to(torch.bfloat16) for tensor in make())
    mask = torch.arange(6).expand(2, 6) < torch.tensor([[6], [3]])
    contexts, weights = attention(query, attention.project_keys(states), states, mask)
    assert contexts.dtype == weights.dtype == torch.bfloat16
    assert contexts.isfinite().all()
