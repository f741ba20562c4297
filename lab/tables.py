"""The papers' tables beside our results, and the arms of a study, as Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from hf_capsule_mt.evaluation.results import markdown_table
from lab.effects import differences, effect, estimated
from lab.over_seeds import Spread, mean_and_spread, num_learnt, paired, shown_p
from lab.paper_tables import TABLES, Row, Table
from lab.records import Records, Runs, scores_by_seed

SETTINGS = {
    "multi30k": "Multi30k (English-German, 29,000 sentences, test2016)",
    "embedded": "The grammar corpus (English-German, 20,000 sentences)",
    "tatoeba": "Tatoeba (German-English, 162,000 sentences)",
}
# where the files of a setting come from; those of the embedded corpus are in the package
DATA_SOURCES = {
    "multi30k": "they are in data/task1/raw of https://github.com/multi30k/dataset",
    "tatoeba": "they are sentence pairs of https://tatoeba.org, one sentence a line",
}
# of the first seed's training, by its field in a row
SERIES = {"loss by epoch, first seed": "losses", "validation BLEU, first seed": "validation_bleu"}
OURS = ("parameters", "train", "decode", "BLEU", "difference", "p over seeds")


def render_table(table: Table, results: Runs, speeds: Mapping[str, Any], *, with_printed_bleu: bool) -> str:
    """Return a table as Markdown: our figures, then those that the paper prints.

    Speeds are relative to the row's baseline. BLEU is the mean over seeds with its standard deviation, or how many of
    them learn; the difference is to the baseline of the same seeds, where all of both learn.

    Args:
        with_printed_bleu: show the paper's BLEU; on another corpus it says nothing.
    """
    extra_columns = [name for name in table.columns if name in EXTRA_COLUMNS]
    printed_columns = [name for name in table.columns if with_printed_bleu or not name.startswith("BLEU")]
    header = ["", *OURS, *extra_columns, *(f"paper: {name}" for name in printed_columns)]
    lines = []
    for row in table.rows:
        cells = [""] * (len(OURS) + len(extra_columns))
        if row.run:
            runs = results.get(row.run, {})
            cells = [*_size_and_speed(row, runs, speeds), *_scores(row, results)]
            cells += [EXTRA_COLUMNS[name](runs, speeds.get(row.run, {})) for name in extra_columns]
        printed = [row.printed.get(name, "").replace("|", "\\|") for name in printed_columns]
        lines.append([row.label, *cells, *printed])
    return markdown_table(header, lines)


def _coverage_difference(runs: dict[int, dict[str, Any]], speed: Mapping[str, Any]) -> str:
    values = [result["coverage_difference_ratio"] for result in runs.values()]
    return f"{fmean(values):.3g}" if values else ""


def _milliseconds(runs: dict[int, dict[str, Any]], speed: Mapping[str, Any]) -> str:
    return f"{speed['milliseconds']['sentence']:.3g}" if speed else ""


# columns of the papers that have one of ours beside them
EXTRA_COLUMNS = {"CDR": _coverage_difference, "milliseconds": _milliseconds}


def _size_and_speed(row: Row, runs: dict[int, dict[str, Any]], speeds: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the parameters, and the speeds of training and decoding relative to the baseline."""
    sizes = [model["parameters"] for model in (*runs.values(), speeds.get(row.run or "")) if model]
    parameters = f"{sizes[0] / 1e6:.2f}M" if sizes else ""
    if row.run == row.baseline:
        return parameters, "1.00", "1.00"
    ours, theirs = (speeds.get(name or "", {}).get("milliseconds") for name in (row.run, row.baseline))
    if ours is None or theirs is None:
        return parameters, "", ""
    return parameters, f"{theirs['train'] / ours['train']:.2f}", f"{theirs['decode'] / ours['decode']:.2f}"


def mean_bleu(scores: Iterable[float], plain_scores: Iterable[float]) -> str:
    """Return the mean over seeds, or how many of them learn if some do not.

    >>> mean_bleu([97.0, 96.0], [96.5]), mean_bleu([97.0, 0.7, 0.7], [96.5]), mean_bleu([38.0], [38.0])
    ('96.50 ± 0.71, n = 2', 'learns 1 of 3', '38.00, n = 1')
    """
    values = list(scores)
    learnt = num_learnt(values, list(plain_scores))
    if learnt < len(values):
        return f"learns {learnt} of {len(values)}"
    return f"{mean_and_spread(values)}, n = {len(values)}"


