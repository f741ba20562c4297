"""The tables of the four papers (paper_tables.yaml), and what to train for them, for plans and tasks (runs.yaml)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Run:
    """A training.

    recipe: the recipe, by its name in the folder of the setting.
    model, training: fields that are changed in these sections.
    scale: fields of the model that are multiplied: the papers' "big".
    distilled: train on translations of the run of this name, instead of the references.
    init_from: start from the weights of the run of this name.
    """

    recipe: str
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    scale: dict[str, int] = field(default_factory=dict)
    distilled: str | None = None
    init_from: str | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The runs that must be trained before this one."""
        return tuple(name for name in (self.distilled, self.init_from) if name)


@dataclass(frozen=True)
class Row:
    """A row of a table.

    run: `None` for a row that only the paper has.
    printed: the paper's figures, by column; columns without a figure for this row are missing.
    baseline: the run that it is compared with.
    """

    label: str
    run: str | None
    printed: dict[str, str]
    baseline: str | None = "plain"


@dataclass(frozen=True)
class Table:
    """A table with the columns of a paper; columns for our results are added to each table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""


# what `lab.replication.Plan` is made of
PLANNED: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("plans.yaml").read_text("utf-8"))


def run_at(arm: str, rate: float) -> str:
    """Return the name of the run of an arm at a rate."""
    return f"{arm}_further_at_{rate:g}"


def read_runs(path: Path) -> dict[str, Run]:
    """Return the runs of a file, and those of arms at the candidate rates of a plan.

    An arm is a run of the file, with "_replaces" or "_adds" for the placement of its layer aggregation. It goes on
    from the plain model of its seed.
    """
    runs = {name: Run(**fields) for name, fields in yaml.safe_load(path.read_text("utf-8")).items()}
    plain = runs["plain_further"]
    for plan in PLANNED.values():
        for arm, rates in plan.get("candidates", {}).items():
            method, _, placement = arm.rpartition("_")
            if placement in ("replaces", "adds"):
                model = runs[method].model | {"layer_aggregation_placement": placement}
                run = replace(runs[method], model=model, init_from="plain")
            else:
                run = runs[f"{arm}_further"]
            for rate in rates:
                runs[run_at(arm, rate)] = replace(run, training=plain.training | {"learning_rate": rate})
    return runs


RUNS = read_runs(Path(__file__).with_name("runs.yaml"))


def read_tables(path: Path) -> dict[str, Table]:
    """Return the tables of a file: see the first lines of paper_tables.yaml."""
    tables = {}
    for key, fields in yaml.safe_load(path.read_text("utf-8")).items():
        rows, columns = [], tuple(fields["columns"])
        for label, run, figures, *baseline in fields["rows"]:
            values = figures.split()
            if len(values) != len(columns):
                raise ValueError(f"{path}: {key}, {label}: {len(columns)} columns, but {len(values)} figures")
            printed = {name: value for name, value in zip(columns, values, strict=True) if value != "-"}
            rows.append(Row(label, run, printed, *baseline))
        tables[key] = Table(fields["title"], columns, tuple(rows), fields.get("note", ""))
    return tables


TABLES = read_tables(Path(__file__).with_name("paper_tables.yaml"))


def runs_of(tables: Sequence[str]) -> list[str]:
    """Return the runs that tables need, each once; baselines, teachers and initial models come before their users."""
    order: list[str] = []

    def add(name: str) -> None:
        for needed_run in RUNS[name].needs:
            add(needed_run)
        if name not in order:
            order.append(name)

    for key in tables:
        for row in TABLES[key].rows:
            if row.run is not None:
                if row.baseline:
                    add(row.baseline)
                add(row.run)
    return order


def shared_with_equal_models(models: dict[str, Any]) -> dict[str, Any]:
    """Return the values of models for all runs with an equal model, that is, which differ in training alone."""

    def model_of(run: Run) -> str:
        return repr((run.recipe, sorted(run.model.items()), sorted(run.scale.items())))

    measured = {model_of(RUNS[name]): value for name, value in models.items() if name in RUNS}
    return models | {
        name: measured[model_of(run)] for name, run in RUNS.items() if name not in models and model_of(run) in measured
    }
