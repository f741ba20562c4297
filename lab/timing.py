"""Time models in turns in one process, so that a busy machine disturbs all of them alike: training and translation."""

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from hf_capsule_mt.analysis.routing_statistics import encoded_batches
from hf_capsule_mt.modeling.router import Router
from hf_capsule_mt.routing import RoutingOutput


@dataclass
class Timing:
    """Seconds over the counted runs."""

    median: float
    minimum: float
    maximum: float
    runs: int

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


@contextlib.contextmanager
def frozen_garbage() -> Iterator[None]:
    """Freeze all existing objects, so that collecting garbage inside is quick."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def steady_clock(device: str) -> Callable[[], float]:
    """Return the clock that other work disturbs least: processor time, if one thread does everything."""
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
    """Return the peak of the bytes that tensors hold during the run, beyond what they held before it.

    Free first what the run would free: it would count as negative.
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


def mean_of_votes(
    router: Router,
    votes: torch.Tensor,
    *,
    input_activation: torch.Tensor | None = None,
    return_weights: bool = False,
) -> RoutingOutput:
    """Average the votes, and add the mean of an input activation to keep the product that computes it."""
    mean = votes.mean(dim=-3)
    if input_activation is not None:  # [..., N, M], or [..., N]
        vector = input_activation if input_activation.dim() == mean.dim() else input_activation.unsqueeze(-1)
        mean = mean + vector.mean(dim=-2).unsqueeze(-1)
    return RoutingOutput(mean, None)


@contextlib.contextmanager
def routing_replaced_by_mean() -> Iterator[None]:
    """Replace every routing by the mean of its votes: what remains are the matrix products around it.

    The time of a model inside is the floor of its time outside, backward pass included.
    """
    route = Router.route
    Router.route = mean_of_votes  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Router.route = route  # type: ignore[method-assign]


ON_THEIR_OWN = 4  # sentences


def milliseconds_in_turns(
    models: dict[str, Any],
    tokenizer: Any,
    sources: list[str],
    targets: list[str],
    repeats: int = 10,
    new_tokens: int = 20,
    progress: Callable[[], None] | None = None,
) -> dict[str, dict[str, float]]:
    """For each model the milliseconds of three things, the least of several turns: other work only adds to it.

    "train": forward, backward and Adam on one batch. "decode": greedy search of that batch, a fixed number of words.
    "sentence": one of the first sentences on its own, by beam search with 8 beams (CapsNMT's Table 3), as many words
    as its reference has. No length depends on what a model says, so that it need not be trained. `progress` is called
    `(repeats + 1) * 3` times for each model.
    """
    device = str(next(iter(models.values())).device)
    batch = next(encoded_batches(tokenizer, sources, targets, len(sources), device))
    alone = list(encoded_batches(tokenizer, sources[:ON_THEIR_OWN], targets[:ON_THEIR_OWN], 1, device))
    runs = {
        "train": {name: _training_step(model, batch) for name, model in models.items()},
        "decode": {
            name: _decoding(model, [batch], num_beams=1, new_tokens=new_tokens) for name, model in models.items()
        },
        "sentence": {name: _decoding(model, alone, num_beams=8) for name, model in models.items()},
    }
    synchronize = torch.cuda.synchronize if device != "cpu" else None
    timings = {
        what: time_in_turns(of_models, repeats, 1, synchronize, progress, steady_clock(device))
        for what, of_models in runs.items()
    }
    for timing in timings["sentence"].values():
        timing.minimum /= len(alone)
    return {name: {what: 1000 * timings[what][name].minimum for what in runs} for name in models}


def _training_step(model: Any, batch: dict[str, torch.Tensor]) -> Any:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)  # the weights stay as they are

    def run() -> None:
        model.train()
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def _decoding(
    model: Any, batches: list[dict[str, torch.Tensor]], num_beams: int, new_tokens: int | None = None
) -> Any:
    """Translates each batch, to a fixed number of words, by default as many as its longest reference has."""

    def run() -> None:
        model.eval()
        for batch in batches:
            length = new_tokens or batch["labels"].shape[1]
            model.generate(
                batch["input_ids"],
                attention_mask=batch["attention_mask"],
                num_beams=num_beams,
                do_sample=False,
                min_new_tokens=length,
                max_new_tokens=length,
            )

    return run
