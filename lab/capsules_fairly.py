"""Capsules against pooling on distilled text, both tuned alike, by a plan that was fixed before.

    python -m lab.capsules_fairly --data-dir data/multi30k-en-de --budget 600

All learn what one plain model, that of the replication's seed 4, says in the place of Multi30k's references, at the
paper's depth. Dropout and rate are tuned with seed 1: 2,000 steps for each of the same four pairs, and the lowest loss
on the validation set. A third row, pooling with as many parameters as the capsules, has pooling's choice. Seeds 2 to 6
train 4,500 steps; the mean of their last ten checkpoints is what counts. Each model's length penalty and forbidden
n-grams come from the same eight pairs, by BLEU on the validation set. Then it translates the test set once, and the
same sentences joined two by two: made, to have long ones. A training that the budget stops resumes in the next call.
The same call in a second process, in the same folder, shares the work.
"""

import argparse
import functools
from pathlib import Path
from typing import Any

from transformers import pipeline

from hf_capsule_mt.command_line import HelpFormatter, keep_freed_memory, run
from hf_capsule_mt.evaluation import read_result
from hf_capsule_mt.evaluation.metrics import score_corpus
from hf_capsule_mt.evaluation.results import markdown_table
from hf_capsule_mt.pipelines.lines import one_line
from lab.capsule_variants import CHANGES, Variants
from lab.effects import Gains, answer, differences, effect
from lab.over_seeds import p_over_seeds
from lab.paper_tables import RUNS, Run
from lab.records import Records, Runs
from lab.replication import PLANS
from lab.reproduce import DEVICE, Reproduction

FILE = "capsules_fairly"  # of lab/results
TITLES = {
    "pooling": "Pooling",
    "capsules": "CapsNMT: capsules instead of pooling",
    "wide": "Pooling with as many parameters (the control)",
}
TUNING_SEED, SEEDS = 1, (2, 3, 4, 5, 6)
TEACHER_SEED = 4  # of the replication
LONGER = {"training.max_steps": 4500, "training.save_steps": 250, "training.average_last": 10}
DECODING = [
    {"length_penalty": penalty, "no_repeat_ngram_size": size} for penalty in (0.4, 0.6, 0.8, 1.0) for size in (0, 3)
]


def grid(method: str) -> list[str]:
    return [name for name in RUNS if name.startswith(f"fair_{method}_")]


def chosen(runs: Runs, method: str) -> str | None:
    """Return the run that goes on; None while the grid is incomplete."""
    like = "pooling" if method == "wide" else method
    if not all(TUNING_SEED in runs.get(name, {}) for name in grid(like)):
        return None
    best = min(grid(like), key=lambda name: runs[name][TUNING_SEED]["validation_loss"])
    return best.replace(f"fair_{like}_", f"fair_{method}_")


def table(records: Records) -> str:
    """Return the tuning, and once that is complete a row for each method; empty if nothing has been trained."""
    runs = records.runs(FILE)
    tuned = []
    for name in [*grid("pooling"), *grid("capsules")]:
        if TUNING_SEED in runs.get(name, {}):
            dropout, rate = RUNS[name].model["dropout"], RUNS[name].training["learning_rate"]
            loss = runs[name][TUNING_SEED]["validation_loss"]
            tuned.append([TITLES[name.split("_")[1]], str(dropout), str(rate), f"{loss:.3f}"])
    if not tuned:
        return ""
    title = "Multi30k, distilled, 4 + 3 layers, M = 8, T = 2 (`python -m lab.capsules_fairly`)"
    parts = [f"{title}; tuning:", markdown_table(["method", "dropout", "rate", "validation loss"], tuned)]
    lines = []
    joined_gains = gains(records, "joined")
    for title, of in gains(records).items():
        p_value = p_over_seeds(of.values)
        lines.append([
            title,
            effect(of.values),
            effect(joined_gains[title].values),
            "" if p_value is None else f"{p_value:.3f}",
            answer(of),
        ])  # fmt: skip
    if lines:
        header = ["method", "gain over pooling, test set", "joined two by two", "p over seeds, test set", "answer"]
        parts.append(markdown_table(header, lines))
    return "\n\n".join(parts)


def gains(records: Records, key: str = "scores") -> dict[str, Gains]:
    """Return the gains over pooling on the test set, or with "joined" on its sentences joined, by titles."""
    runs = records.runs(FILE)
    baseline, found = chosen(runs, "pooling"), {}
    for method in ("capsules", "wide"):
        run = chosen(runs, method)
        if run is not None and baseline is not None and (values := differences(scored(runs, key), run, baseline)):
            found[TITLES[method]] = Gains(values, len(SEEDS))
    return found


