"""The document of all results, made from result files alone."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from hf_capsule_mt.evaluation.markdown import markdown_table
from hf_capsule_mt.evaluation.results import read_result
from lab.paper_tables import CLAIMS, TABLES, Claim, Row, Table, share_among_equals
from lab.seeds import WORLDS_APART, each_if_apart, mean_and_spread
from lab.t_test import p_over_seeds


def result_path(folder: str | os.PathLike[str], setting: str, run: str, seed: int) -> Path:
    """Where the result of a run is kept."""
    return Path(folder) / setting / f"{run}-seed{seed}.json"


def translations_path(folder: str | os.PathLike[str], setting: str, run: str, seed: int) -> Path:
    """Where the translations of the test set are that a result is of."""
    return Path(folder) / setting / f"{run}-seed{seed}.hyp.gz"


def speeds_path(folder: str | os.PathLike[str], setting: str) -> Path:
    """Where the speeds of a setting's models are kept, which do not depend on the seed."""
    return Path(folder) / setting / "speeds.json"


def read_speeds(folder: str | os.PathLike[str], setting: str) -> dict[str, dict[str, Any]]:
    """The size of each model of a setting, and its milliseconds for a training step, for decoding and a sentence."""
    path = speeds_path(folder, setting)
    return share_among_equals(read_result(path)["models"]) if path.exists() else {}


def read_results(folder: str | os.PathLike[str], setting: str) -> dict[str, dict[int, dict[str, Any]]]:
    """All results of a setting: {run: {seed: result}}."""
    results: dict[str, dict[int, dict[str, Any]]] = {}
    for path in sorted(Path(folder, setting).glob("*-seed*.json")):
        result = read_result(path)
        results.setdefault(result["run"], {})[result["seed"]] = result
    return results


OURS = ("parameters", "train", "decode", "BLEU", "difference", "p", "p, seeds")


def render_table(
    table: Table, results: dict[str, dict[int, dict[str, Any]]], speeds: dict[str, dict[str, Any]]
) -> str:
    """A table as Markdown: our figures, then, under "paper", those that it prints.

    Speeds are relative to the row's baseline. BLEU is the mean over seeds with its standard deviation; the difference
    is to the baseline of the same seeds; the p-values are those of the paired bootstrap over sentences, of all seeds
    together and, in brackets, of each, and that of the t-test over seeds. Seeds that are worlds apart are all named.
    """
    more = [name for name in table.columns if name in MORE]
    header = ["", *OURS, *more, *(f"paper: {name}" for name in table.columns)]
    lines = []
    for row in table.rows:
        cells = [""] * (len(OURS) + len(more))
        if row.run:
            runs = results.get(row.run, {})
            cells = [*_size_and_speed(row, runs, speeds), *_scores(row, runs)]
            cells += [MORE[name](runs, speeds.get(row.run, {})) for name in more]
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
MORE = {"CDR": _coverage_difference, "milliseconds": _milliseconds}


def _size_and_speed(
    row: Row, runs: dict[int, dict[str, Any]], speeds: dict[str, dict[str, Any]]
) -> tuple[str, str, str]:
    """The parameters, and how fast the row's model trains and decodes, as a multiple of its baseline's speed."""
    sizes = [model["parameters"] for model in (*runs.values(), speeds.get(row.run or "")) if model]
    parameters = f"{sizes[0] / 1e6:.2f}M" if sizes else ""
    if row.run == row.baseline:
        return parameters, "1.00", "1.00"
    if row.run not in speeds or row.baseline not in speeds:
        return parameters, "", ""
    ours, theirs = (speeds[name]["milliseconds"] for name in (row.run, row.baseline))
    return parameters, f"{theirs['train'] / ours['train']:.2f}", f"{theirs['decode'] / ours['decode']:.2f}"


def _scores(row: Row, runs: dict[int, dict[str, Any]]) -> tuple[str, str, str, str]:
    """BLEU, the difference to the baseline, and its p-values."""
    if not runs:
        return "not run", "", "", ""
    scores = [result["scores"]["bleu"]["score"] for result in runs.values()]
    bleu = f"{mean_and_spread(scores)} (n={len(scores)}{each_if_apart(scores, ': {}')})"
    found = comparisons_with(row.baseline, runs)
    if not found:
        return bleu, "", "", ""
    differences = [entry["difference"] for entry in found]
    p_seeds = p_over_seeds(differences)
    return (
        bleu,
        f"{fmean(differences):+.2f}{each_if_apart(differences, ' ({})', '+.2f')}",
        _p_values(found),
        "" if p_seeds is None else f"{p_seeds:.3f}",
    )


