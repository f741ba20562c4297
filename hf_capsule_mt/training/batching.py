"""Batches of a bounded number of tokens: bucketed by length, shuffled, the same number on every process."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """Yield batches of indices whose padded source and target together have at most `max_tokens` tokens.

    Plan the batches once, from the lengths alone: which batch holds how many examples of which lengths. Each epoch
    shuffles examples of similar length among their slots and shuffles the batches. Thus the number of batches is
    constant, as the Trainer's schedule requires, each example occurs once per epoch, and the batches depend only on
    the seed and the epoch.

    All processes share one list of batches: accelerate gives batch i to process i modulo the number of processes.
    The number of batches is a multiple of processes x accumulation steps.

    Args:
        source_lengths, target_lengths: the number of tokens of each example, end tokens included.
        max_tokens: the limit on (longest source + longest target) x number of examples in a batch.
        multiple_of: make the number of batches a multiple of this: processes x accumulation steps.
        seed: the seed of the shuffling.
    """

    # accelerate reads these two and `sampler`, on which it calls `set_epoch`: batches vary in size, none is dropped
    batch_size = None
    drop_last = False

    def __init__(
        self,
        source_lengths: Sequence[int],
        target_lengths: Sequence[int],
        max_tokens: int,
        *,
        multiple_of: int = 1,
        seed: int = 0,
    ) -> None:
        lengths = np.stack([np.asarray(source_lengths), np.asarray(target_lengths)])  # [2, examples]
        costs = lengths.sum(0)
        if not costs.size:
            raise ValueError("there are no examples to make batches of")
        if costs.max() > max_tokens:
            worst = int(costs.argmax())
            raise ValueError(
                f"example {worst} alone has {int(costs[worst])} tokens, source and target together, more than "
                f"`max_tokens` ({max_tokens}) allows in a batch: raise it, or drop long examples"
            )
        self.seed = seed
        self.epoch = 0
        self.sampler = self
        cells = _cells(lengths)
        self.order = _snake_order(lengths, cells)  # the slots, sorted by length
        self.cell_of_example = _merge_small_cells(lengths, cells, self.order, max_tokens)
        self.sizes = _batch_sizes(lengths[:, self.order], max_tokens, self.cell_of_example[self.order], multiple_of)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[list[int]]:
        chance = np.random.default_rng([self.seed, self.epoch])
        # Sorting by (cell, random number) shuffles the examples of each cell among its slots
        shuffled = np.lexsort((chance.random(self.order.size), self.cell_of_example))
        slots = np.argsort(self.cell_of_example[self.order], kind="stable")
        dealt = np.empty_like(self.order)
        dealt[slots] = shuffled
        batches = np.split(dealt, np.cumsum(self.sizes)[:-1])
        for batch in chance.permutation(len(batches)):
            yield batches[batch].tolist()


def _cells(lengths: np.ndarray) -> np.ndarray:
    """Return the cell of each example [examples]: cells group similar lengths and are numbered by length."""
    bucket = np.where(lengths < 16, lengths, 16 + np.floor(8 * np.log2(np.maximum(lengths, 16) / 16)).astype(int))
    _, cells = np.unique(bucket, axis=1, return_inverse=True)
    return cells.reshape(-1)


def _largest_of_cell(lengths: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the longest source and target in the cell of each example [2, examples]."""
    largest = np.zeros((2, cells.max() + 1), dtype=lengths.dtype)
    for side in (0, 1):
        np.maximum.at(largest[side], cells, lengths[side])
    return largest[:, cells]


def _snake_order(lengths: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Sort cells by their longest source, then by their longest target, alternately ascending and descending."""
    source, target = _largest_of_cell(lengths, cells)
    _, row = np.unique(source, return_inverse=True)
    return np.lexsort((cells, np.where(row.reshape(-1) % 2, -target, target), source))


def _merge_small_cells(lengths: np.ndarray, cells: np.ndarray, order: np.ndarray, max_tokens: int) -> np.ndarray:
    """Merge neighbouring cells until each but the last fills a batch, or examples would share one in every epoch."""
    in_order = cells[order]
    first = np.flatnonzero(np.r_[True, in_order[1:] != in_order[:-1]])
    merged, number, tokens = [], 0, 0
    for batch_tokens in np.add.reduceat(lengths.sum(0)[order], first).tolist():
        merged.append(number)
        tokens += batch_tokens
        if tokens >= max_tokens:
            number, tokens = number + 1, 0
    result = np.empty_like(cells)
    result[order] = np.repeat(merged, np.diff(np.r_[first, order.size]))
    return result


def _batch_sizes(lengths: np.ndarray, max_tokens: int, cells: np.ndarray, multiple_of: int) -> np.ndarray:
    """Return the number of slots in each batch; every example of a cell must fit into any slot of the cell."""
    sizes: list[int] = []
    count = longest_source = longest_target = 0
    for source, target in zip(*_largest_of_cell(lengths, cells).tolist(), strict=True):
        wider_source, wider_target = max(longest_source, source), max(longest_target, target)
        if count and (count + 1) * (wider_source + wider_target) > max_tokens:
            sizes.append(count)
            count, wider_source, wider_target = 0, source, target
        count, longest_source, longest_target = count + 1, wider_source, wider_target
    sizes.append(count)
    return _split_to_multiple(sizes, multiple_of)


def _split_to_multiple(sizes: list[int], multiple_of: int) -> np.ndarray:
    """Halve the largest batches until their number is a multiple of `multiple_of`."""
    target = math.ceil(len(sizes) / multiple_of) * multiple_of
    if target > sum(sizes):
        raise ValueError(
            f"{sum(sizes)} examples cannot be dealt to batches whose number is a multiple of {multiple_of} "
            "(processes x accumulation steps)"
        )
    pieces = [[size] for size in sizes]
    for _ in range(target - len(sizes)):
        widest = max(range(len(pieces)), key=lambda index: max(pieces[index]))
        largest = pieces[widest].index(max(pieces[widest]))
        size = pieces[widest][largest]
        pieces[widest][largest : largest + 1] = [size - size // 2, size // 2]
    return np.array([size for batch in pieces for size in batch])
