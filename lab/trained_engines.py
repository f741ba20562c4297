"""Engines on trained checkpoints: speed beside BLEU and chrF, on ragged sentences with their own ends.

Everything takes turns in one process.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from capsule_mt.files.reading import read_lines
from hf_capsule_mt.decoding.fast import FastTranslator
from hf_capsule_mt.evaluation.metrics import score_corpus
from hf_capsule_mt.evaluation.results import markdown_table
from lab.timing import steady_clock, time_in_turns

STOCK, SHORTLISTED = "generate() float32", "native int8, shortlist"
NATIVE = {"native float32": False, "native int8": True}  # whether in int8
SAME_SHARE = 0.98  # of translations: engines add in different orders, which may decide a tie
Tokens = list[list[int]]
# sources, beams, the largest number of new tokens -> tokens after the start token
Engine = Callable[[Tokens, int, int], Tokens]


def measure_trained(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return seconds, tokens and scores of every engine in every cell, for every checkpoint."""
    sources = read_lines(arguments.input)[: arguments.sentences]
    references = read_lines(arguments.references)[: arguments.sentences] if arguments.references else None
    checkpoints = {name: _measure_checkpoint(name, sources, references, arguments) for name in arguments.checkpoints}
    return {
        "kind": "trained_engines",
        "sentences": len(sources),
        "repeats": arguments.repeats,
        "checkpoints": checkpoints,
    }


