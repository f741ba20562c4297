"""The document of all results, made from result files alone."""

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from hf_capsule_mt.evaluation.paper_tables import TABLES, Row, Table
from hf_capsule_mt.evaluation.results import read_result


def result_path(folder: str | os.PathLike[str], setting: str, run: str, seed: int) -> Path:
    """Where the result of a run is kept."""
    return Path(folder) / setting / f"{run}-seed{seed}.json"


def translations_path(folder: str | os.PathLike[str], setting: str, run: str, seed: int) -> Path:
    """Where the translations of the test set are that a result is of."""
    return Path(folder) / setting / f"{run}-seed{seed}.hyp.gz"


def read_results(folder: str | os.PathLike[str], setting: str) -> dict[str, dict[int, dict[str, Any]]]:
    """All results of a setting: {run: {seed: result}}."""
    results: dict[str, dict[int, dict[str, Any]]] = {}
    for path in sorted(Path(folder, setting).glob("*-seed*.json")):
        result = read_result(path)
        results.setdefault(result["run"], {})[result["seed"]] = result
    return results


OURS = ("parameters", "train", "decode", "BLEU", "difference", "p")


# Columns of the papers that have one of ours beside them, and where it is in a result
MORE = {"CDR": "coverage_difference_ratio", "milliseconds": "milliseconds_per_sentence"}


def render_table(table: Table, results: dict[str, dict[int, dict[str, Any]]]) -> str:
    """A table as Markdown: our figures, then, under "paper", those that it prints.

    Speeds are relative to the row's baseline. BLEU is the mean over seeds with its standard deviation; the difference
    is to the baseline of the same seeds; the p-values are those of the paired bootstrap, of all seeds together and, in
    brackets, of each.
    """
    more = [name for name in table.columns if name in MORE]
    header = ["", *OURS, *more, *(f"paper: {name}" for name in table.columns)]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for row in table.rows:
        cells = _our_figures(row, results) if row.run else [""] * len(OURS)
        cells += [_mean(results.get(row.run or "", {}), MORE[name]) for name in more]
        printed = [row.printed.get(name, "").replace("|", "\\|") for name in table.columns]
        lines.append("| " + " | ".join([row.label, *cells, *printed]) + " |")
    return "\n".join(lines) + "\n"


def _mean(runs: dict[int, dict[str, Any]], name: str) -> str:
    values = [result[name] for result in runs.values() if result.get(name) is not None]
    return f"{fmean(values):.3g}" if values else ""


def _our_figures(row: Row, results: dict[str, dict[int, dict[str, Any]]]) -> list[str]:
    runs = results.get(row.run or "", {})
    if not runs:
        return ["", "", "", "not run", "", ""]
    first = next(iter(runs.values()))
    parameters = f"{first['parameters'] / 1e6:.2f}M"
    scores = [result["scores"]["bleu"]["score"] for result in runs.values()]
    spread = f" ± {stdev(scores):.2f}" if len(scores) > 1 else ""
    bleu = f"{fmean(scores):.2f}{spread} (n={len(scores)})"
    if row.run == row.baseline:
        return [parameters, "1.00", "1.00", bleu, "", ""]
    found = [
        entry for result in runs.values() if (entry := result.get("comparisons", {}).get(row.baseline)) is not None
    ]
    if not found:
        return [parameters, "", "", bleu, "", ""]
    train, decode = (
        f"{fmean(values):.2f}" if (values := [entry[name] for entry in found if entry.get(name)]) else ""
        for name in ("train_speed", "decode_speed")
    )
    difference = f"{fmean(entry['difference'] for entry in found):+.2f}"
    return [parameters, train, decode, bleu, difference, _p_values(found)]


def _p_values(comparisons: list[dict[str, Any]]) -> str:
    """That of all seeds together, if it is known, then in brackets those of each."""
    each = " / ".join(f"{entry['p_bootstrap']:.3f}" for entry in comparisons)
    for entry in comparisons:
        together = entry.get("over_seeds", {})
        if len(together.get("seeds", ())) == len(comparisons):
            return f"{together['p_bootstrap']:.3f} ({each})"
    return each


SETTINGS = {
    "embedded": "The embedded corpus (English-German, from a grammar, 20,000 sentences)",
    "multi30k": "Multi30k (English-German, 29,000 sentences, test2016)",
    "tatoeba": "Tatoeba (German-English, 162,000 sentences)",
}


def render_results(folder: str | os.PathLike[str], extra: Sequence[tuple[str, str]] = ()) -> str:
    """All tables of all settings that have results, and further sections (title, Markdown), as one document."""
    parts = [
        "# Results",
        "Written by `python scripts/reproduce.py --render` from the result files in `docs/results`, each of which "
        "names its command, seed, commit, hardware and software; the newer ones have their translations beside them. "
        "Sizes and data are ours and small; the papers' own figures stand beside. Speeds are relative to the baseline "
        "of the row, measured in turns with it; p-values are those of the paired bootstrap over sentences, of all "
        "seeds together and, in brackets, of each.",
    ]
    for setting, title in SETTINGS.items():
        results = read_results(folder, setting)
        if not results:
            continue
        signature = next(iter(next(iter(results.values())).values()))["scores"]["bleu"]["signature"]
        parts += [f"## {title}", f"BLEU: `{signature}`"]
        for key, table in TABLES.items():
            if key == "headline" or any(row.run in results for row in table.rows if row.run not in (None, "plain")):
                parts += [f"### {table.title}", render_table(table, results).rstrip()]
                parts += [table.note] if table.note else []
    parts += [part for title, text in extra for part in (f"## {title}", text.strip())]
    return "\n\n".join(parts) + "\n"
