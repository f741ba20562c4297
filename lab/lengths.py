"""How the time of a translation grows with the lengths of source and target (CapsNMT claims: linearly)."""

import argparse
import functools
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, MarianConfig, MarianMTModel, PreTrainedModel

from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration
from hf_capsule_mt.decoding.fast import FastTranslator
from hf_capsule_mt.evaluation.results import markdown_table
from lab.timing import time_in_turns

WIDTH, VOCABULARY = 512, 32000
FIXED_LENGTH = 50  # words of the side whose length does not vary


def build(name: str) -> PreTrainedModel:
    """Return CapsNMT or Marian of the base size, with random weights, or the checkpoint in a folder."""
    torch.manual_seed(0)
    if name == "CapsNMT":
        return CapsNMTForConditionalGeneration(CapsNMTConfig(hidden_size=WIDTH, vocab_size=VOCABULARY))
    if name != "Marian":
        return AutoModelForSeq2SeqLM.from_pretrained(name)
    sizes: dict[str, Any] = {"d_model": WIDTH, "vocab_size": VOCABULARY, "max_position_embeddings": 512}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 6, f"{side}_attention_heads": 8, f"{side}_ffn_dim": 4 * WIDTH}
    sizes |= {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    return MarianMTModel(MarianConfig(**sizes, activation_function="relu"))


def measure_by_length(arguments: argparse.Namespace) -> dict[str, Any]:
    """Translate random sentences of every length on either side, with all models in turns, through `generate()`.

    Returns:
        For "source" and "target", the side whose length varies: `rows`, with the seconds of encoding (a translation of
        one word), of the whole translation, and the milliseconds of each further word, by model; and `slopes`, by how
        many milliseconds a word gets slower with each word that the sentence is longer.
    """
    models: dict[str, Any] = {name: build(name).eval() for name in arguments.models}
    vocabulary = min(model.config.vocab_size for model in models.values())
    if arguments.native:
        native = {title: FastTranslator(model, int8=True, strict=True) for title, model in models.items()}
        models |= {f"{title}, native int8": engine for title, engine in native.items()}
    clock = time.process_time if arguments.processor_time else time.perf_counter
    sweeps: dict[str, Any] = {}
    for side in ("source", "target"):
        rows: list[dict[str, Any]] = []
        for length in arguments.lengths:
            source_length, target_length = (length, FIXED_LENGTH) if side == "source" else (FIXED_LENGTH, length)
            source = torch.randint(2, vocabulary, (1, source_length))
            runs = {
                f"{name} {part}": functools.partial(
                    model.generate, source, max_new_tokens=num_words, min_new_tokens=num_words, num_beams=1
                )
                for name, model in models.items()
                for part, num_words in (("encode", 1), ("translate", target_length))
            }
            timings = time_in_turns(runs, arguments.repeats, f"{side}, {length} words", clock)
            rows.append({
                "source_length": source_length,
                "target_length": target_length,
                "seconds": {name: {"median": median} for name, median in timings.items()},
                "milliseconds_per_word": {
                    name: 1000 * (timings[f"{name} translate"] - timings[f"{name} encode"]) / (target_length - 1)
                    for name in models
                },
            })  # fmt: skip
        slopes = {
            name: slope([row["milliseconds_per_word"][name] for row in rows], arguments.lengths) for name in models
        }
        sweeps[side] = {"rows": rows, "slopes": slopes}
    clock_name = "processor time" if arguments.processor_time else "time"
    return {"repeats": arguments.repeats, "num_beams": 1, "clock": clock_name, "sweeps": sweeps}


def slope(values: Sequence[float], lengths: Sequence[int]) -> dict[str, float]:
    """Fit a line by least squares: return its slope per word, the standard error of it, and the mean value."""
    fit = statistics.linear_regression(lengths, values)
    residuals = [v - fit.slope * length - fit.intercept for v, length in zip(values, lengths, strict=True)]
    spread = sum((length - statistics.fmean(lengths)) ** 2 for length in lengths)
    variance = sum(residual**2 for residual in residuals) / max(1, len(values) - 2)
    return {"per_word": fit.slope, "standard_error": (variance / spread) ** 0.5, "mean": statistics.fmean(values)}


def render_lengths(result: Mapping[str, Any]) -> str:
    """Return a result of `measure_by_length` as Markdown: a table for each side, with the slopes in its last row."""
    parts = []
    for side, sweep in result["sweeps"].items():
        names = list(sweep["slopes"])
        header = [f"{side} words (the other side {FIXED_LENGTH})"]
        header += [f"{name}: {unit}" for name in names for unit in ("total, ms", "ms a word")]
        rows = []
        for row in sweep["rows"]:
            cells = [str(row[f"{side}_length"])]
            for name in names:
                cells += [f"{1000 * row['seconds'][f'{name} translate']['median']:.1f}"]
                cells += [f"{row['milliseconds_per_word'][name]:.2f}"]
            rows.append(cells)
        last = ["microseconds more a word for each further word (standard error)"]
        for fit in sweep["slopes"].values():
            last += ["", f"{1000 * fit['per_word']:+.2f} ({1000 * fit['standard_error']:.2f})"]
        parts.append(markdown_table(header, [*rows, last]))
    return "\n\n".join(parts)