def comparisons_with(baseline: str | None, runs: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """What is known of the seeds of a run against a baseline, for each that is compared with it."""
    found = [result.get("comparisons", {}).get(baseline) for result in runs.values()]
    return [entry for entry in found if entry is not None]


def _p_values(comparisons: list[dict[str, Any]]) -> str:
    """That of all seeds together, if it is known, then in brackets those of each."""
    each = " / ".join(f"{entry['p_bootstrap']:.3f}" for entry in comparisons)
    together = _p_of_all(comparisons)
    return each if len(comparisons) == 1 or together is None else f"{together:.3f} ({each})"


def _p_of_all(comparisons: list[dict[str, Any]]) -> float | None:
    """The p-value of all seeds together; None if their translations have not been there together."""
    if len(comparisons) == 1:
        return comparisons[0]["p_bootstrap"]
    known = [entry.get("over_seeds", {"seeds": ()}) for entry in comparisons]
    return next((entry["p_bootstrap"] for entry in known if len(entry["seeds"]) == len(comparisons)), None)


def render_claims(settings: Mapping[str, dict[str, dict[int, dict[str, Any]]]]) -> str:
    """The papers' claims as Markdown: the difference that each prints, and ours in each of some settings."""
    header = ["", "paper", *(short_title(name) for name in settings)]
    lines = []
    for paper, claims in CLAIMS.items():
        lines.append([f"**{paper}**", *[""] * (len(header) - 1)])
        for claim in claims:
            printed = claim.printed
            cells = [_difference(claim, results.get(claim.run, {})) for results in settings.values()]
            lines.append([claim.text, "" if printed is None else f"{printed:+.2f}", *cells])
    return markdown_table(header, lines) + "\n"


def _difference(claim: Claim, runs: dict[int, dict[str, Any]]) -> str:
    """The mean over seeds, bold where both p-values are below 0.05."""
    found = comparisons_with(claim.row.baseline, runs)
    if not found:
        return ""
    differences = [entry["difference"] for entry in found]
    difference = f"{fmean(differences):+.2f}"
    p_values = (_p_of_all(found), p_over_seeds(differences))
    mark = "**" if all(p is not None and p < 0.05 for p in p_values) else ""
    shown = p_values if len(found) > 1 else p_values[:1]
    known = " / ".join("?" if p is None else f"{p:.3f}" for p in shown)
    return f"{mark}{difference}{mark} (n={len(found)}{each_if_apart(differences, ': {}', '+.2f')}, p={known})"


SETTINGS = {
    "embedded": "The embedded corpus (English-German, from a grammar, 20,000 sentences)",
    "multi30k": "Multi30k (English-German, 29,000 sentences, test2016)",
    "tatoeba": "Tatoeba (German-English, 162,000 sentences)",
}
PAGES = {
    "adequacy-de-en": "What finds inadequate translations",
    "probing": "Probing tasks (Li et al. 2019)",
}


def short_title(setting: str) -> str:
    """The name of a setting's data, without what they are."""
    return SETTINGS[setting].partition(" (")[0]


def _is_begun(key: str, results: set[str]) -> bool:
    """Whether a table has more to say than the headline rows: all its rows, or one that is not among those."""
    runs = {row.run for row in TABLES[key].rows if row.run}
    headline = {row.run for row in TABLES["headline"].rows}
    return key == "headline" or runs <= results or bool(runs & results - headline)


def _left_out(keys: Sequence[str], setting: str) -> list[str]:
    """A paragraph that names the tables that are not begun."""
    if not keys:
        return []
    titles = "; ".join(f"{TABLES[key].title.partition(' (the figures')[0]} (`{key}`)" for key in keys)
    return [
        f"Not begun here beyond rows of the tables above: {titles}. "
        f"`python scripts/reproduce.py NAME --setting {setting}` trains the rows of one."
    ]


def render_results(
    folder: str | os.PathLike[str], pages: Mapping[str, str] = PAGES, place: str | os.PathLike[str] = "."
) -> str:
    """All tables of all settings that have results, and other pages {NAME.md in the folder: title}, as one document.

    Pictures of them that are in the folder are shown, too; `place` is the folder of the document.
    """

    def picture(setting: str, name: str, title: str) -> list[str]:
        path = Path(folder, setting, f"{name}.png")
        return [f"![{title}]({Path(os.path.relpath(path, place)).as_posix()})"] if path.exists() else []

    parts = [
        "# Results",
        "Written by `python scripts/reproduce.py --render` from the result files in `docs/results`, each of which "
        "names its command, seed, commit, hardware and software; the newer ones have their translations beside them. "
        "Sizes and data are ours and small; the papers' own figures stand beside. Speeds are relative to the baseline "
        "of the row, of models before training, all measured in turns. `p` is that of the paired bootstrap over "
        "sentences, of all seeds together and, in brackets, of each: would these models differ so on other sentences? "
        "`p, seeds` is that of Student's t-test over the differences of each seed: would models of other seeds? Where "
        f"seeds are more than {WORLDS_APART:g} BLEU apart, as some did not learn to use the source, each is named.",
    ]
    found = {setting: results for setting in SETTINGS if (results := read_results(folder, setting))}
    if found:
        parts += [
            "## What the papers claim, and what came out",
            "Differences in BLEU to the model without: the papers', on WMT14 English-German if nothing else is said, "
            "and ours, the mean of n seeds, with p over sentences / over seeds; bold where both are below 0.05. Empty "
            "where nothing was run. A single seed says nothing of others, so that it is never bold.",
            *picture(".", "claims", "What the papers claim, and what came out"),
            render_claims(found).rstrip(),
        ]
    for setting, results in found.items():
        title, speeds = SETTINGS[setting], read_speeds(folder, setting)
        signature = next(iter(next(iter(results.values())).values()))["scores"]["bleu"]["signature"]
        parts += [f"## {title}", f"BLEU: `{signature}`"]
        parts += picture(setting, "differences", "Every row against its baseline")
        parts += picture(setting, "lengths", "Score and length by source length")
        begun = [key for key in TABLES if _is_begun(key, set(results))]
        for key in begun:
            table = TABLES[key]
            parts += [f"### {table.title}", render_table(table, results, speeds).rstrip()]
            parts += [table.note] if table.note else []
            parts += picture(setting, key, table.title)
        parts += _left_out([key for key in TABLES if key not in begun], setting)
    for page, title in pages.items():
        if (text := Path(folder, f"{page}.md")).exists():
            parts += [f"## {title}", *picture(".", page, title), text.read_text(encoding="utf-8").strip()]
    return "\n\n".join(parts) + "\n"
