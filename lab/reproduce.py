"""The papers' tables at our size: trains the rows, scores them, and writes docs/results.md.

    python scripts/reproduce.py dou1 --budget 30                      # on the embedded corpus, one seed
    python scripts/reproduce.py all --seeds 1 2 3 --budget 600
    python scripts/reproduce.py headline --setting multi30k --data-dir data/multi30k-en-de --budget 120
    python scripts/reproduce.py all --speeds                          # only the speeds, on a machine that is quiet
    python scripts/reproduce.py --render                              # docs/results.md from the result files alone
    python scripts/reproduce.py dou1 --against linear                 # rows that are there against any other, with p

A row that has a result file is never computed again; a training that the budget or a signal stops goes on in the next
call. The translations that a score is of are kept beside it (NAME-seedN.hyp.gz), so that rows that were trained at
different times can be compared: with a budget of 0 nothing is trained, but what is there is compared, and compared
again where a baseline has been trained again. The speeds of all models are measured in turns, once for all seeds,
after the last row. Each row is the recipe of its setting with some fields changed
(hf_capsule_mt/evaluation/paper_tables.py).
"""

import argparse
import functools
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from tqdm import tqdm
from transformers import pipeline

import hf_capsule_mt  # noqa: F401  its models
from hf_capsule_mt.commands.command_line import HelpFormatter, keep_freed_memory, positive, run
from hf_capsule_mt.evaluation import read_result, write_result
from hf_capsule_mt.evaluation.length_buckets import score_by_length
from hf_capsule_mt.evaluation.metrics import score_corpus
from hf_capsule_mt.evaluation.significance import compare_systems
from hf_capsule_mt.evaluation.text_files import read_lines
from hf_capsule_mt.pipelines.files import one_line
from hf_capsule_mt.training import load_recipe
from hf_capsule_mt.training.models import build_model
from hf_capsule_mt.training.run_data import load_corpus, load_or_train_tokenizer
from lab.coverage_difference import coverage_difference
from lab.paper_tables import RUNS, TABLES, Run, baselines_of, runs_of, share_among_equals
from lab.report import (
    SETTINGS,
    read_results,
    render_results,
    result_path,
    short_title,
    speeds_path,
    translations_path,
)
from lab.runs_over_seeds import RunsOverSeeds
from lab.speed import milliseconds_in_turns
from lab.table_pictures import draw_setting, draw_what_came_of_claims
from lab.text_files import write_lines

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    names = [*TABLES, "all"]
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(names))
    parser.add_argument(
        "--budget", type=float, default=30, help="minutes; what is not ready by then is left for later"
    )
    parser.add_argument("--setting", choices=list(SETTINGS), default="embedded", help="the data and the sizes")
    parser.add_argument("--runs", nargs="+", choices=list(RUNS), metavar="RUN", help="only these runs of the tables")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="train with each of these")
    parser.add_argument("--data-dir", help="where the files of the setting's recipes are")
    parser.add_argument("--work", type=Path, default=Path("outputs/reproduce"), help="checkpoints and logs")
    parser.add_argument("--results", type=Path, default=Path("docs/results"), help="result files, translations")
    parser.add_argument("--document", type=Path, default=Path("docs/results.md"), help="the page to write")
    parser.add_argument(
        "--set",
        nargs=2,
        action="append",
        default=[],
        metavar=("FIELD", "VALUE"),
        dest="changes",
        help="a field of every recipe, such as training.max_steps 500; kept in the result files",
    )
    parser.add_argument(
        "--speeds", action="store_true", help="train nothing, but measure the speeds of the tables' models again"
    )
    parser.add_argument("--turns", type=positive, default=10, help="how often a speed is measured; the best counts")
    parser.add_argument("--render", action="store_true", help="only write the document")
    parser.add_argument(
        "--against",
        choices=list(RUNS),
        metavar="RUN",
        help="only print how the tables' rows compare with this one, over all seeds that have translations",
    )
    return parser.parse_args()


class TrainingError(Exception):
    """One of the scripts found an error, such as a training that diverged. The other rows go on."""


