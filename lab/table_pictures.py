"""Pictures of the papers' tables at our size, drawn from the results of `scripts/reproduce.py`."""

from pathlib import Path
from statistics import fmean
from typing import Any

from hf_capsule_mt.analysis.score_pictures import draw_by_length
from lab.paper_tables import CLAIMS, TABLES, Table
from lab.report import comparisons_with
from lab.result_pictures import (
    ClaimedDifference,
    SweepPoint,
    draw_claims,
    draw_differences,
    draw_sweep,
    sweep_points,
)

Results = dict[str, dict[int, dict[str, Any]]]  # of a setting: {run: {seed: result}}

BY_LENGTH = ("plain", "em_routing", "head_em_lower", "gdr_both", "rnmt", "pooling", "capsnmt")


def draw_setting(results: Results, folder: Path) -> list[Path]:
    """All that the results of a setting are enough for; older pictures of it are deleted.

    `KEY.png`: the sweep of a table, where the paper has a plot. `lengths.png`: score and length by source length, of
    the first seed. `differences.png`: every row against its baseline, seed by seed.
    """
    for name in (*TABLES, "lengths", "differences"):
        (folder / f"{name}.png").unlink(missing_ok=True)
    made = []
    for key, table in TABLES.items():
        points = _points(table, results)
        if len({point.value for point in points}) > 1:
            made.append(draw_sweep(points, folder / f"{key}.png", table.swept, baseline=_baseline(table, results)))
    systems = {run: results[run][min(results[run])]["by_length"] for run in BY_LENGTH if run in results}
    if len(systems) > 1:
        made.append(draw_by_length(systems, folder / "lengths.png"))
    if differences := _differences(results):
        made.append(draw_differences(differences, folder / "differences.png"))
    return made


def draw_what_came_of_claims(settings: dict[str, Results], path: Path) -> Path | None:
    """The papers' claims beside the differences of {title of a setting: its results}; nothing if there are none."""
    path.unlink(missing_ok=True)
    claims = {
        paper: [
            ClaimedDifference(
                claim.text,
                claim.printed,
                {
                    title: values
                    for title, results in settings.items()
                    if (values := _differences_to(results, claim.run, claim.row.baseline))
                },
            )
            for claim in group
        ]
        for paper, group in CLAIMS.items()
    }
    if not any(claim.found for group in claims.values() for claim in group):
        return None
    return draw_claims(claims, path)


def _differences_to(results: Results, run: str | None, baseline: str | None) -> list[float]:
    """The differences in BLEU of a run to a baseline, for each seed that is compared with it."""
    return [entry["difference"] for entry in comparisons_with(baseline, results.get(run or "", {}))]


def _points(table: Table, results: Results) -> list[SweepPoint]:
    """The rows that have the field which the table sweeps."""
    if not table.swept:
        return []
    runs = dict.fromkeys(row.run for row in table.rows if row.run not in (None, row.baseline))
    found = [result for run in runs for result in results.get(run or "", {}).values()]
    return sweep_points(found, table.swept, table.lines or None)


def _baseline(table: Table, results: Results) -> float | None:
    """The mean score of what the table's rows are compared with."""
    runs = results.get(table.rows[-1].baseline or "", {})
    return fmean(result["scores"]["bleu"]["score"] for result in runs.values()) if runs else None


def _differences(results: Results) -> dict[str, list[float]]:
    """The differences in BLEU of each run to its baselines, for each seed, in the order of the tables."""
    pairs = dict.fromkeys(
        (row.run, row.baseline) for table in TABLES.values() for row in table.rows if row.run != row.baseline
    )
    found: dict[str, list[float]] = {}
    for run, baseline in pairs:
        if values := _differences_to(results, run, baseline):
            found[run if baseline == "plain" else f"{run} against {baseline}"] = values  # type: ignore[index]
    return found
