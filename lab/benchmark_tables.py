"""Results of `lab.benchmark` and `lab.campaign` as Markdown."""

from collections.abc import Mapping
from typing import Any

from hf_capsule_mt.evaluation.results import markdown_table

DECODING = ("greedy", "beam 5")
FIXED_LENGTH = 50  # words of the side whose length does not vary


def table(header: list[str], rows: list[list[Any]]) -> str:
    def text(cell: Any) -> str:
        return "" if cell is None else f"{cell:.2f}" if isinstance(cell, float) else str(cell)

    return markdown_table(header, [[text(cell) for cell in row] for row in rows])


def spread(timing: dict[str, float], scale: float = 1000) -> str:
    return f"{timing['median'] * scale:.1f} ({timing['minimum'] * scale:.1f}-{timing['maximum'] * scale:.1f})"


def render_benchmark(result: Mapping[str, Any]) -> str:
    """Return a result of `lab.benchmark models` as Markdown."""
    hardware, software = result["hardware"], result["software"]
    parts = [
        f"### Benchmark, {result['size']} size\n",
        f"`{result['command']}` on {hardware.get('gpu') or hardware['cpu']} ({hardware['threads']} threads), torch "
        f"{software['torch']}, transformers {software['transformers']}, {result['date'][:10]}. Times are medians "
        f"(minimum-maximum) of {result['repeats']} runs in turns; speeds are ratios of medians, higher is faster.\n",
    ]
    if core := result.get("core"):
        parts += [
            "#### The routing core, forward and backward, 4,096 positions\n",
            table(
                ["form", "ms", "speed vs textbook", "peak memory in votes"],
                [[name, spread(row), row["speed_vs_textbook"], row["memory_in_votes"]] for name, row in core.items()],
            ),
        ]
    if train := result.get("train"):
        parts += [
            f"\n#### Training step, {result['tokens']} source and {result['tokens']} target tokens in "
            f"sentences of {result['length']}\n",
            table(
                ["system", "ms", "vs stock", "published", "vs its own floor", "routing compiled, vs floor"],
                [
                    [
                        name,
                        spread(row["seconds"][name]),
                        row["speed_vs_stock"],
                        row["published"],
                        row["speed_vs_floor"],
                        row.get("compiled_vs_floor"),  # only older results have it
                    ]
                    for name, row in train.items()
                ],
            ),
        ]
    if decode := result.get("decode"):
        header = ["system", *(f"{title}: {column}" for title in DECODING for column in ("ms/token", "vs stock"))]
        parts += [
            "\n#### Decoding inside `generate()`, one sentence of 32 tokens\n",
            table(
                [*header, "published"],
                [
                    [
                        name,
                        *(
                            row[title][key]
                            for title in DECODING
                            for key in ("milliseconds_per_token", "speed_vs_stock")
                        ),
                        row["published"],
                    ]
                    for name, row in decode.items()
                ],
            ),
        ]
    if memory := result.get("memory"):
        parts += [
            f"\n#### Peak memory of a training step beyond parameters and optimiser, {result['tokens']} tokens in "
            f"sentences of {result['length']}\n",
            table(
                ["system", "parameters (M)", "peak (MB)", "more than stock (%)"],
                [
                    [
                        name,
                        row["parameters"] / 1e6,
                        f"{row['peak_bytes'] / 2**20:.0f}",
                        f"{100 * row['extra']:.1f}",
                    ]
                    for name, row in memory.items()
                ],
            ),
        ]
    return "\n".join(parts) + "\n"


def render_lengths(result: Mapping[str, Any]) -> str:
    """Return a result of `lab.benchmark lengths` as Markdown: two tables, and the slopes."""
    hardware = result["hardware"]
    parts = [
        f"### Time by sentence length, {result['size']} size, one sentence at a time, beam {result['num_beams']}\n",
        f"`{result['command']}` on {hardware.get('gpu') or hardware['cpu']} ({hardware['threads']} threads), "
        f"{result['date'][:10]}. Medians of the {result['clock']} of {result['repeats']} runs in turns, through "
        "`generate()`. Encoding is a "
        "translation of one word; each further word is (total - encoding) / (words - 1).\n",
    ]
    for side, sweep in result["sweeps"].items():
        names = list(sweep["slopes"])
        header = [f"{side} words"]
        header += [f"{name}: {column}" for name in names for column in ("encode ms", "total ms", "ms/word")]
        parts.append(f"\n#### By the length of the {side}, the other side {FIXED_LENGTH} words\n")
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


def render_throughput(result: Mapping[str, Any]) -> str:
    """Return a result of `lab.benchmark throughput` as Markdown."""
    settings = result["settings"]
    header = [
        f"width {settings['width']}, {settings['layers']} + {settings['layers']} layers",
        "tokens/s",
        "best",
        "x",
    ]
    rows = [
        [name, f"{speed['median']:,.0f}", f"{speed['best']:,.0f}", f"{speed['ratio']:.2f}"]
        for name, speed in result["tokens_per_second"].items()
    ]
    return markdown_table(header, rows)


def render_campaign(result: Mapping[str, Any]) -> str:
    """Return what each section tried, the memory, and how to repeat each failure, as Markdown."""
    rows, failures = [], []
    for section in result["sections"].values():
        counts = (f"{section['tries']:,}", f"{section['disturbances']:,} {section['counted']}")
        rows.append([section["title"], *counts, f"{len(section['failures']):,}"])
        failures += [
            f"- `{failure['repeat']}`: {' '.join(failure['what'].split())}" for failure in section["failures"]
        ]
    parts = [markdown_table(["what was tried", "tries", "disturbances", "failures"], rows)]
    memory = result.get("memory")
    if memory:
        lines = list(next(iter(memory.values())))
        peaks = [[f"`{backend}`", *map(str, peak_by_lines.values())] for backend, peak_by_lines in memory.items()]
        header = ["backend", *(f"{number} lines" for number in lines)]
        parts.append(f"Peak memory of `translate`, in MiB:\n\n{markdown_table(header, peaks)}")
    if failures:
        parts.append("\n".join(failures))
    return "\n\n".join(parts)
