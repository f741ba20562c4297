"""Time models in turns in one process, so that a busy machine disturbs all of them alike."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def time_in_turns(
    runs: Mapping[str, Callable[[], Any]],
    repeats: int,
    progress: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds of runs that take turns, `repeats` times after an uncounted one: A B C A B C ...

    A machine that slows down slows all of them down, so their ratios hold.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    gc.collect()
    gc.freeze()  # what exists already, so that each collection below is quick
    for turn in range(1 + repeats):
        for name, run in runs.items():
            gc.collect()
            start = clock()
            run()
            if turn > 0:
                seconds[name].append(clock() - start)
            if progress is not None:
                progress()
    gc.unfreeze()
    return {name: statistics.median(values) for name, values in seconds.items()}
