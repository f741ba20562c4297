"""The papers' tables beside our results, as Markdown."""

from statistics import fmean
from typing import Any

from hf_capsule_mt.evaluation.results import markdown_table
from lab.over_seeds import mean_and_spread, p_over_seeds, shown_p, values_if_unstable
from lab.paper_tables import TABLES, Row, Table
from lab.records import Runs

OURS = ("parameters", "train", "decode", "BLEU", "difference", "p", "p, seeds")


def render_table(table: Table, results: Runs, speeds: dict[str, dict[str, Any]]) -> str:
    """Return a table as Markdown: our figures, then, under "paper", those that it prints.

    Speeds are relative to the row's baseline. BLEU is the mean over seeds with its standard deviation; the difference
    is to the baseline of the same seeds; the p-values are those of the paired bootstrap over sentences, of all seeds
    together, and that of the t-test over seeds. All seeds are listed if they are more than `UNSTABLE_RANGE` apart.
    """
    extra_columns = [name for name in table.columns if name in EXTRA_COLUMNS]
    header = ["", *OURS, *extra_columns, *(f"paper: {name}" for name in table.columns)]
    lines = []
    for row in table.rows:
        cells = [""] * (len(OURS) + len(extra_columns))
        if row.run:
            runs = results.get(row.run, {})
            cells = [*_size_and_speed(row, runs, speeds), *_scores(row, runs)]
            cells += [EXTRA_COLUMNS[name](runs, speeds.get(row.run, {})) for name in extra_columns]
        printed = [row.printed.get(name, "").replace("|", "\\|") for name in table.columns]
        lines.append([row.label, *cells, *printed])
    return markdown_table(header, lines) + "\n"


def _coverage_difference(runs: dict[int, dict[str, Any]], speed: dict[str, Any]) -> str:
    name = "coverage_difference_ratio"
    values = [result[name] for result in runs.values() if result.get(name) is not None]
    return f"{fmean(values):.3g}" if values else ""


def _milliseconds(runs: dict[int, dict[str, Any]], speed: dict[str, Any]) -> str:
    return f"{speed['milliseconds']['sentence']:.3g}" if speed else ""


# Columns of the papers that have one of ours beside them
EXTRA_COLUMNS = {"CDR": _coverage_difference, "milliseconds": _milliseconds}


def _size_and_speed(
    row: Row, runs: dict[int, dict[str, Any]], speeds: dict[str, dict[str, Any]]
) -> tuple[str, str, str]:
    """Return the parameters, and the speeds of training and decoding relative to the baseline."""
    sizes = [model["parameters"] for model in (*runs.values(), speeds.get(row.run or "")) if model]
    parameters = f"{sizes[0] / 1e6:.2f}M" if sizes else ""
    if row.run == row.baseline:
        return parameters, "1.00", "1.00"
    if row.run not in speeds or row.baseline not in speeds:
        return parameters, "", ""
    ours, theirs = (speeds[name]["milliseconds"] for name in (row.run, row.baseline))
    return parameters, f"{theirs['train'] / ours['train']:.2f}", f"{theirs['decode'] / ours['decode']:.2f}"


def _scores(row: Row, runs: dict[int, dict[str, Any]]) -> tuple[str, str, str, str]:
    """Return BLEU, the difference to the baseline, and its p-values."""
    if not runs:
        return "not run", "", "", ""
    scores = [result["scores"]["bleu"]["score"] for result in runs.values()]
    bleu = f"{mean_and_spread(scores)} (n={len(scores)}{values_if_unstable(scores, ': {}')})"
    comparisons = comparisons_with(row.baseline, runs)
    if not comparisons:
        return bleu, "", "", ""
    differences = [entry["difference"] for entry in comparisons]
    p_seeds = p_over_seeds(differences)
    return (
        bleu,
        f"{fmean(differences):+.2f}{values_if_unstable(differences, ' ({})', '+.2f')}",
        _p_of_all(comparisons),
        shown_p(p_seeds),
    )


def comparisons_with(baseline: str | None, runs: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the comparison of each seed of a run with a baseline, where there is one."""
    comparisons = [result.get("comparisons", {}).get(baseline) for result in runs.values()]
    return [entry for entry in comparisons if entry is not None]


def _p_of_all(comparisons: list[dict[str, Any]]) -> str:
    """Format the p-value of all seeds together; empty where they were never compared together."""
    if len(comparisons) == 1:
        return shown_p(comparisons[0]["p_bootstrap"])
    together = [entry.get("over_seeds", {"seeds": ()}) for entry in comparisons]
    p = next((entry["p_bootstrap"] for entry in together if len(entry["seeds"]) == len(comparisons)), None)
    return shown_p(p)


SETTINGS = {
    "embedded": "The embedded corpus (English-German, from a grammar, 20,000 sentences)",
    "multi30k": "Multi30k (English-German, 29,000 sentences, test2016)",
    "tatoeba": "Tatoeba (German-English, 162,000 sentences)",
}
# where the files of a setting come from; those of the embedded corpus are made
DATA_SOURCES = {
    "multi30k": "they are in data/task1/raw of https://github.com/multi30k/dataset",
    "tatoeba": "they are sentence pairs of https://tatoeba.org, one sentence a line",
}


def worth_showing(results: Runs) -> list[str]:
    """Return the tables that have two seeds or more of all rows, or a row that is no headline row.

    The table of the headline rows is one of them, unless the others have all of its rows.
    """
    rows = {key: {row.run for row in table.rows if row.run} for key, table in TABLES.items()}
    headline = rows.pop("headline")
    replicated = {name for name, by_seed in results.items() if len(by_seed) > 1}
    shown = [key for key, runs in rows.items() if runs <= replicated or runs & results.keys() - headline]
    return shown if headline <= set().union(*(rows[key] for key in shown)) else ["headline", *shown]


def left_out(setting: str) -> str:
    """Return the paragraph below the tables of a setting, which says that some are left out."""
    return (
        "Tables that would add nothing are left out; "
        f"`python -m lab.reproduce TABLE --setting {setting} --seeds 1 2 3` trains one."
    )
