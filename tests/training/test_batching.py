"""Token-budget batches: the budget, once per epoch, shuffling, and the same number on every rank."""

import numpy as np
import pytest
from accelerate.data_loader import BatchSamplerShard

from hf_capsule_mt.training import TokenBudgetBatchSampler


def lengths(number, seed=0, longest=90):
    chance = np.random.default_rng(seed)
    source = np.clip(chance.lognormal(2.6, 0.6, number).astype(int) + 1, 2, longest)
    target = np.clip((source * chance.normal(1.1, 0.15, number)).astype(int) + 1, 2, longest)
    return source, target


def padded_tokens(batch, source, target):
    return len(batch) * (source[batch].max() + target[batch].max())


@pytest.mark.parametrize("number", [8, 100, 3000])
@pytest.mark.parametrize("multiple_of", [1, 3, 8])
def test_budget_coverage_and_count(number, multiple_of):
    source, target = lengths(number)
    sampler = TokenBudgetBatchSampler(source, target, max_tokens=512, multiple_of=multiple_of, seed=3)
    assert len(sampler) % multiple_of == 0
    for epoch in (0, 1, 17):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == len(sampler)
        assert sorted(index for batch in batches for index in batch) == list(range(number))
        for batch in batches:
            assert batch
            assert padded_tokens(batch, source, target) <= 512


def test_batches_are_a_pure_function_of_seed_and_epoch():
    source, target = lengths(500)

    def batches(seed, epoch, visited=()):
        sampler = TokenBudgetBatchSampler(source, target, 512, seed=seed)
        for earlier_epoch in visited:
            sampler.set_epoch(earlier_epoch)
            list(sampler)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert batches(1, 5) == batches(1, 5, visited=(0, 1, 2))
    assert batches(1, 5) != batches(1, 6)
    assert batches(1, 5) != batches(2, 5)


def test_shuffled():
    """Lengths come in no order, and who is in a batch with whom changes."""
    source, target = lengths(5000)
    sampler = TokenBudgetBatchSampler(source, target, 1024)
    first = list(sampler)
    means = np.array([source[batch].mean() for batch in first])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.2
    sampler.set_epoch(1)
    together = {index: set(batch) for batch in sampler for index in batch}
    pairs = [len(together[index] & set(batch)) / len(batch) for batch in first if len(batch) > 4 for index in batch]
    assert np.mean(pairs) < 0.5


@pytest.mark.parametrize("processes", [2, 3])
def test_every_rank_has_as_many_batches_and_no_example_is_shared(processes):
    source, target = lengths(700)
    sampler = TokenBudgetBatchSampler(source, target, 512, multiple_of=processes)
    ranks = [
        list(BatchSamplerShard(sampler, num_processes=processes, process_index=rank, even_batches=False))
        for rank in range(processes)
    ]
    assert {len(batches) for batches in ranks} == {len(sampler) // processes}
    assert sorted(index for batches in ranks for batch in batches for index in batch) == list(range(700))
    # one process that accumulates as many batches sees the same ones in the same steps
    assert [batch for step in zip(*ranks, strict=True) for batch in step] == list(sampler)


def test_errors():
    with pytest.raises(ValueError, match=r"example 1 alone has 31 tokens.*more than `max_tokens` \(30\)"):
        TokenBudgetBatchSampler([3, 20], [4, 11], 30)
    with pytest.raises(ValueError, match="2 examples cannot be dealt to batches whose number is a multiple of 3"):
        TokenBudgetBatchSampler([3, 2], [4, 1], 30, multiple_of=3)
    with pytest.raises(ValueError, match="there are no examples"):
        TokenBudgetBatchSampler([], [], 30)
