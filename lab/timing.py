"""Time models in turns in one process, so that a busy machine disturbs all of them alike."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from tqdm import trange


def time_in_turns(
    runs: Mapping[str, Callable[[], Any]],
    repeats: int,
    title: str,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds of runs that take turns, `repeats` times after an uncounted one: A B C A B C ...

    A machine that slows down slows all of them down, so their ratios hold. A progress bar has the title.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    gc.collect()
    gc.freeze()  # what exists already, so that each collection below is quick
    for turn in trange(1 + repeats, desc=title, leave=False):
        for name, run in runs.items():
            gc.collect()
            start = clock()
            run()
            if turn > 0:
                seconds[name].append(clock() - start)
    gc.unfreeze()
    return {name: statistics.median(values) for name, values in seconds.items()}
