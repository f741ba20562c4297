"""Time models in turns in one process, so that a busy machine disturbs all of them alike."""

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Timing:
    """Seconds of a run, over all runs after the warmup."""

    median: float
    minimum: float
    maximum: float
    runs: int

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


@contextlib.contextmanager
def frozen_garbage() -> Iterator[None]:
    """Freeze all existing objects, so that garbage collection in the block is quick."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def time_in_turns(
    runs: dict[str, Callable[[], Any]],
    repeats: int,
    warmup: int = 1,
    synchronize: Callable[[], None] | None = None,
    progress: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time runs in turns, `warmup` + `repeats` times: A B C A B C ...

    A machine that slows down slows all of them down, so their ratios hold.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with frozen_garbage():
        for turn in range(warmup + repeats):
            for name, run in runs.items():
                gc.collect()
                if synchronize is not None:
                    synchronize()
                start = clock()
                run()
                if synchronize is not None:
                    synchronize()
                if turn >= warmup:
                    seconds[name].append(clock() - start)
                if progress is not None:
                    progress()
    return {
        name: Timing(statistics.median(values), min(values), max(values), len(values))
        for name, values in seconds.items()
    }
