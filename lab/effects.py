"""Does it help: for each method the mean difference to its baseline over seeds, with a 95 % interval."""

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from hf_capsule_mt.analysis.pictures import save_picture
from hf_capsule_mt.evaluation.results import markdown_table
from lab.over_seeds import interval_over_seeds
from lab.paper_tables import TABLES
from lab.records import Records, Runs


class Method(NamedTuple):
    """A method, the run that has it, and the row of a paper's table that claims a gain for it."""

    title: str
    run: str
    baseline: str
    table: str


METHODS = (
    Method("Layers: linear combination (no routing)", "linear", "plain", "dou1"),
    Method("Layers: dynamic combination (no routing)", "dynamic_combination", "plain", "dou1"),
    Method("Layers: dynamic routing", "dynamic_routing", "plain", "dou1"),
    Method("Layers: EM routing", "em_routing", "plain", "dou1"),
    Method("Heads: EM routing, two lowest encoder layers", "head_em_lower", "plain", "li4"),
    Method("Heads: EM routing, all attentions", "head_em_everywhere", "plain", "li2"),
    Method("Past and future: guided routing", "gdr_both", "plain", "gdr2"),
    Method("Past and future, recurrent model", "rnmt_gdr", "rnmt", "gdr1"),
    Method("CapsNMT: capsules instead of pooling", "capsnmt", "pooling", "capsnmt1"),
)
BASELINES = {"plain": "Transformer", "rnmt": "RNMT", "pooling": "CapsNMT with pooling"}
SETTINGS = {"embedded": "embedded corpus", "multi30k": "Multi30k"}


def published(method: Method) -> float | None:
    """Return the gain that the paper prints, in its column of English-German, or in its only one."""
    figures = {row.run: row.printed for row in TABLES[method.table].rows}
    column = next((name for name in ("BLEU en-de", "BLEU") if name in figures[method.run]), None)
    if column is None or column not in figures[method.baseline]:
        return None
    return float(figures[method.run][column]) - float(figures[method.baseline][column])


def differences(runs: Runs, run: str, baseline: str) -> list[float]:
    """Return the difference in BLEU to the baseline of the same seed, for each seed that both have."""
    ours, theirs = runs.get(run, {}), runs.get(baseline, {})
    return [_bleu(ours[seed]) - _bleu(theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]


def _bleu(result: dict[str, dict[str, dict[str, float]]]) -> float:
    return result["scores"]["bleu"]["score"]


def effect(values: Sequence[float]) -> str:
    """Format a mean difference with its interval over seeds.

    >>> effect([0.5, 0.7]), effect([0.5]), effect([])
    ('+0.60 [-0.67, +1.87], n = 2', '+0.50, n = 1', '')
    """
    if not values:
        return ""
    interval = interval_over_seeds(values)
    bounds = "" if interval is None else f" [{interval[0]:+.2f}, {interval[1]:+.2f}]"
    return f"{fmean(values):+.2f}{bounds}, n = {len(values)}"


def effects_table(records: Records) -> str:
    """Return a row for each method: the paper's gain, and ours in each setting."""
    settings = {setting: records.runs(setting) for setting in SETTINGS}
    rows = []
    for method in METHODS:
        printed = published(method)
        cells = [effect(differences(runs, method.run, method.baseline)) for runs in settings.values()]
        gain = "" if printed is None else f"{printed:+.2f}"
        rows.append([method.title, BASELINES[method.baseline], gain, *cells])
    return markdown_table(["method", "compared with", "paper", *SETTINGS.values()], rows)


def draw_effects(records: Records, path: str | os.PathLike[str]) -> Path | None:
    """Draw the means with their intervals, one line for each method, beside the papers' gains."""
    from matplotlib import pyplot as plt

    settings = {setting: records.runs(setting) for setting in SETTINGS}
    if not any(differences(runs, method.run, method.baseline) for runs in settings.values() for method in METHODS):
        return None
    figure, axis = plt.subplots(figsize=(7.5, 3.8))
    for number, (setting, runs) in enumerate(settings.items()):
        label = f"{SETTINGS[setting]}, ours"
        for place, method in enumerate(METHODS):
            values = differences(runs, method.run, method.baseline)
            if not values:
                continue
            mean, interval = fmean(values), interval_over_seeds(values)
            reach = None if interval is None else [[mean - interval[0]], [interval[1] - mean]]
            height = place - 0.15 + 0.3 * number
            axis.errorbar(mean, height, xerr=reach, fmt="o", color=f"C{number}", capsize=3, markersize=4, label=label)
            label = "_"  # one entry in the legend
    printed = [(gain, place) for place, method in enumerate(METHODS) if (gain := published(method)) is not None]
    axis.plot(*zip(*printed, strict=True), "D", color="0.35", markerfacecolor="none", markersize=5, label="paper")
    axis.axvline(0, color="grey", linewidth=0.8)
    axis.set_yticks(range(len(METHODS)), [method.title for method in METHODS], fontsize="small")
    axis.invert_yaxis()
    axis.set_xlabel("gain in BLEU, with 95 % intervals over seeds (none: a single seed)")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    figure.tight_layout()
    return save_picture(figure, path)
