"""Measure how the time of a translation grows with the lengths of source and target (CapsNMT claims: linearly)."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from hf_capsule_mt.decoding.fast import FastTranslator
from lab.benchmark_tables import FIXED_LENGTH
from lab.timing import time_in_turns


def measure_lengths(
    models: Mapping[str, PreTrainedModel | FastTranslator],
    lengths: Sequence[int],
    *,
    num_beams: int = 1,
    repeats: int = 3,
    synchronize: Callable[[], None] | None = None,
    progress: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Translate random sentences of every length on either side, with all models in turns, through `generate()`.

    Returns:
        For "source" and "target", the side whose length varies: `rows`, with the seconds of encoding (a translation of
        one word), of the whole translation, and the milliseconds of each further word, by model; and `slopes`, by how
        many milliseconds a word gets slower with each word that the sentence is longer.
    """
    sweeps: dict[str, Any] = {}
    for side in ("source", "target"):
        rows: list[dict[str, Any]] = []
        for length in lengths:
            source_length, target_length = (length, FIXED_LENGTH) if side == "source" else (FIXED_LENGTH, length)
            runs = {}
            for name, model in models.items():
                plain = model.model if isinstance(model, FastTranslator) else model
                source = torch.randint(2, plain.config.vocab_size, (1, source_length), device=plain.device)
                for part, num_words in (("encode", 1), ("translate", target_length)):
                    runs[f"{name} {part}"] = generation(model, source, num_words, num_beams)
            timings = time_in_turns(runs, repeats, synchronize=synchronize, progress=progress, clock=clock)
            seconds = {name: timing.median for name, timing in timings.items()}
            rows.append(
                {
                    "source_length": source_length,
                    "target_length": target_length,
                    "seconds": {name: timing.as_dict() for name, timing in timings.items()},
                    "milliseconds_per_word": {
                        name: 1000 * (seconds[f"{name} translate"] - seconds[f"{name} encode"]) / (target_length - 1)
                        for name in models
                    },
                }
            )
        slopes = {name: slope([row["milliseconds_per_word"][name] for row in rows], lengths) for name in models}
        sweeps[side] = {"rows": rows, "slopes": slopes}
    return sweeps


def generation(
    model: PreTrainedModel | FastTranslator, source: torch.Tensor, num_words: int, num_beams: int
) -> Callable[[], Any]:
    """Return a run that generates so many words."""
    return lambda: model.generate(  # type: ignore[operator]
        source, max_new_tokens=num_words, min_new_tokens=num_words, num_beams=num_beams
    )


def slope(values: Sequence[float], lengths: Sequence[int]) -> dict[str, float]:
    """Fit a line by least squares: return its slope per word, the standard error of it, and the mean value."""
    fit = statistics.linear_regression(lengths, values)
    residuals = [v - fit.slope * length - fit.intercept for v, length in zip(values, lengths, strict=True)]
    spread = sum((length - statistics.fmean(lengths)) ** 2 for length in lengths)
    variance = sum(residual**2 for residual in residuals) / max(1, len(values) - 2)
    return {"per_word": fit.slope, "standard_error": (variance / spread) ** 0.5, "mean": statistics.fmean(values)}