def scored(runs: Runs, key: str = "scores") -> Runs:
    """Return the runs that have translated the test set, with the scores of `key` as theirs."""
    return {
        name: {seed: {"scores": record[key]} for seed, record in of_seeds.items() if key in record}
        for name, of_seeds in runs.items()
    }


def joined(sentences: list[str]) -> list[str]:
    """Join neighbours.

    >>> joined(["A man.", "A dog.", "Two cats.", "A cow."])
    ['A man. A dog.', 'Two cats. A cow.']
    """
    return [" ".join(pair) for pair in zip(sentences[::2], sentences[1::2], strict=False)]


class Fairly(Variants):
    """Runs on distilled text: the validation set judges those of the tuning seed, the test set all others."""

    def overrides(self, run: Run, seed: int) -> dict[str, Any]:
        return super().overrides(run, seed) | ({} if seed == TUNING_SEED else LONGER)

    @functools.cached_property
    def teachers(self) -> Reproduction:
        plan = PLANS["replication"]
        changes = plan.changes | {
            field: value for field, value in self.arguments.changes if field == "training.use_cpu"
        }
        settings = vars(self.arguments) | {"study": "replication", "changes": list(changes.items())}
        return Reproduction(argparse.Namespace(**settings))

    def folder(self, run: str, seed: int) -> Path:
        """Return where a run is; the teacher and what it says are the same for all seeds."""
        if run in ("plain", "distilled-by-plain"):
            return self.teachers.folder(run, TEACHER_SEED)
        return super().folder(run, seed)

    def train(self, name: str, seed: int) -> bool:
        return self.teachers.train(name, TEACHER_SEED) if name == "plain" else super().train(name, seed)

    def score(self, name: str, seed: int) -> None:
        if seed == TUNING_SEED:
            super().score(name, seed)
            return
        folder = self.folder(name, seed)
        training = read_result(folder / "train_result.json")
        translate: Any = pipeline("translation", model=str(folder), device=DEVICE)  # type: ignore[call-overload]

        def scores(sources: list[str], references: list[str], settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
            found = translate(sources, batch_size=50, **settings)
            lines = [one_line(result["translation_text"]) for result in found]
            return {
                key: {"score": score.score, "signature": score.signature}
                for key, score in score_corpus(lines, [references], ["bleu", "chrf"]).items()
            }

        validated = [scores(*self.pairs("validation"), settings)["bleu"]["score"] for settings in DECODING]
        decoding = DECODING[max(range(len(DECODING)), key=validated.__getitem__)]
        sources, references = self.pairs("test")
        record = {
            "kind": "capsules fairly",
            "run": name,
            "seed": seed,
            "setting": self.setting,
            "changes": dict(self.arguments.changes) | {field: str(value) for field, value in LONGER.items()},
            "parameters": training["parameters"],
            "steps": training["steps"],
            "validation": validated,
            "decoding": decoding,
            "scores": scores(sources, references, decoding),
            "joined": scores(joined(sources), joined(references), decoding | {"split_sentences": False}),
            "comparisons": {},
        }
        self.records.keep(self.file, record)
        print(f"{name}, seed {seed}: {record['scores']['bleu']['score']:.2f} BLEU", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--data-dir", help="where the files of Multi30k are")
    parser.add_argument("--budget", type=float, default=30, help="minutes; the next call goes on from there")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="after the tuning, only these")
    parser.add_argument("--tune", nargs="+", choices=["pooling", "capsules"], default=["pooling", "capsules"])
    parser.add_argument("--work", type=Path, default=Path("outputs/reproduce"), help="checkpoints and logs")
    parser.add_argument("--results", type=Path, default=Path("lab/results"), help="where the results are kept")
    parser.add_argument("--cpu", action="store_true", help="train on the CPU even where there is a GPU")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if not set(arguments.seeds) <= set(SEEDS):
        raise SystemExit(f"lab.capsules_fairly --seeds: the plan has {list(SEEDS)}; got {arguments.seeds}")
    keep_freed_memory()
    changes = CHANGES | ({"training.use_cpu": "true"} if arguments.cpu else {})
    settings = vars(arguments) | {"setting": "multi30k", "study": FILE, "changes": list(changes.items())}
    fairly = Fairly(argparse.Namespace(**settings | {"seeds": [TUNING_SEED]}))
    failed = fairly.train_and_score([name for method in arguments.tune for name in grid(method)])
    names = [chosen(fairly.records.runs(FILE), method) for method in TITLES]
    found = [name for name in names if name is not None]
    if len(found) == len(names):
        fairly.arguments.seeds = arguments.seeds
        failed += fairly.train_and_score(found)
    print(table(fairly.records) or "Nothing is trained yet.")
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
