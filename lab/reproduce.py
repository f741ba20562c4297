"""Train the rows of the papers' tables at our size, score them, and keep the results in lab/results.

    python -m lab.reproduce dou1 --budget 30                      # on the embedded corpus, one seed
    python -m lab.reproduce all --seeds 1 2 3 --budget 600
    python -m lab.reproduce headline --setting multi30k --data-dir data/multi30k-en-de --budget 120

Run it from the repository, then `python -m lab.report`. A row with a result is never computed again. A training that
the budget or a signal stops resumes in the next call, and the same call in a second process shares the work.
Translations are kept beside the results, outside of git. Each row is a recipe of its setting with some fields changed
(lab/paper_tables.py).
"""

import argparse
import functools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from transformers import pipeline

import hf_capsule_mt  # noqa: F401  its models
from capsule_mt.commands.console import CommandParser, run
from capsule_mt.coverage.calibration.word_alignment import fit_aligner
from capsule_mt.files.digests import file_digest
from capsule_mt.files.line_failures import FAILED_LINES_STATUS
from capsule_mt.files.lines import one_line
from capsule_mt.files.lock import OutputTakenError, lock_output
from hf_capsule_mt.commands.arguments import keep_freed_memory
from hf_capsule_mt.data.settings import nearest
from hf_capsule_mt.evaluation import read_result
from hf_capsule_mt.evaluation.adequacy import coverage_difference_ratio
from hf_capsule_mt.evaluation.length_buckets import score_by_length
from hf_capsule_mt.evaluation.metrics import score_corpus
from hf_capsule_mt.training import load_recipe
from hf_capsule_mt.training.distillation import SUMMARY_FILE
from hf_capsule_mt.training.run_data import load_corpus
from hf_capsule_mt.training.signals import StoppedBySignal, first_signal, stop
from lab.paper_tables import RUNS, TABLES, Run, runs_of
from lab.records import Records
from lab.tables import DATA_SOURCES, SETTINGS

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
WAIT = 10  # seconds, until it asks again whether another call's run has ended
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(prog="python -m lab.reproduce", description=__doc__)
    names = [*TABLES, "all"]
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(names))
    parser.add_argument("--setting", choices=list(SETTINGS), default="embedded", help="the data and the sizes")
    parser.add_argument("--study", help="keep checkpoints and results under this name instead of the setting's")
    parser.add_argument("--runs", nargs="+", choices=list(RUNS), metavar="RUN", help="only these runs of the tables")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="train with each of these")
    add_training_options(parser)
    parser.add_argument(
        "--set",
        nargs=2,
        action="append",
        default=[],
        metavar=("FIELD", "VALUE"),
        dest="changes",
        help="a field of every recipe, such as training.max_steps 500; kept in the result files",
    )
    arguments = parser.parse_args()
    listing = f"the tables are {', '.join(names)}"
    if not arguments.tables:
        parser.error(f"name the tables to train, as in `{parser.prog} dou1 --budget 30`; {listing}")
    for table in arguments.tables:
        if table not in names:
            parser.error(f"no table is called {table!r}{nearest(table, names)}; {listing}")
    return arguments


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Add what every training needs: data, time, and the folders of its files."""
    parser.add_argument("--data-dir", help="where the files of the recipes are")
    parser.add_argument("--budget", type=float, default=30, help="minutes; the next call goes on from there")
    parser.add_argument("--work", type=Path, default=Path("outputs/reproduce"), help="checkpoints and logs")
    parser.add_argument("--results", type=Path, default=Path("lab/results"), help="results and translations")


def translating(folder: Path) -> Callable[..., list[str]]:
    """Return what translates lines by a checkpoint, those of about one length together."""
    translate: Any = pipeline("translation", model=str(folder), device=DEVICE)  # type: ignore[call-overload]

    def translated(sources: Sequence[str], **settings: Any) -> list[str]:
        by_length = sorted(range(len(sources)), key=lambda number: len(sources[number]))
        translations = translate([sources[number] for number in by_length], batch_size=100, **settings)
        texts = {
            number: one_line(translation["translation_text"])
            for number, translation in zip(by_length, translations, strict=True)
        }
        return [texts[number] for number in range(len(sources))]

    return translated


def log_of(folder: Path) -> Path:
    """Return the log of a run; the dot of a rate in its name begins no suffix."""
    return folder.with_name(f"{folder.name}.log")


def losses(folder: Path) -> list[float]:
    """Return the mean cross entropy of each epoch of a training, from its last checkpoint."""
    states = sorted(folder.glob("checkpoint-*/trainer_state.json"), key=lambda path: int(path.parent.name[11:]))
    log = json.loads(states[-1].read_text("utf-8"))["log_history"] if states else []
    by_epoch: dict[int, list[float]] = {}
    for entry in log:
        if "nll_loss" in entry:
            by_epoch.setdefault(math.ceil(entry["epoch"]), []).append(entry["nll_loss"])
    return [fmean(by_epoch[epoch]) for epoch in sorted(by_epoch)]


class TrainingError(Exception):
    """A script failed, for example because the training diverged. The other rows go on."""


class Reproduction:
    """The runs of one setting, with one budget of time."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.deadline = time.monotonic() + 60 * arguments.budget
        self.failed: dict[Path, TrainingError] = {}
        self.late = False  # the budget is used up, or a signal came
        self.stopped = False  # a signal came
        self.records = Records(arguments.results)
        self.setting: str = arguments.setting
        self.file: str = arguments.study or arguments.setting  # of lab/results

    def recipe(self, method: str) -> str:
        return f"{self.setting}/{method}"

    def folder(self, run: str, seed: int) -> Path:
        return self.arguments.work / self.file / f"{run}-seed{seed}"

    def call(self, command: list[str], log: Path) -> bool:
        """Run a script; return False if the budget is used up first, after stopping it.

        Raises:
            OutputTakenError: Another call runs the script.
        """
        if log in self.failed:  # several rows may need what failed: only the first tries it
            raise self.failed[log]
        log.parent.mkdir(parents=True, exist_ok=True)
        with lock_output(log), log.open("a") as output:
            process: subprocess.Popen[bytes] | None = None
            try:
                with first_signal(stop):
                    process = subprocess.Popen([sys.executable, *command], stdout=output, stderr=subprocess.STDOUT)
                    code = process.wait(max(self.deadline - time.monotonic(), 1))
            except (subprocess.TimeoutExpired, StoppedBySignal) as error:
                self.stopped = isinstance(error, StoppedBySignal)
                self.late = self.late or self.stopped
                if process is not None:
                    process.send_signal(signal.SIGTERM)
                    process.wait()
                return False
        if code not in (0, FAILED_LINES_STATUS):  # a line that the teacher cannot translate is left out
            self.failed[log] = TrainingError(f"{Path(command[0]).name} failed with code {code}: see {log}")
            raise self.failed[log]
        return True

    def overrides(self, run: Run, seed: int) -> dict[str, Any]:
        """Return the changes of the run to its recipe, as `section.field: value`."""
        base = load_recipe(self.recipe(run.recipe))
        changed: dict[str, Any] = {f"model.{name}": value for name, value in run.model.items()}
        changed |= {f"model.{name}": factor * base.model[name] for name, factor in run.scale.items()}
        changed |= {f"training.{name}": value for name, value in run.training.items()}
        if self.arguments.data_dir:
            changed["data_dir"] = self.arguments.data_dir
        if run.init_from:
            changed["init_from"] = str(self.folder(run.init_from, seed))
            changed["tokenizer"] = {"load": changed["init_from"]}
        if run.distilled:
            folder = self.folder(f"distilled-by-{run.distilled}", seed)
            changed["data.train"] = {"jsonl": os.path.join(".", folder, "part-*.jsonl")}
        return changed | {name: json.loads(value) for name, value in self.changes(seed).items()}

    def changes(self, seed: int) -> dict[str, str]:
        return dict(self.arguments.changes)

    def check_data(self) -> None:
        """Refuse a folder without the setting's files, once: each run would fail on its own.

        Raises:
            FileNotFoundError: a file of the training or the test part is missing.
        """
        recipe = load_recipe(self.recipe("plain"), self.overrides(RUNS["plain"], seed=1))
        if recipe.data_dir is None:
            return
        parts = [recipe.data[part] for part in ("train", "test")]
        sources = [source for part in parts for source in (part if isinstance(part, list) else [part])]
        files = [file for source in sources for file in source["text"]]
        missing = [file for file in files if not Path(recipe.data_dir, file).is_file()]
        if missing:
            raise FileNotFoundError(
                f"the folder {recipe.data_dir} lacks {', '.join(missing)}: {DATA_SOURCES[self.setting]}. Put them "
                "there, or name their folder by --data-dir"
            )

    def train(self, name: str, seed: int) -> bool:
        """Train a run; return False if the budget is used up first."""
        run, folder = RUNS[name], self.folder(name, seed)
        if (folder / "train_result.json").exists():
            return True
        for needed_run in run.needs:  # its result may have come from elsewhere, without the checkpoint
            if not self.train(needed_run, seed):
                return False
        recipe = self.recipe(run.recipe)
        if run.distilled:
            data = self.folder(f"distilled-by-{run.distilled}", seed)
            teacher = self.folder(run.distilled, seed)
            extra = ["--data-dir", self.arguments.data_dir] if self.arguments.data_dir else []
            command = [str(SCRIPTS / "distill.py"), self.recipe("plain"), str(data), "--teacher"]
            is_there = (data / SUMMARY_FILE).exists()
            if not is_there and not self.call([*command, str(teacher), *extra], log_of(data)):
                return False
        command = [str(SCRIPTS / "train.py"), recipe, "--output_dir", str(folder), "--seed", str(seed)]
        changed = self.overrides(run, seed)
        if self.setting != "embedded":  # whose train part has the sentences of any part that is not asked for
            changed["data.test"] = None  # it is translated here, by `score`
            if changed.get("training.eval_strategy") == "no":
                changed["data.validation"] = None
        for field, value in changed.items():
            command += [f"--{field}", json.dumps(value)]
        return self.call(command, log_of(folder)) and (folder / "train_result.json").exists()

    @functools.cached_property
    def test_set(self) -> tuple[list[str], list[str]]:
        """Sources and references of the setting."""
        changes = self.overrides(RUNS["plain"], seed=1)
        recipe = load_recipe(self.recipe("plain"), changes)
        test = load_corpus(recipe, parts=("validation", "test"))["test"]
        source, target = (self.side(test, recipe, side) for side in ("source", "target"))
        return source, target

    def score(self, name: str, seed: int) -> None:
        """Translate the test set, and keep the translations and the result, with the machine that trained."""
        run, folder = RUNS[name], self.folder(name, seed)
        recipe = load_recipe(self.recipe(run.recipe), self.overrides(run, seed) | {"seed": seed})
        sources, references = self.test_set
        hypotheses = translating(folder)(sources)
        self.records.keep_translations(self.file, name, seed, hypotheses)
        training = read_result(folder / "train_result.json")
        train = load_corpus(recipe)["train"]
        sample = train.select(range(min(len(train), 20_000)))
        # the aligner learns from the training text, and from the text that it aligns
        sides = (self.side(sample, recipe, side) for side in ("source", "target"))
        aligner = fit_aligner([*next(sides), *sources, *sources], [*next(sides), *hypotheses, *references])
        links = [aligner.align_lines(sources, lines) for lines in (hypotheses, references)]
        ratio = coverage_difference_ratio(links[0], links[1:])
        scores = score_corpus(hypotheses, [references], ["bleu", "chrf", "ter"])
        result = {
            "kind": "reproduction",
            "run": name,
            "seed": seed,
            "setting": self.setting,
            "changes": self.changes(seed),
            "recipe": training["recipe"],
            "parameters": training["parameters"],
            "steps": training["steps"],
            "sentences": len(sources),
            "scores": {
                key: {"score": metric_score.score, "signature": metric_score.signature}
                for key, metric_score in scores.items()
            },
            "most_frequent": Counter(hypotheses).most_common(1)[0][1] / len(hypotheses),
            "losses": losses(folder),
            "validation_bleu": [entry["eval_bleu"] for entry in training["log"]],
            "coverage_difference_ratio": ratio,
            "by_length": [bucket.as_dict() for bucket in score_by_length(sources, hypotheses, [references])],
            **{key: training[key] for key in ("date", "hardware", "software", "commit")},
        }
        if run.init_from:  # all arms of a seed start from the same weights
            result["start_sha256"] = file_digest(self.folder(run.init_from, seed) / "model.safetensors")
        self.records.keep(self.file, result)
        print(f"{name}, seed {seed}: {scores['bleu'].text}", flush=True)

    def side(self, part: Any, recipe: Any, side: str) -> list[str]:
        return [pair[recipe.languages[side]] for pair in part["translation"]]

    def run_names(self) -> list[str]:
        """Return the runs of the tables; with --runs only these, and those they start from."""
        wanted = runs_of(list(TABLES) if "all" in self.arguments.tables else self.arguments.tables)
        if not self.arguments.runs:
            return wanted
        asked = {run for name in self.arguments.runs for run in (name, *RUNS[name].needs)}
        return [name for name in wanted if name in asked]

    def asked(self, names: Sequence[str]) -> list[tuple[str, int]]:
        return [(name, seed) for seed in self.arguments.seeds for name in names]

    def train_and_score(self, names: Sequence[str]) -> list[str]:
        """Train and score runs with every seed until the budget is used up; return the failures.

        Waits for the runs that other calls are training.
        """
        failed: list[str] = []
        missing = [run for run in self.asked(names) if self.records.run(self.file, *run) is None]
        if missing:
            self.check_data()
        waiting: list[tuple[str, int]] = []
        while missing := [run for run in missing if self._is_taken(*run, failed)]:
            if missing != waiting:
                print("Other calls train", ", ".join(f"{name}, seed {seed}" for name, seed in missing), flush=True)
            waiting = missing
            time.sleep(WAIT)
        if self.late:
            print(f"{'Stopped by a signal' if self.stopped else 'The budget is used up'}; the same command resumes.")
        return failed

    def _is_taken(self, name: str, seed: int, failed: list[str]) -> bool:
        """Train and score a run within the budget; return True if another call is at it."""
        try:
            self.late = self.late or time.monotonic() > self.deadline or not self.train(name, seed)
            if not self.late:
                with lock_output(self.folder(name, seed)):
                    if self.records.run(self.file, name, seed) is None:
                        self.score(name, seed)
        except OutputTakenError:
            return True
        except TrainingError as error:
            failed.append(f"{name}, seed {seed}: {error}")
            print(failed[-1], flush=True)
        return False


def main() -> int:
    arguments = parse_arguments()
    keep_freed_memory()
    reproduction = Reproduction(arguments)
    failed = reproduction.train_and_score(reproduction.run_names())
    print("`python -m lab.report` writes the report.")
    if failed:
        print("\n".join(["Failed:", *failed]), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
