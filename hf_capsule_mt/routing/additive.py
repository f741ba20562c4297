"""Additive scores w . tanh(q + k) for all pairs of queries and keys: those of guided routing (equation 7 of Zheng et
al. 2019) and of the attention of Bahdanau et al. 2015.

Legend: T queries, N keys, D width.
"""

from collections.abc import Iterator
from typing import Any

import torch

from hf_capsule_mt.routing.chunks import chunk_numbers
from hf_capsule_mt.routing.common import is_traced, iteration_dtype, may_read_values, without_autocast

# for q and k up to this size, float32 holds e^(2q) and e^(2k); where their product overflows or underflows,
# tanh(q + k) is 1 or -1 anyway
LARGEST_SEPARABLE = 40.0
# Numbers in a chunk on a CPU, for long or wide inputs. Threads wait for each other after every pass over a chunk: two
# threads on a busy machine took 3.5 times as long with 2^18 numbers, which one thread computes equally fast (60 x 38
# queries, 40 keys, width 512). With 2^22 numbers, which leave the cache, one thread takes twice as long.
MAX_ON_HOST = 2**20


def additive_scores(query: torch.Tensor, keys: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return w . tanh(q_t + k_n) for all t and n, holding a slice of a large [..., T, N, D] tensor at a time.

    Args:
        query: q [..., T, D].
        keys: k [..., N, D], with the same leading sizes.
        weight: w [D].

    Returns:
        Scores [..., T, N], in float32 at least.

    Traced by a compiler, it is the plain formula.
    """
    dtype = iteration_dtype(keys)
    query, keys, weight = query.to(dtype), keys.to(dtype), weight.to(dtype)
    with without_autocast(keys):
        if is_traced(keys):
            return torch.matmul(torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3)), weight)
        rows = keys.shape[:-2].numel()
        scores = _AdditiveScores.apply(
            query.reshape(rows, *query.shape[-2:]), keys.reshape(rows, *keys.shape[-2:]), weight
        )
        return scores.view(*query.shape[:-1], keys.shape[-2])


class _AdditiveScores(torch.autograd.Function):
    """Compute the scores from gates r = sigmoid(-2 (q + k)): tanh(q + k) = 1 - 2 r, and its slope is 4 r (1 - r).

    The gates r are computed a chunk at a time, and once more in the backward pass. On a CPU, where a tanh costs as
    much as forty multiplications, r = 1 / (1 + e^(2q) e^(2k)): exponentials of queries and keys, not of their pairs.
    """

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, keys: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """[R, T, D], [R, N, D] and [D] -> [R, T, N]."""
        ctx.save_for_backward(query, keys, weight)
        scores = query.new_empty(*query.shape[:2], keys.shape[1])
        for rows, steps, gates in _chunks_of_gates(query, keys):
            scores[rows, steps] = torch.mv(gates.view(-1, len(weight)), weight).view(gates.shape[:-1])
        return scores.mul_(-2).add_(weight.sum())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
        query, keys, weight = ctx.saved_tensors
        grad_query, grad_keys = torch.zeros_like(query), torch.zeros_like(keys)
        grad_weight = torch.zeros_like(weight)
        with without_autocast(query):
            for rows, steps, gates in _chunks_of_gates(query, keys):
                grad = grad_scores[rows, steps]  # [R, T, N]
                row_sums = torch.bmm(grad.reshape(len(grad), 1, -1), gates.flatten(1, 2))  # short sums
                grad_weight += row_sums.sum(dim=(0, 1))
                slopes = torch.ops.aten.sigmoid_backward(grad.unsqueeze(-1), gates)  # g r (1 - r) [R, T, N, D]
                grad_query[rows, steps] = slopes.sum(dim=2)
                grad_keys[rows] += slopes.sum(dim=1)
        grad_weight = grad_scores.sum() - 2 * grad_weight
        return grad_query.mul_(4 * weight), grad_keys.mul_(4 * weight), grad_weight


def _chunks_of_gates(query: torch.Tensor, keys: torch.Tensor) -> Iterator[tuple[slice, slice, torch.Tensor]]:
    """Yield the gates r of queries [R, T, D] and keys [R, N, D] by chunks: rows, queries and r [R', T', N, D]."""
    num_rows, num_queries, _ = query.shape
    if query.numel() == 0 or keys.numel() == 0:
        return
    numbers_per_query = keys[0].numel()
    numbers = chunk_numbers(keys, num_rows * num_queries * numbers_per_query, MAX_ON_HOST)
    queries_at_once = min(num_queries, max(1, numbers // numbers_per_query))
    rows_at_once = min(num_rows, max(1, numbers // (queries_at_once * numbers_per_query)))
    separable = may_read_values(query) and num_queries > 1 and _all_below(LARGEST_SEPARABLE, query, keys)
    buffer = query.new_empty(rows_at_once * queries_at_once * numbers_per_query)
    unit = query.new_ones(())
    for row in range(0, num_rows, rows_at_once):
        rows = slice(row, row + rows_at_once)
        key_terms = (2 * keys[rows]).exp_() if separable else keys[rows]
        key_terms = key_terms.unsqueeze(1)  # [R', 1, N, D]
        for step in range(0, num_queries, queries_at_once):
            steps = slice(step, step + queries_at_once)
            query_terms = (2 * query[rows, steps]).exp_() if separable else query[rows, steps]
            query_terms = query_terms.unsqueeze(2)  # [R', T', 1, D]
            shape = (query_terms.shape[0], query_terms.shape[1], *key_terms.shape[2:])
            gates = buffer[: torch.Size(shape).numel()].view(shape)
            if separable:
                torch.addcmul(unit, query_terms, key_terms, out=gates)
                yield rows, steps, gates.reciprocal_()
            else:
                torch.add(-2 * query_terms, key_terms, alpha=-2, out=gates)
                yield rows, steps, gates.sigmoid_()


def _all_below(limit: float, *tensors: torch.Tensor) -> bool:
    return all(bool(tensor.abs().amax() < limit) for tensor in tensors)
