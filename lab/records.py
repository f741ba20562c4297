"""The laboratory's results: a JSON object on a line, and beside them the translations of the runs trained here.

`embedded`, `multi30k` and `tatoeba` hold the runs of a setting, by `run` and `seed`, and its other measurements, by
`name`; `studies` holds everything else by `name`. A line has all that `write_result` keeps: the command, the date, the
machine, the software and the commit. Numbers have six digits.

`SETTING.hyp.jsonl` has a run's translations of the test set on a line. Git ignores it: only the machine that trained a
run has its translations.
"""

import csv
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capsule_mt.files.lock import lock_output
from capsule_mt.files.outputs import write_output
from capsule_mt.files.reading import read_lines
from hf_capsule_mt.evaluation.results import stamped

SPEEDS = "speeds"  # the name of the record with the speeds of a setting's models
Runs = dict[str, dict[int, dict[str, Any]]]  # of a setting: {run: {seed: result}}
Metric = tuple[str, str]  # where a row has a score: the group, and the name in it
BLEU: Metric = ("scores", "bleu")


def scores_by_seed(runs: Runs, run: str | None, metric: Metric = BLEU) -> dict[int, float]:
    """Return the score of each seed of a run that has one."""
    group, name = metric
    rows = runs.get(run or "", {})
    return {seed: row[group][name]["score"] for seed, row in rows.items() if name in row.get(group, {})}


class Records:
    """The results in a folder. Several processes may add to them."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, file: str) -> Path:
        """Return where a file is, or would be."""
        return self.folder / f"{file}.jsonl"

    def read(self, file: str) -> list[dict[str, Any]]:
        """Return all lines of a file, none if there is no such file."""
        path = self.path(file)
        if not path.exists():
            return []
        # lines end in a line feed alone: other line breaks may stand in a sentence
        return [json.loads(line) for line in path.read_bytes().decode().removesuffix("\n").split("\n")]

    def runs(self, setting: str) -> Runs:
        """Return the runs of a setting: {run: {seed: result}}."""
        runs: Runs = {}
        for record in self.read(setting):
            if "run" in record:
                runs.setdefault(record["run"], {})[record["seed"]] = record
        return runs

    def run(self, setting: str, run: str, seed: int) -> dict[str, Any] | None:
        return self.runs(setting).get(run, {}).get(seed)

    def named(self, file: str) -> dict[str, dict[str, Any]]:
        """Return the records of a file that are no runs: {name: record}."""
        return {record["name"]: record for record in self.read(file) if "name" in record}

    def keep(self, file: str, record: Mapping[str, Any]) -> None:
        """Add a record in its place, or replace the one of the same run and seed or name."""
        new = _rounded(stamped(record))
        with lock_output(self.folder / file, wait=True):
            records = {_key(entry): entry for entry in self.read(file)} | {_key(new): new}
            lines = (json.dumps(records[key], ensure_ascii=False) + "\n" for key in sorted(records))
            write_output(self.path(file), "".join(lines))

    def translations(self, setting: str) -> dict[tuple[str, int], list[str]]:
        """Return the translations of the test set by {(run, seed): sentences}."""
        return {(record["run"], record["seed"]): record["sentences"] for record in self.read(f"{setting}.hyp")}

    def keep_translations(self, setting: str, run: str, seed: int, sentences: list[str]) -> None:
        self.keep(f"{setting}.hyp", {"run": run, "seed": seed, "sentences": sentences})


def _rounded(value: Any) -> Any:
    """Return a value with its numbers as six digits say them: more of them only fill the repository."""
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) and abs(value) < 1e6 else value


def _key(record: Mapping[str, Any]) -> tuple[bool, str, int]:
    """Return what records are sorted by: first the runs, then by name."""
    return ("name" in record, record["name"], 0) if "name" in record else (False, record["run"], record["seed"])


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Return the rows of a tab-separated file with a header and without quoting, by its columns."""
    header, *rows = csv.reader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}:{number}: has {len(row)} columns, but the header has {len(header)}")
    return [dict(zip(header, row, strict=True)) for row in rows]
