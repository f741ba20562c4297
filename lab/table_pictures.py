"""Pictures of the papers' tables at our size, drawn from the results of `lab.reproduce`, and of what lengths cost."""

import os
from pathlib import Path
from statistics import fmean
from typing import Any

from hf_capsule_mt.analysis.pictures import draw_by_length, save_picture
from lab.paper_tables import PROBING, TABLES, Table
from lab.records import Runs
from lab.result_pictures import (
    SweepPoint,
    draw_auc,
    draw_probing,
    draw_sweep,
    sweep_points,
)

BY_LENGTH = ("plain", "em_routing", "head_em_lower", "gdr_both", "rnmt", "pooling", "capsnmt")


def draw_setting(results: Runs, folder: Path) -> list[Path]:
    """Draw all that the results of a setting suffice for, and delete its older pictures.

    `KEY.png`: the sweep of a table, where the paper has a plot. `lengths.png`: score and length by source length, of
    the first seed.
    """
    for name in (*TABLES, "lengths"):
        (folder / f"{name}.png").unlink(missing_ok=True)
    made = []
    for key, table in TABLES.items():
        points = _points(table, results)
        if len({point.value for point in points}) > 1:
            made.append(draw_sweep(points, folder / f"{key}.png", table.swept, baseline=_baseline(table, results)))
    systems = {run: results[run][min(results[run])]["by_length"] for run in BY_LENGTH if run in results}
    if len(systems) > 1:
        made.append(draw_by_length(systems, folder / "lengths.png"))
    return made


def draw_studies(studies: dict[str, dict[str, Any]], folder: Path) -> list[Path]:
    """Draw the studies that have a picture, into `NAME.png`."""
    made = []
    for name, record in studies.items():
        path = folder / f"{name}.png"
        if "auc" in record:
            made.append(draw_auc(record["auc"], path))
        elif "sweeps" in record:
            made.append(draw_lengths(record["sweeps"], path))
        elif record.get("kind") == "probing":
            made.append(draw_probing(record["results"], PROBING, path))
    return made


def _points(table: Table, results: Runs) -> list[SweepPoint]:
    """Return the rows that have the field which the table sweeps."""
    if not table.swept:
        return []
    runs = dict.fromkeys(row.run for row in table.rows if row.run not in (None, row.baseline))
    found = [result for run in runs for result in results.get(run or "", {}).values()]
    return sweep_points(found, table.swept, table.lines or None)


def _baseline(table: Table, results: Runs) -> float | None:
    """Return the mean score of the baseline of the table."""
    runs = results.get(table.rows[-1].baseline or "", {})
    return fmean(result["scores"]["bleu"]["score"] for result in runs.values()) if runs else None


def draw_lengths(sweeps: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Draw the time of a translation and of each word by the length of the source, and by that of the target.

    Args:
        sweeps: what `lab.lengths.measure_lengths` returns.
        path: the file to write, as PNG, PDF or SVG by its ending.
    """
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, len(sweeps), figsize=(4.5 * len(sweeps), 6), squeeze=False, sharex="col")
    for column, (side, sweep) in enumerate(sweeps.items()):
        lengths = [row[f"{side}_length"] for row in sweep["rows"]]
        for name in sweep["slopes"]:
            totals = [row["seconds"][f"{name} translate"]["median"] for row in sweep["rows"]]
            per_word = [row["milliseconds_per_word"][name] for row in sweep["rows"]]
            axes[0, column].plot(lengths, totals, marker="o", label=name)
            axes[1, column].plot(lengths, per_word, marker="o", label=name)
        axes[1, column].set_xlabel(f"words of the {side}")
        for row, label in enumerate(("seconds per sentence", "decoding, ms per word")):
            axes[row, column].set_ylabel(label)
            axes[row, column].set_ylim(bottom=0)
            axes[row, column].grid(alpha=0.3)
    axes[0, -1].legend()  # in the target's panel, whose lines leave a corner free
    figure.tight_layout()
    return save_picture(figure, path)
