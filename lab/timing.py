"""Time models in turns in one process, so that a busy machine disturbs all of them alike."""

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from hf_capsule_mt.modeling.router import Router
from hf_capsule_mt.routing import RoutingOutput


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


def steady_clock(device: str) -> Callable[[], float]:
    """Return the clock that other processes disturb least: processor time for one thread on the CPU."""
    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


def time_in_turns(
    runs: dict[str, Callable[[], Any]],
    repeats: int,
    warmup: int = 1,
    synchronize: Callable[[], None] | None = None,
    progress: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time runs in turns, `warmup` + `repeats` times: A B C A B C ...

    A machine that slows down slows all of them down, so their ratios hold. Use `steady_clock` on a shared machine.
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


def peak_memory(run: Callable[[], Any], device: str) -> int:
    """Return the peak number of bytes that tensors take during a run, minus those before it.

    Before the call, free tensors that the run would free, as they would lower the result.
    """
    gc.collect()
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        allocated = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - allocated
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    current = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        current += event.nbytes()
        peak = max(peak, current)
    return peak


def mean_of_votes(
    router: Router,
    votes: torch.Tensor,
    *,
    input_activation: torch.Tensor | None = None,
    return_weights: bool = False,
) -> RoutingOutput:
    """Average the votes; add the mean of the input activation, so that the product that computes it still runs."""
    mean = votes.mean(dim=-3)
    if input_activation is not None:  # [..., N, M], or [..., N]
        vector = input_activation if input_activation.dim() == mean.dim() else input_activation.unsqueeze(-1)
        mean = mean + vector.mean(dim=-2).unsqueeze(-1)
    return RoutingOutput(mean, None)


@contextlib.contextmanager
def routing_replaced_by_mean() -> Iterator[None]:
    """In the block, replace every routing by the mean of its votes, so only the matrix products around it remain.

    A model with real routing cannot be faster than in the block, with and without the backward pass.
    """
    route = Router.route
    Router.route = mean_of_votes  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Router.route = route  # type: ignore[method-assign]
