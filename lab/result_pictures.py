"""Pictures of result files: scores by source length, sweeps over settings, areas under curves, probing."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from transformers import AutoConfig

from hf_capsule_mt.analysis.pictures import save_picture
from lab.probing import Accuracies


@dataclass(frozen=True)
class SweepPoint:
    """One run: the value that was swept, its score, and the line it belongs to."""

    value: float
    score: float
    line: str = ""


def sweep_points(results: Sequence[dict[str, Any]], field: str, line_field: str | None = None) -> list[SweepPoint]:
    """The score of each result against a field of its model's configuration; `line_field` tells lines apart."""
    points = []
    for result in results:
        config = AutoConfig.for_model(**result["recipe"]["model"])  # what the recipe says, and the defaults
        for name in filter(None, (field, line_field)):
            if not hasattr(config, name):
                raise ValueError(f"{type(config).__name__} has no field `{name}`")
        line = f"{line_field} {getattr(config, line_field)}" if line_field else ""
        value = getattr(config, field)
        if value is None:  # as many capsules as the width
            value = config.hidden_size
        points.append(SweepPoint(value, result["scores"]["bleu"]["score"], line))
    return points


def draw_sweep(
    points: Sequence[SweepPoint],
    path: str | os.PathLike[str],
    xlabel: str,
    ylabel: str = "BLEU",
    baseline: float | None = None,
) -> Path:
    """A score against a setting, runs that differ in their seed alone as a mean with its standard deviation.

    Figures 2 and 3 of Dou et al. 2019, Figure 3 of Wang et al. (CapsNMT).
    """
    from matplotlib import pyplot as plt

    if not points:
        raise ValueError("`points` must have at least one run")
    lines: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        lines[point.line][point.value].append(point.score)
    values = sorted({point.value for point in points})
    figure, axis = plt.subplots(figsize=(5.5, 3.6))
    for name, runs in sorted(lines.items()):
        xs = sorted(runs)
        spread = [stdev(runs[x]) if len(runs[x]) > 1 else 0.0 for x in xs]
        axis.errorbar(
            [values.index(x) for x in xs], [fmean(runs[x]) for x in xs], spread, marker="o", capsize=3, label=name
        )
    if baseline is not None:
        axis.axhline(baseline, color="grey", linestyle=":", label="baseline")
    axis.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.grid(alpha=0.3)
    if any(lines) or baseline is not None:  # beside the axes: "best" knows nothing of the bars of deviations
        axis.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.tight_layout()
    return save_picture(figure, path)


def _draw_seeds(axis: Any, values: Sequence[float], place: float, half_height: float, colour: str) -> None:
    """On a line of a picture a dot for each seed, and a bar for their mean."""
    axis.plot(values, [place] * len(values), "o", markersize=3.5, color=colour, alpha=0.7)
    axis.plot([fmean(values)] * 2, [place - half_height, place + half_height], color=colour)


def draw_probing(
    results: Sequence[dict[str, Any]], paper: Mapping[str, Mapping[str, float]], path: str | os.PathLike[str]
) -> Path:
    """Accuracies of encoders on probing tasks, and their differences to the first encoder: Li et al. 2019, Table 1.

    A dot for each seed and a line for their mean, in percent. The cross on the left is the share of the commonest
    class; the diamond on the right is the paper's difference. The grey bar there is two standard errors of an accuracy
    on so many test sentences: what is within it says nothing.

    Args:
        results: `ProbingResult`s as dicts.
        paper: {encoder: {task: accuracy in percent}}.
    """
    from matplotlib import pyplot as plt

    if not results:
        raise ValueError("`results` must have at least one training")
    found = Accuracies(results)
    encoders, tasks = found.encoders, list(dict.fromkeys(entry["task"] for entry in results))
    first, step = encoders[0], 0.7 / len(encoders)
    figure, axes = plt.subplots(1, 2, sharey=True, figsize=(10, 1.2 + 0.5 * len(tasks)))
    for place, task in enumerate(tasks):
        entry = next(entry for entry in results if entry["task"] == task)
        axes[0].plot(100 * entry["majority"], place, marker="x", color="grey")
        if of_first := found.of(first, task):
            share = fmean(of_first) / 100
            error = 200 * (share * (1 - share) / entry["sentences"]["test"]) ** 0.5
            axes[1].barh(place, 2 * error, 0.8, -error, color="0.9")
    for number, encoder in enumerate(encoders):
        colour, shift = f"C{number}", (number - (len(encoders) - 1) / 2) * step
        for place, task in enumerate(tasks):
            height = place + shift
            if values := found.of(encoder, task):
                _draw_seeds(axes[0], values, height, step / 2, colour)
            if encoder == first:
                continue
            if differences := found.differences(encoder, task):
                _draw_seeds(axes[1], differences, height, step / 2, colour)
            if first in paper and encoder in paper:
                difference = paper[encoder][task] - paper[first][task]
                axes[1].plot(difference, height, marker="D", color=colour, markersize=4, markerfacecolor="none")
        axes[0].plot([], [], "o", color=colour, label=Path(encoder).name)
    axes[0].plot([], [], "x", color="grey", label="commonest class")
    axes[1].plot([], [], "D", color="grey", markerfacecolor="none", label="the paper's")
    axes[1].bar(0, 0, color="0.9", label="2 standard errors")
    axes[1].axvline(0, color="grey", linewidth=0.8)
    axes[0].set_yticks(range(len(tasks)), tasks)
    axes[0].invert_yaxis()
    axes[0].set_xlabel("accuracy in %")
    axes[1].set_xlabel(f"difference to {Path(first).name} in points")
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize="small")
    figure.tight_layout()
    return save_picture(figure, path)


def draw_auc(table: dict[str, dict[str, dict[str, float]]], path: str | os.PathLike[str]) -> Path:
    """The areas of `auc_table` as dicts, a panel for each label, with their 95 % intervals; the line is chance."""
    from matplotlib import pyplot as plt

    labels = list(next(iter(table.values())))
    figure, axes = plt.subplots(
        1, len(labels), squeeze=False, sharey=True, figsize=(2.6 + 2.1 * len(labels), 1.2 + 0.3 * len(table))
    )
    places = range(len(table))
    for label, axis in zip(labels, axes[0], strict=True):
        areas = [row[label] for row in table.values()]
        errors = [[area["auc"] - area["low"] for area in areas], [area["high"] - area["auc"] for area in areas]]
        axis.errorbar([area["auc"] for area in areas], places, xerr=errors, fmt="o", capsize=2)
        axis.axvline(0.5, color="grey", linestyle=":")
        axis.set_title(label, fontsize="medium")
        axis.set_xlim(0.2, 1.02)
        axis.grid(alpha=0.3)
    axes[0, 0].set_yticks(places, list(table))
    axes[0, 0].invert_yaxis()
    figure.supxlabel("area under the ROC curve", fontsize="medium")
    figure.tight_layout()
    return save_picture(figure, path)
