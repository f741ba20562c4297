"""Timing that can be trusted on a shared machine: what is compared runs in turns in one process."""

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile

from hf_capsule_mt.modeling import head_aggregation, layer_aggregation


@dataclass
class Timing:
    """Seconds of one thing, over the counted runs."""

    median: float
    minimum: float
    maximum: float
    runs: int

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


@contextlib.contextmanager
def only_new_objects_are_searched() -> Iterator[None]:
    """Inside, collecting garbage is quick: what was there before stays."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def steady_clock(device: str) -> Callable[[], float]:
    """The clock that other work on the machine disturbs least: processor time, where one thread does everything."""
    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


def time_in_turns(
    runs: dict[str, Callable[[], Any]],
    repeats: int,
    warmup: int = 1,
    synchronize: Callable[[], None] | None = None,
    progress: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Runs everything once, then everything again, `warmup` + `repeats` times: A B C A B C ...

    A machine that slows down slows all of them down, so that their ratios hold. See `steady_clock` for one that others
    use too.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with only_new_objects_are_searched():
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
    """The most bytes that tensors held at once during the run, beyond what they held before it.

    What the run itself frees of what was there before would be taken off: free it first.
    """
    gc.collect()
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


@contextlib.contextmanager
def routing_replaced_by_mean() -> Iterator[None]:
    """Inside, every routing is the plain mean of its votes: what remains are the matrix products around it.

    The time of a model inside is the floor of its time outside. An input activation adds its mean, so that the
    product that makes it stays, backward pass included.
    """

    def mean_of_votes(
        votes: torch.Tensor, *, input_activation: torch.Tensor | None = None, **_: Any
    ) -> tuple[torch.Tensor, None]:
        mean = votes.mean(dim=-3)
        if input_activation is not None:  # [..., N, M], or [..., N]
            vector = input_activation if input_activation.dim() == mean.dim() else input_activation.unsqueeze(-1)
            mean = mean + vector.mean(dim=-2).unsqueeze(-1)
        return mean, None

    with contextlib.ExitStack() as stack:
        for module in (layer_aggregation, head_aggregation):
            for name in ("dynamic_routing", "em_routing"):
                stack.enter_context(mock.patch.object(module, name, mean_of_votes))
        yield
