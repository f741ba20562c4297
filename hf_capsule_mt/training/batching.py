"""Batches of a bounded number of tokens: bucketed by length, shuffled, the same number on every process."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """Yields lists of indices whose padded source and target together have at most `max_tokens` tokens.

    What is fixed once, from the lengths alone, is the plan: how many examples of which lengths stand in which batch.
    Every epoch deals the examples anew among the places of their lengths and puts the batches in a new order. So the
    number of batches never changes, which is what the Trainer builds its schedule on; every example comes exactly
    once in an epoch; and the batches are a pure function of the seed and the epoch, whatever happened before.

    The batches of all processes come out of one list: accelerate gives batch i to process i modulo their number.
    That number, and the accumulation steps, divide the number of batches.

    Args:
        source_lengths, target_lengths: the number of tokens of each example, end tokens included.
        max_tokens: the largest (longest source + longest target) x number of examples of a batch.
        multiple_of: divides the number of batches: processes x accumulation steps.
        seed: of the shuffling.
        pad_to_multiple_of: lengths are counted as rounded up to this.
    """

    # accelerate reads these three: batches vary in size, none is dropped, and `set_epoch` is found at `sampler`
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
        pad_to_multiple_of: int = 1,
    ) -> None:
        lengths = np.stack([np.asarray(source_lengths), np.asarray(target_lengths)])  # [2, examples]
        lengths = -(-lengths // pad_to_multiple_of) * pad_to_multiple_of
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
        self.order = _snake_order(lengths, cells)  # the places, sorted by length
        self.cell_of_example = _merge_small_cells(lengths, cells, self.order, max_tokens)
        self.sizes = _batch_sizes(lengths[:, self.order], max_tokens, self.cell_of_example[self.order], multiple_of)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[list[int]]:
        chance = np.random.default_rng([self.seed, self.epoch])
        # Sorting by (cell, random number) deals the examples of a cell to the places of that cell
        shuffled = np.lexsort((chance.random(self.order.size), self.cell_of_example))
        places = np.argsort(self.cell_of_example[self.order], kind="stable")
        dealt = np.empty_like(self.order)
        dealt[places] = shuffled
        batches = np.split(dealt, np.cumsum(self.sizes)[:-1])
        for batch in chance.permutation(len(batches)):
            yield batches[batch].tolist()


def _cells(lengths: np.ndarray) -> np.ndarray:
    """[examples]: the number of the cell of alike lengths that an example is in; they grow with the length."""
    bucket = np.where(lengths < 16, lengths, 16 + np.floor(8 * np.log2(np.maximum(lengths, 16) / 16)).astype(int))
    _, cells = np.unique(bucket, axis=1, return_inverse=True)
    return cells.reshape(-1)


def _largest_of_cell(lengths: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """[2, examples]: the largest lengths in the cell of each example."""
    largest = np.zeros((2, cells.max() + 1), dtype=lengths.dtype)
    for side in (0, 1):
        np.maximum.at(largest[side], cells, lengths[side])
    return largest[:, cells]


def _snake_order(lengths: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Examples by source length, those of alike sources by target length, up and down in turn."""
    source, target = _largest_of_cell(lengths, cells)
    _, row = np.unique(source, return_inverse=True)
    return np.lexsort((cells, np.where(row.reshape(-1) % 2, -target, target), source))


def _merge_small_cells(lengths: np.ndarray, cells: np.ndarray, order: np.ndarray, max_tokens: int) -> np.ndarray:
    """Cells that stand one after the other, merged until they fill a batch: else its examples would never part."""
    in_order = cells[order]
    first = np.flatnonzero(np.r_[True, in_order[1:] != in_order[:-1]])
    merged, number, tokens = [], 0, 0
    for more in np.add.reduceat(lengths.sum(0)[order], first).tolist():
        merged.append(number)
        tokens += more
        if tokens >= max_tokens:
            number, tokens = number + 1, 0
    result = np.empty_like(cells)
    result[order] = np.repeat(merged, np.diff(np.r_[first, order.size]))
    return result


def _batch_sizes(lengths: np.ndarray, max_tokens: int, cells: np.ndarray, multiple_of: int) -> np.ndarray:
    """How many places, of those in order, stand in each batch; any example of a cell must fit into its places."""
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
    """Halves the batches of the most examples until the number of batches is a multiple."""
    wanted = math.ceil(len(sizes) / multiple_of) * multiple_of
    if wanted > sum(sizes):
        raise ValueError(
            f"{sum(sizes)} examples cannot be dealt to batches whose number is a multiple of {multiple_of} "
            "(processes x accumulation steps)"
        )
    pieces = [[size] for size in sizes]
    for _ in range(wanted - len(sizes)):
        widest = max(range(len(pieces)), key=lambda index: max(pieces[index]))
        largest = pieces[widest].index(max(pieces[widest]))
        size = pieces[widest][largest]
        pieces[widest][largest : largest + 1] = [size - size // 2, size // 2]
    return np.array([size for batch in pieces for size in batch])