def _scores(row: Row, results: Runs) -> tuple[str, str, str]:
    """Return BLEU, the difference to the baseline, and its p-value over seeds."""
    scores, baseline = scores_by_seed(results, row.run), scores_by_seed(results, row.baseline)
    plain_scores = list(scores_by_seed(results, "plain").values())
    if not scores:
        return "not run", "", ""
    shown = mean_bleu(scores.values(), plain_scores)
    gains = differences(scores, baseline)
    all_scores = [*scores.values(), *baseline.values()]
    if row.run == row.baseline or not gains or num_learnt(all_scores, plain_scores) < len(all_scores):
        return shown, "", ""
    estimate = paired(gains)
    return shown, f"{fmean(gains):+.2f}", shown_p(estimate and estimate.p)


def render_setting(records: Records, setting: str, speeds: Mapping[str, Any]) -> str:
    """Return the tables of a setting with two seeds of all rows; where there are none, that of the headlines."""
    runs = records.runs(setting)
    parts = [f"### {SETTINGS[setting]}"]
    rows = {key: {row.run for row in table.rows if row.run} for key, table in TABLES.items() if key != "headline"}
    replicated = {name for name, by_seed in runs.items() if len(by_seed) > 1}
    for key in [key for key in rows if rows[key] <= replicated] or ["headline"]:
        table = TABLES[key]
        parts += [f"**{table.title}** (`python -m lab.reproduce {key} --setting {setting}`)"]
        parts += [render_table(table, runs, speeds, with_printed_bleu=setting != "embedded")]
        parts += [table.note] if table.note else []
        parts += [provenance(records, setting, (row.run for row in table.rows if row.run))]
    return "\n\n".join(parts)


def arms_table(
    runs: Runs,
    arms: Mapping[str, str],
    baseline: str,
    failures: Mapping[str, str] | None = None,
    spread: Spread | None = None,
) -> str:
    """Return a row for each arm with a result: the BLEU of each seed, their mean, and the gain over the baseline.

    Args:
        arms: {run: title}.
        failures: how many runs of an arm learn, where some do not.
        spread: of the plan, for the intervals of gains; without it, they are those of the differences over seeds.
    """
    failed = failures or {}
    seeds = sorted({seed for run in arms for seed in runs.get(run, {}) if seed})  # a model before training has seed 0
    baseline_scores, rows = scores_by_seed(runs, baseline), []
    firsts = {run: next(iter(runs[run].values())) for run in filter(runs.get, arms)}
    series = {heading: key for heading, key in SERIES.items() if any(first.get(key) for first in firsts.values())}
    for run, first in firsts.items():
        scores = scores_by_seed(runs, run)
        gains = differences(scores, baseline_scores)
        mean = failed.get(run) or mean_bleu(scores.values(), baseline_scores.values() or scores.values())
        is_compared = baseline not in {run, *failed} and len(gains) > 0 and not mean.startswith("learns")
        rows.append([
            arms[run],
            f"{first['parameters']:,}" if "parameters" in first else "",
            *(f"{scores[seed]:.2f}" if seed in scores else "" for seed in seeds),
            mean,
            (estimated(spread.difference(run, baseline)) if spread else effect(gains)) if is_compared else "",
            *(" / ".join(f"{value:.2f}" for value in first.get(key, [])) for key in series.values()),
        ])  # fmt: skip
    header = [
        "arm",
        "parameters",
        *(f"seed {seed}" for seed in seeds),
        "mean",
        f"gain over {arms.get(baseline, baseline)}",
    ]
    return markdown_table([*header, *series], rows)


def provenance(records: Records, file: str, runs: Iterable[str], seeds: Sequence[int] | None = None) -> str:
    """Return where the numbers of some runs are recorded, and the commits that made them; + is an unclean tree.

    Args:
        seeds: without them, of all seeds.
    """
    names = set(runs)
    lines = [record for record in records.read(file) if record.get("run") in names]
    return _provenance(file, [record for record in lines if seeds is None or record["seed"] in seeds])


def provenance_of_names(records: Records, file: str, names: Iterable[str]) -> str:
    """Return where some named records are, and the commits that made them."""
    named = records.named(file)
    return _provenance(file, [named[name] for name in names])


def _provenance(file: str, lines: Iterable[Mapping[str, Any]]) -> str:
    commits = {str(record.get("commit") or ""): str(record.get("date") or "") for record in lines}
    in_order = sorted(commits, key=lambda commit: (commits[commit], commit))
    shown = ", ".join(f"`{commit[:7]}{'+' if commit.endswith('+') else ''}`" for commit in in_order if commit)
    return f"Rows: `lab/results/{file}.jsonl`, {len(list(lines))} of commits {shown}." if shown else ""
