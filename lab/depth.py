"""Compare routing of layers with newer layer aggregations in the same place: train them, and rank them in a table.

    python -m lab.depth deep --budget 60                                  # on the embedded corpus
    python -m lab.depth top --data-dir data/multi30k-en-de --budget 600
    for i in $(seq 14); do python -m lab.depth top --data-dir data/multi30k-en-de --budget 10 & done; wait

One task is one set of data, sizes and seeds, and one method is a run of runs.yaml, with one record for each seed in
lab/results/depth_TASK.jsonl. To add a method, add its run there and its line to the task in plans.yaml. Tasks were
committed before any of their rows was scored. A training that the budget stops resumes in the next call, and the same
call in further processes shares the work: the last line is for one GPU, where `nvidia-cuda-mps-control -d` lets small
trainings run at once. `python -m lab.report` then writes the report.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from capsule_mt.commands.console import HelpFormatter, run
from hf_capsule_mt.commands.arguments import keep_freed_memory
from hf_capsule_mt.evaluation.results import markdown_table
from lab.effects import estimated
from lab.over_seeds import holm, shown_p
from lab.paper_tables import PLANNED, RUNS
from lab.plan_spread import Estimate, Scores, blocks
from lab.records import Records, Runs
from lab.reproduce import Reproduction, add_subset_options, add_training_options, changes_on, check_subset
from lab.tables import provenance


@dataclass(frozen=True)
class Task:
    """Methods that are trained alike.

    setting: the recipes for a corpus.
    methods: a description of each run, the baseline first.
    contrasts: the differences between two runs that Holm's correction counts.
    changes: fields of every recipe.
    failed: a BLEU below which a model has not learnt to translate. If a run has not, the table counts the runs that
        have, since a difference to a model that does not translate is not a gain.
    """

    title: str
    setting: str
    seeds: list[int]
    methods: dict[str, str]
    contrasts: list[list[str]]
    changes: dict[str, str]
    failed: float

    @property
    def baseline(self) -> str:
        return next(iter(self.methods))


TASKS = {name: Task(**fields) for name, fields in PLANNED["tasks"].items()}


def file_of(task: str) -> str:
    """Return the name of a task's file in lab/results."""
    return f"depth_{task}"


def scores_of(runs: Runs, task: Task) -> Scores:
    """Return the BLEU of each method and seed of a task."""
    return {
        run: {seed: record["scores"]["bleu"]["score"] for seed, record in runs[run].items() if seed in task.seeds}
        for run in task.methods
        if run in runs
    }


def contrasts(task: Task, scores: Scores) -> dict[tuple[str, str], Estimate]:
    """Return the contrasts of methods that have all seeds, p corrected by Holm for all contrasts of the task."""
    complete = {run: by_seed for run, by_seed in scores.items() if len(by_seed) == len(task.seeds)}
    spread = blocks(complete)
    if spread is None:
        return {}
    estimates = {(ours, theirs): spread.difference(ours, theirs) for ours, theirs in task.contrasts}
    corrected = holm(
        {" - ".join(pair): 1.0 if estimate is None else estimate.p for pair, estimate in estimates.items()}
    )
    return {
        pair: estimate._replace(p=corrected[" - ".join(pair)])
        for pair, estimate in estimates.items()
        if estimate is not None
    }


def table(records: Records, name: str) -> str:
    """Return a row for each method of a task that has a result, the best first, and the contrasts below.

    Where a run did not learn, the rows count the runs that did and have no gains.
    """
    task, runs = TASKS[name], records.runs(file_of(name))
    scores = scores_of(runs, task)
    parts = [f"### {task.title[0].upper()}{task.title[1:]} (`python -m lab.depth {name}`)"]
    if not scores:
        return "\n\n".join([*parts, "No model has been trained yet."])
    learnt = {run: sum(score >= task.failed for score in by_seed.values()) for run, by_seed in scores.items()}
    all_learn = all(learnt[run] == len(scores[run]) for run in scores)
    spread = blocks({run: by_seed for run, by_seed in scores.items() if len(by_seed) == len(task.seeds)})
    rows = []
    for arm in sorted(scores, key=lambda arm: (-learnt[arm], -fmean(scores[arm].values()))):
        by_seed = scores[arm]
        mean = f"{fmean(by_seed.values()):.2f}" if all_learn else f"learns {learnt[arm]} of {len(by_seed)}"
        estimate = spread.difference(arm, task.baseline) if spread and all_learn and arm != task.baseline else None
        rows.append([
            task.methods[arm],
            f"{next(iter(runs[arm].values()))['parameters']:,}",
            mean,
            estimated(estimate),
            " / ".join(f"{score:.2f}" for _, score in sorted(by_seed.items())),
        ])  # fmt: skip
    header = ["method", "parameters", "BLEU", "gain, pooled interval", "BLEU of each seed"]
    parts.append(markdown_table(header, rows))
    if missing := [task.methods[run] for run in task.methods if run not in scores]:
        parts.append(f"Not yet trained: {'; '.join(missing)}.")
    estimates = contrasts(task, scores) if all_learn else {}
    if estimates:
        rows = [
            [task.methods[ours], task.methods[theirs], estimated(estimate), shown_p(estimate.p)]
            for (ours, theirs), estimate in estimates.items()
        ]
        parts += [f"The contrasts of the plan ({spread}):"]
        parts.append(markdown_table(["method", "compared with", "gain, pooled interval", "p, Holm-corrected"], rows))
    return "\n\n".join([*parts, provenance(records, file_of(name), task.methods)])


def tables(records: Records) -> str:
    """Return the tables of all tasks."""
    return "\n\n".join(table(records, name) for name in TASKS)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("task", choices=list(TASKS))
    add_training_options(parser)
    add_subset_options(parser)
    return parser.parse_args()


def reproduction_of(arguments: argparse.Namespace) -> Reproduction:
    """Return what trains the methods of a task."""
    task = TASKS[arguments.task]
    settings: Mapping[str, Any] = vars(arguments) | {
        "setting": task.setting,
        "study": file_of(arguments.task),
        "seeds": arguments.seeds or list(task.seeds),
        "changes": changes_on(task.changes, arguments.cpu),
    }
    return Reproduction(argparse.Namespace(**settings))


def main() -> int:
    arguments = parse_arguments()
    task = TASKS[arguments.task]
    runs = arguments.runs or list(task.methods)
    check_subset("lab.depth --seeds", arguments.seeds or [], task.seeds)
    check_subset("lab.depth --runs", runs, task.methods)
    keep_freed_memory()
    reproduction = reproduction_of(arguments)
    failed = reproduction.train_and_score([name for name in runs if name in RUNS])
    print(table(reproduction.records, arguments.task))
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