class Reproduction:
    """The runs of one setting, with one budget of time."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.deadline = time.monotonic() + 60 * arguments.budget
        self.failed: dict[Path, TrainingError] = {}
        self.over_seeds = RunsOverSeeds(arguments.results, arguments.setting)

    def recipe(self, method: str) -> str:
        return f"{self.arguments.setting}/{method}"

    def folder(self, run: str, seed: int) -> Path:
        return self.arguments.work / self.arguments.setting / f"{run}-seed{seed}"

    def call(self, command: list[str], log: Path) -> bool:
        """Runs one of the scripts until it is ready, or until the budget is used up: then it is told to stop."""
        if log in self.failed:  # several rows may need it: it is tried for the first of them
            raise self.failed[log]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as output:
            process = subprocess.Popen([sys.executable, *command], stdout=output, stderr=subprocess.STDOUT)
            try:
                code = process.wait(max(self.deadline - time.monotonic(), 1))
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                process.send_signal(signal.SIGTERM)
                process.wait()
                return False
        if code:
            self.failed[log] = TrainingError(f"{Path(command[0]).name} failed with code {code}: see {log}")
            raise self.failed[log]
        return True

    def overrides(self, run: Run, seed: int) -> dict[str, Any]:
        """What the run changes in its recipe, as `section.field: value`."""
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
            data = self.folder(f"distilled-by-{run.distilled}", seed)
            changed["data.train"] = {"jsonl": os.path.join(".", data, "part-*.jsonl")}
        return changed | {name: json.loads(value) for name, value in self.arguments.changes}

    def train(self, name: str, seed: int) -> bool:
        """The checkpoint of a run; False if the time was not enough."""
        run, folder = RUNS[name], self.folder(name, seed)
        if (folder / "train_result.json").exists():
            return True
        for before in run.needs:  # its result may have come from elsewhere, without the checkpoint
            if not self.train(before, seed):
                return False
        recipe = self.recipe(run.recipe)
        if run.distilled:
            data = self.folder(f"distilled-by-{run.distilled}", seed)
            teacher = self.folder(run.distilled, seed)
            extra = ["--data-dir", self.arguments.data_dir] if self.arguments.data_dir else []
            command = [str(SCRIPTS / "distill.py"), self.recipe("plain"), str(data), "--teacher"]
            if not self.call([*command, str(teacher), *extra], data.with_suffix(".log")):
                return False
        command = [str(SCRIPTS / "train.py"), recipe, "--output_dir", str(folder), "--seed", str(seed)]
        for field, value in self.overrides(run, seed).items():
            command += [f"--{field}", json.dumps(value)]
        return self.call(command, folder.with_suffix(".log")) and (folder / "train_result.json").exists()

    @functools.cached_property
    def test_set(self) -> tuple[list[str], list[str]]:
        """Sources and references, which are the same for every run of a setting."""
        changes = self.overrides(RUNS["plain"], seed=1)
        recipe = load_recipe(self.recipe("plain"), changes)
        test = load_corpus(recipe, parts=("validation", "test"))["test"]
        source, target = (self.side(test, recipe, side) for side in ("source", "target"))
        return source, target

    def score(self, name: str, seed: int) -> None:
        """Translates the test set; writes the translations and the result file."""
        run, folder = RUNS[name], self.folder(name, seed)
        recipe = load_recipe(self.recipe(run.recipe), self.overrides(run, seed) | {"seed": seed})
        sources, references = self.test_set
        translate = pipeline("translation", model=str(folder), device=DEVICE)
        found = [result["translation_text"] for result in translate(sources, batch_size=50)]
        hypotheses = [one_line(text) for text in found]
        write_lines(self.translations(name, seed), hypotheses)
        training = read_result(folder / "train_result.json")
        train = load_corpus(recipe)["train"]
        some = train.select(range(min(len(train), 20_000)))
        ratio = coverage_difference(
            *(self.side(some, recipe, side) for side in ("source", "target")), sources, hypotheses, references
        )
        scores = score_corpus(hypotheses, [references], ["bleu", "bleu_uncased", "chrf", "ter"])
        result = {
            "kind": "reproduction",
            "run": name,
            "seed": seed,
            "setting": self.arguments.setting,
            "changes": dict(self.arguments.changes),
            "recipe": training["recipe"],
            "parameters": training["parameters"],
            "steps": training["steps"],
            "sentences": len(sources),
            "scores": {key: score.as_dict() for key, score in scores.items()},
            "by_length": [bucket.as_dict() for bucket in score_by_length(sources, hypotheses, [references])],
            "coverage_difference_ratio": ratio,
            "comparisons": {},
        }
        write_result(self.result(name, seed), result)
        print(f"{name}, seed {seed}: {scores['bleu'].text}", flush=True)

    def side(self, part: Any, recipe: Any, side: str) -> list[str]:
        return [pair[recipe.languages[side]] for pair in part["translation"]]

    def result(self, name: str, seed: int) -> Path:
        return result_path(self.arguments.results, self.arguments.setting, name, seed)

    def translations(self, name: str, seed: int) -> Path:
        return translations_path(self.arguments.results, self.arguments.setting, name, seed)

    def compare(self, name: str, seed: int) -> None:
        """Adds what is missing to a result: the comparisons with the baselines that any table asks for.

        The translations are enough, no checkpoint is needed. Where the baseline has been trained again, the comparison
        with what it was before is replaced.
        """
        result = read_result(self.result(name, seed))
        for baseline in baselines_of(name):
            files = [self.translations(run, seed) for run in (baseline, name)]
            if self.is_known(result, baseline, seed) or not all(path.exists() for path in files):
                continue
            _, references = self.test_set
            systems = {run: read_lines(path) for run, path in zip((baseline, name), files, strict=True)}
            result["comparisons"][baseline] = compare_systems(systems, [references], ["bleu"])[name]["bleu"].as_dict()
            write_result(self.result(name, seed), result)

    def is_known(self, result: dict[str, Any], baseline: str, seed: int) -> bool:
        """Whether a result is compared with the baseline as it is now; it may be kept without the baseline's file."""
        if baseline not in result["comparisons"]:
            return False
        path = self.result(baseline, seed)
        return not path.exists() or math.isclose(
            result["comparisons"][baseline]["baseline_score"], read_result(path)["scores"]["bleu"]["score"]
        )

    def compare_over_seeds(self, name: str, seed: int) -> None:
        """Adds to a result what it and those of smaller seeds say together, each against the baseline of its seed."""
        result = read_result(self.result(name, seed))
        for baseline, comparison in result["comparisons"].items():
            seeds = [one for one in self.over_seeds.seeds_of_both(name, baseline) if one <= seed]
            if len(seeds) < 2:
                continue
            known, difference = comparison.get("over_seeds", {}), self.mean_difference(name, baseline, seeds)
            if known.get("seeds") == seeds and math.isclose(known["difference"], difference, abs_tol=1e-9):
                continue
            difference, p_value = self.over_seeds.bootstrap(name, baseline, seeds, self.test_set[1])
            comparison["over_seeds"] = {"seeds": seeds, "difference": difference, "p_bootstrap": p_value}
            write_result(self.result(name, seed), result)

    def mean_difference(self, name: str, baseline: str, seeds: list[int]) -> float:
        """That of a run to a baseline by the result files of some seeds; not a number where one does not say."""
        found = [read_result(self.result(name, seed))["comparisons"].get(baseline) for seed in seeds]
        return fmean(math.nan if entry is None else entry["difference"] for entry in found)

    def against(self, baseline: str) -> str:
        """The runs of the tables against any other, as Markdown."""
        names = tqdm(self.wanted(), desc=f"Against {baseline}")
        table = self.over_seeds.table(names, baseline, self.test_set[1])
        if not table:
            tables = ", ".join(self.arguments.tables)
            raise SystemExit(f"reproduce.py --against {baseline}: no row of {tables} has a seed in common with it")
        return table

    def measure_speeds(self, names: list[str]) -> None:
        """Times the models of runs in turns, as they are before training, and writes the setting's file of speeds.

        It keeps what it has: the models that were in it are timed again beside the new ones.
        """
        path = speeds_path(self.arguments.results, self.arguments.setting)
        before = read_result(path)["models"] if path.exists() else {}
        recipes = {
            name: load_recipe(self.recipe(run.recipe), self.overrides(run, seed=1))
            for name, run in RUNS.items()
            if name in names or name in before
        }
        plain = load_recipe(self.recipe("plain"), self.overrides(RUNS["plain"], seed=1))
        tokenizer = load_or_train_tokenizer(plain, load_corpus(plain), self.folder("plain", 1) / "tokenizer")
        keys = {name: json.dumps(recipe.model, sort_keys=True) for name, recipe in recipes.items()}
        models = {keys[name]: build_model(recipe.model, tokenizer).to(DEVICE) for name, recipe in recipes.items()}
        sources, references = (side[:32] for side in self.test_set)
        turns = self.arguments.turns
        with tqdm(total=len(models) * 3 * (turns + 1), desc="Speeds") as bar:
            milliseconds = milliseconds_in_turns(
                models, tokenizer, sources, references, turns, progress=lambda: bar.update() and None
            )
        found = {
            name: {
                "parameters": sum(p.numel() for p in models[key].parameters()),
                "milliseconds": milliseconds[key],
            }
            for name, key in keys.items()
        }
        write_result(path, {"kind": "speeds", "changes": self.sizes, "models": found})

    @property
    def sizes(self) -> dict[str, Any]:
        """What is changed in the models of all recipes."""
        return {field: value for field, value in self.arguments.changes if field.startswith("model.")}

    def has_speeds(self, names: list[str]) -> bool:
        path = speeds_path(self.arguments.results, self.arguments.setting)
        if not path.exists():
            return False
        before = read_result(path)
        return before["changes"] == self.sizes and set(names) <= share_among_equals(before["models"]).keys()

    def wanted(self, with_needs: bool = False) -> list[str]:
        """The runs of the tables that are asked for, perhaps with those of them that others start from."""
        wanted = runs_of(list(TABLES) if "all" in self.arguments.tables else self.arguments.tables)
        if not self.arguments.runs:
            return wanted
        asked = set(self.arguments.runs)
        if with_needs:
            asked.update(need for name in self.arguments.runs for need in RUNS[name].needs)
        return [name for name in wanted if name in asked]

    def run(self) -> list[str]:
        """Trains, scores and compares until the budget is used up; returns what failed."""
        wanted = self.wanted(with_needs=True)
        if self.arguments.speeds:
            self.measure_speeds(wanted)
            return []
        late, failed = False, []
        for seed in self.arguments.seeds:
            for name in wanted:
                if not self.result(name, seed).exists():
                    try:
                        late = late or time.monotonic() > self.deadline or not self.train(name, seed)
                    except TrainingError as error:
                        failed.append(f"{name}, seed {seed}: {error}")
                        print(failed[-1], flush=True)
                        continue
                    if late:
                        continue
                    self.score(name, seed)
                self.compare(name, seed)
                self.compare_over_seeds(name, seed)
        if late:
            print("The budget is used up; the same command goes on.")
        elif not self.has_speeds(wanted):
            self.measure_speeds(wanted)
        return failed