def _measure_checkpoint(
    name: str, sources: Sequence[str], references: Sequence[str] | None, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    model = AutoModelForSeq2SeqLM.from_pretrained(name).eval()
    tokenizer = AutoTokenizer.from_pretrained(name)
    tokens: Tokens = [tokenizer(source, truncation=True)["input_ids"] for source in sources]
    cells = []
    for threads in arguments.threads or sorted({1, os.cpu_count() or 1}):
        torch.set_num_threads(threads)
        engines = engines_of(model, arguments.shortlist)
        for batch_size in arguments.batch_sizes:
            for num_beams in arguments.num_beams:
                title = f"{Path(name).name}: {threads} threads, batch {batch_size}, beam {num_beams}"
                cell = _measure_cell(engines, tokens, batch_size, num_beams, arguments.repeats, title)
                stock_outputs = cell[STOCK]["outputs"]
                for row in cell.values():
                    pairs = zip(row["outputs"], stock_outputs, strict=True)
                    row["same"] = sum(output == stock_output for output, stock_output in pairs)
                check_float32(cell, len(sources), title)
                for row in cell.values():
                    words = tokenizer.batch_decode(row.pop("outputs"), skip_special_tokens=True)
                    if references:
                        scores = score_corpus(words, [list(references)], ("bleu", "chrf"))
                        row |= {metric: score.score for metric, score in scores.items()}
                cells.append({"threads": threads, "batch": batch_size, "beams": num_beams, "engines": cell})
    return cells


def check_float32(cell: dict[str, dict[str, Any]], sentences: int, title: str) -> None:
    """Raise if a float32 engine of the package has other tokens than `generate()`, but for a tie or two."""
    for name, int8 in NATIVE.items():
        if not int8 and cell[name]["same"] < SAME_SHARE * sentences:
            raise ValueError(
                f"{title}: only {cell[name]['same']} of {sentences} translations by {name} are those of {STOCK}"
            )


def _measure_cell(
    engines: dict[str, Engine],
    sources: Tokens,
    batch_size: int,
    num_beams: int,
    repeats: int,
    title: str,
) -> dict[str, dict[str, Any]]:
    """Return, by engine, the seconds, the number of tokens, and the outputs."""
    outputs: dict[str, Tokens] = {}
    batches = [sources[start : start + batch_size] for start in range(0, len(sources), batch_size)]

    def run_of(name: str) -> Callable[[], None]:
        def run() -> None:
            outputs[name] = [
                sequence
                for batch in batches
                for sequence in engines[name](batch, num_beams, 2 * max(map(len, batch)) + 10)
            ]

        return run

    runs = {name: run_of(name) for name in engines}
    with tqdm(total=len(runs) * (repeats + 1), desc=title) as bar:
        timings = time_in_turns(runs, repeats, progress=lambda: bar.update() and None, clock=steady_clock("cpu"))
    return {
        name: {"seconds": timings[name].as_dict(), "tokens": sum(map(len, outputs[name])), "outputs": outputs[name]}
        for name in engines
    }


def engines_of(model: Any, shortlist: Path | None = None) -> dict[str, Engine]:
    """Return every engine that takes a model, and the fastest one with a shortlist."""
    pad, end = model.config.pad_token_id, model.config.eos_token_id
    model.generation_config.max_length = None

    def generating(generate: Callable[..., torch.Tensor]) -> Engine:
        def run(sources: Tokens, num_beams: int, max_length: int) -> Tokens:
            longest = max(map(len, sources))
            ids = torch.tensor([source + [pad] * (longest - len(source)) for source in sources])
            lengths = torch.tensor([len(source) for source in sources])
            mask = (torch.arange(longest) < lengths[:, None]).long()
            sequences = generate(ids, attention_mask=mask, num_beams=num_beams, max_new_tokens=max_length)
            return [_to_end(row, end) for row in sequences[:, 1:].tolist()]

        return run

    engines = {STOCK: generating(model.generate)}
    for title, int8 in NATIVE.items():
        engines[title] = generating(FastTranslator(model, int8=int8, strict=True).generate)
    if shortlist is not None:
        engines[SHORTLISTED] = generating(FastTranslator(model, int8=True, shortlist=shortlist, strict=True).generate)
    return engines


def _to_end(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def render_trained(result: dict[str, Any]) -> str:
    """Return a result as Markdown: speeds with their scores, and the translations that are those of `generate()`."""
    parts = [
        f"# Engines on trained checkpoints\n\n`{result['command']}` on {result['hardware']['cpu']}: "
        f"{result['sentences']} sentences, medians of {result['repeats']} runs in turns. Sentences a second, and in "
        "parentheses how many times as fast as `generate()`. The last columns count the sentences that get the same "
        "tokens as from `generate()`."
    ]
    for name, cells in result["checkpoints"].items():
        for threads in dict.fromkeys(cell["threads"] for cell in cells):
            matching = [cell for cell in cells if cell["threads"] == threads]
            parts.append(f"## {Path(name).name}, {threads} thread{'s' * (threads > 1)}\n")
            parts.append(_speeds(matching, result["sentences"]))
    return "\n\n".join(parts) + "\n"


def _titles(cells: list[dict[str, Any]]) -> list[str]:
    searches = {cell["beams"]: "greedy" if cell["beams"] == 1 else f"beam {cell['beams']}" for cell in cells}
    return [f"batch {cell['batch']}, {searches[cell['beams']]}" for cell in cells]


def _speeds(cells: list[dict[str, Any]], sentences: int) -> str:
    by_beams = {cell["beams"]: cell["engines"] for cell in cells}
    scored = [beams for beams, engines in by_beams.items() if "bleu" in engines[STOCK]]
    rows = []
    for engine in cells[0]["engines"]:
        row = [engine]
        for cell in cells:
            seconds, stock = (cell["engines"][name]["seconds"]["median"] for name in (engine, STOCK))
            row.append(f"{sentences / seconds:.1f} ({stock / seconds:.1f})")
        row += [f"{by_beams[beams][engine]['bleu']:.2f} / {by_beams[beams][engine]['chrf']:.2f}" for beams in scored]
        row += [str(engines[engine]["same"]) for engines in by_beams.values()]
        rows.append(row)
    header = ["engine", *_titles(cells), *(f"BLEU / chrF, beam {beams}" for beams in scored)]
    header += [f"same, beam {beams}" for beams in by_beams]
    return markdown_table(header, rows)
