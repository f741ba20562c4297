"""Probing results as a table: Li et al. 2019, Table 1."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from hf_capsule_mt.evaluation.markdown import markdown_table
from lab.paper_tables import PROBING
from lab.probing_tasks import TASKS
from lab.seeds import mean_and_spread
from lab.t_test import p_over_seeds

EXPLANATION = (
    "Accuracy in percent, mean and standard deviation over seeds; differences to the first encoder of the same seed, "
    "with the p of Student's t-test over them."
)


class Accuracies:
    """Those of the `ProbingResult`s that are given as dicts, in percent, by encoder, task and seed."""

    def __init__(self, results: Sequence[Mapping[str, Any]]) -> None:
        self.encoders = list(dict.fromkeys(entry["encoder"] for entry in results))
        self._found: dict[tuple[str, str], dict[int, float]] = {}
        for entry in results:
            self._found.setdefault((entry["encoder"], entry["task"]), {})[entry["seed"]] = 100 * entry["accuracy"]

    def of(self, encoder: str, task: str) -> list[float]:
        """One of each seed."""
        return list(self._found.get((encoder, task), {}).values())

    def differences(self, encoder: str, task: str) -> list[float]:
        """An encoder's to the first, of each seed that both have."""
        ours, theirs = (self._found.get((name, task), {}) for name in (encoder, self.encoders[0]))
        return [value - theirs[seed] for seed, value in ours.items() if seed in theirs]


def probing_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Accuracy in percent, mean and standard deviation over seeds, as Markdown; beside them those of the paper.

    Below the encoders their differences to the first, the mean over seeds, with the p of the t-test over seeds.

    Args:
        results: `ProbingResult`s as dicts.
    """
    found = Accuracies(results)
    of_task = {entry["task"]: entry for entry in results}
    tasks = [task for task in TASKS if task in of_task]
    lines = [
        ["commonest class", *(f"{100 * of_task[task]['majority']:.1f}" for task in tasks)],
        ["test sentences", *(f"{of_task[task]['sentences']['test']:,}" for task in tasks)],
    ]
    names = {encoder: Path(encoder).name for encoder in found.encoders}
    for encoder, name in names.items():
        accuracies = [found.of(encoder, task) for task in tasks]
        lines.append([name, *(mean_and_spread(values, ".1f") if values else "" for values in accuracies)])
    first, *others = names
    for encoder in others:
        differences = [found.differences(encoder, task) for task in tasks]
        lines.append([f"{names[encoder]} against {names[first]}", *map(_with_p, differences)])
    for encoder, printed in PROBING.items():
        lines.append([f"paper: {encoder}", *(f"{printed[task]:.2f}" for task in tasks)])
    table = markdown_table(["encoder", *tasks], lines)
    return f"{EXPLANATION}\n\n{table}\n"


def _with_p(differences: Sequence[float]) -> str:
    """The mean, and its p over seeds where there are several."""
    if not differences:
        return ""
    p = p_over_seeds(differences)
    return f"{fmean(differences):+.1f}" + ("" if p is None else f" (p={p:.3f})")
