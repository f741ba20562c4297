"""How the time to translate grows with the length of the source and of the target (CapsNMT's claim: linearly)."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from hf_capsule_mt.evaluation.markdown import markdown_table
from lab.timing import time_in_turns

FIXED_LENGTH = 50  # of the side that does not vary


def measure_lengths(
    models: dict[str, PreTrainedModel],
    lengths: Sequence[int],
    *,
    num_beams: int = 1,
    repeats: int = 3,
    synchronize: Callable[[], None] | None = None,
    progress: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Translates random sentences of every length on either side, with all models in turns, through `generate()`.

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
                vocab_size = model.config.vocab_size
                source = torch.randint(2, vocab_size, (1, source_length), device=model.device)
                for part, num_words in (("encode", 1), ("translate", target_length)):
                    runs[f"{name} {part}"] = _generation(model, source, num_words, num_beams)
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


def _generation(model: PreTrainedModel, source: torch.Tensor, num_words: int, num_beams: int) -> Callable[[], Any]:
    return lambda: model.generate(  # type: ignore[operator]
        source, max_new_tokens=num_words, min_new_tokens=num_words, num_beams=num_beams
    )


def slope(values: Sequence[float], lengths: Sequence[int]) -> dict[str, float]:
    """The line through the values by least squares: what a word more adds, its standard error, and the mean value."""
    fit = statistics.linear_regression(lengths, values)
    residuals = [v - fit.slope * length - fit.intercept for v, length in zip(values, lengths, strict=True)]
    spread = sum((length - statistics.fmean(lengths)) ** 2 for length in lengths)
    variance = sum(residual**2 for residual in residuals) / max(1, len(values) - 2)
    return {"per_word": fit.slope, "standard_error": (variance / spread) ** 0.5, "mean": statistics.fmean(values)}


def render_lengths(result: dict[str, Any], picture: str) -> str:
    """A result file with such `sweeps` as Markdown: two tables, the slopes, and a link to the picture."""
    hardware = result["hardware"]
    parts = [
        f"# Time by sentence length, {result['size']} size, one sentence at a time, beam {result['num_beams']}\n",
        f"`{result['command']}` on {hardware.get('gpu') or hardware['cpu']} ({hardware['threads']} threads), "
        f"{result['date'][:10]}. Medians of the {result['clock']} of {result['repeats']} runs in turns, through "
        "`generate()`. Encoding is a "
        "translation of one word; each further word is (total - encoding) / (words - 1).\n",
        f"![the same as a picture]({picture})",
    ]
    for side, sweep in result["sweeps"].items():
        names = list(sweep["slopes"])
        header = [f"{side} words"]
        header += [f"{name}: {column}" for name in names for column in ("encode ms", "total ms", "ms/word")]
        parts.append(f"\n## By the length of the {side}, the other side {FIXED_LENGTH} words\n")
        header += [f"{name} vs {names[0]}" for name in names[1:]]
        table = []
        for row in sweep["rows"]:
            medians = {run: timing["median"] for run, timing in row["seconds"].items()}
            cells = [str(row[f"{side}_length"])]
            for name in names:
                cells += [f"{1000 * medians[f'{name} {part}']:.1f}" for part in ("encode", "translate")]
                cells.append(f"{row['milliseconds_per_word'][name]:.2f}")
            reference = medians[f"{names[0]} translate"]
            cells += [f"{reference / medians[f'{name} translate']:.2f}" for name in names[1:]]
            table.append(cells)
        parts.append(markdown_table(header, table) + "\n")
        for name, fit in sweep["slopes"].items():
            parts.append(
                f"- {name}: a word takes {fit['mean']:.2f} ms, and {1000 * fit['per_word']:+.2f} "
                f"(standard error {1000 * fit['standard_error']:.2f}) microseconds more for each word that the {side} "
                "is longer."
            )
    return "\n".join(parts) + "\n"