def main() -> int:
    arguments = parse_arguments()
    keep_freed_memory()
    known = [*TABLES, "all"]
    if set(arguments.tables) - set(known) or not (arguments.tables or arguments.render):
        raise SystemExit(f"reproduce.py needs tables of {', '.join(known)}, or --render; got {arguments.tables}")
    if (arguments.render or arguments.against) and not arguments.results.is_dir():
        option = "--render" if arguments.render else "--against"
        raise SystemExit(f"reproduce.py {option}: no such folder: {arguments.results}")
    if arguments.against:
        print(Reproduction(arguments).against(arguments.against), end="")
        return 0
    failed = [] if arguments.render else Reproduction(arguments).run()
    if importlib.util.find_spec("matplotlib"):
        found = {setting: read_results(arguments.results, setting) for setting in SETTINGS}
        for setting, results in found.items():
            draw_setting(results, arguments.results / setting)
        titles = {short_title(setting): results for setting, results in found.items()}
        draw_what_came_of_claims(titles, arguments.results / "claims.png")
    else:
        print("No pictures, which need matplotlib: pip install hf-capsule-mt[analysis]")
    document = render_results(arguments.results, place=arguments.document.parent)
    arguments.document.write_text(document, encoding="utf-8")
    print(f"Document: {arguments.document}")
    if failed:
        print("\n".join(["Failed:", *failed]), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
