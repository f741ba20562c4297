"""Capsules on a strong student, by a plan that was fixed before (strong_student.md): what to train, and the answer.

    capsule-mt convert FOLDER outputs/student --to huggingface
    python -m lab.strong_student outputs/student --text train.en train.pt --test flores.en flores.pt
    python -m lab.strong_student outputs/student --text train.en train.pt --test flores.en flores.pt \\
        --arms plain em --seeds 1

A run with a result is never trained again; one that was stopped goes on from its last checkpoint. The same call in a
second process, in the same folder, shares the work.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import hf_capsule_mt  # noqa: F401  its models
from capsule_mt.commands.console import HelpFormatter, checkpoint_folder, positive, run
from capsule_mt.files.lock import OutputTakenError, lock_output
from capsule_mt.files.reading import read_parallel
from hf_capsule_mt.commands.arguments import keep_freed_memory
from hf_capsule_mt.evaluation.metrics import score_corpus
from hf_capsule_mt.evaluation.results import markdown_table
from hf_capsule_mt.training import Recipe, run_recipe
from hf_capsule_mt.training.checkpoints import TRAINER_STATE, last_checkpoint
from hf_capsule_mt.training.run_data import encode_part, load_corpus, load_or_train_tokenizer
from lab.effects import Gains, answer, differences, effect, with_p
from lab.over_seeds import shown_p
from lab.records import Records, Runs
from lab.reproduce import DEVICE, translating

FILE = "strong_student"  # of lab/results
START = "start"  # the run that is the student itself, of every seed
SEEDS = (1, 2, 3)
LANGUAGES = ("en", "pt")
LOGGED = 50  # steps between two losses
AT_THE_END = 5  # losses whose mean is the training loss of a result


@dataclass(frozen=True)
class Arm:
    """What is put on the student, and whether its own weights are trained further."""

    title: str
    model: dict[str, Any] = field(default_factory=dict)
    frozen: bool = False


_EM = {"layer_aggregation": "em_routing", "layer_aggregation_placement": "adds"}
# of a seed, the longest first
ARMS = {
    "em": Arm("EM routing of layers", _EM),
    "em_frozen": Arm("EM routing of layers, student frozen", _EM, frozen=True),
    "guided_frozen": Arm("Guided routing, student frozen", {"guided_routing": "guided"}, frozen=True),
    "linear": Arm(
        "Linear combination of layers", {"layer_aggregation": "linear", "layer_aggregation_placement": "adds"}
    ),
    "plain": Arm("The student, trained further"),
}
# what the plan compares, by what it asks
CONTRASTS = {
    "Does it help? EM - plain": ("em", "plain"),
    "Is it routing? EM - linear": ("em", "linear"),
    "Without harm? EM frozen - start": ("em_frozen", START),
}


def recipe(arm: Arm, seed: int, start: Path, text: list[Path], output: Path, steps: int) -> Recipe:
    """Return the recipe of an arm: as the student was trained, without dropout and without label smoothing."""
    return Recipe(
        about=arm.title,
        output_dir=str(output),
        seed=seed,
        languages=dict(zip(("source", "target"), LANGUAGES, strict=True)),
        data={"train": {"text": [str(file) for file in text]}, "max_length": 200},
        init_from=str(start),
        freeze="old" if arm.frozen else None,
        model={"model_type": "capsule_marian", "dropout": 0.0, "label_smoothing": 0.0, **arm.model},
        training={
            "max_steps": steps,
            "max_tokens_per_batch": 4096,
            "learning_rate": 1e-4,
            "lr_scheduler_type": "constant_with_warmup",
            "warmup_steps": 200,
            "adam_beta2": 0.98,
            "adam_epsilon": 1e-9,
            "bf16": DEVICE == "cuda",
            "dataloader_num_workers": int(DEVICE == "cuda"),
            "logging_steps": min(LOGGED, steps),
            "eval_strategy": "no",
            "save_strategy": "steps",
            "save_steps": steps,
            "report_to": "none",
        },
        generation={"num_beams": 1},
    )


def paired_runs(records: Records) -> Runs:
    """Return the runs by arm and seed; the start is the same run with every seed."""
    runs = records.runs(FILE)
    return runs | {START: dict.fromkeys(SEEDS, runs[START][0])} if START in runs else runs


def gains(records: Records) -> dict[str, Gains]:
    """Return what the plan compares, p by Holm over all of it."""
    runs = paired_runs(records)
    return with_p(
        {title: Gains(differences(runs, *pair), len(SEEDS)) for title, pair in CONTRASTS.items()}, [*CONTRASTS]
    )


def table(records: Records) -> str:
    """Return a row for each arm and one for each contrast; empty if nothing has been trained."""
    runs = paired_runs(records)
    arms = []
    for name, title in {START: "The student, as it is", **{name: arm.title for name, arm in ARMS.items()}}.items():
        by_seed = {seed: result for seed, result in runs.get(name, {}).items() if seed in SEEDS}
        if by_seed:
            scores = {seed: result["scores"]["bleu"]["score"] for seed, result in by_seed.items()}
            losses = [result["loss"] for result in by_seed.values() if "loss" in result]
            arms.append([
                title,
                *(f"{scores[seed]:.2f}" if seed in scores else "" for seed in SEEDS),
                f"{fmean(scores.values()):.2f}",
                *("" if base == name else effect(differences(runs, name, base)) for base in (START, "plain")),
                f"{fmean(losses):.4f}" if losses else "",
            ])  # fmt: skip
    if not arms:
        return ""
    header = ["arm", *(f"seed {seed}" for seed in SEEDS), "mean", "gain over the start", "over plain", "training loss"]
    contrasts = [
        [title, effect(estimate.values), shown_p(estimate.p), answer(estimate)]
        for title, estimate in gains(records).items()
    ]
    return "\n\n".join(
        [
            "BLEU on lines 1, 3, 5, ... of FLORES devtest (`python -m lab.strong_student`):",
            markdown_table(header, arms),
            markdown_table(["difference", "gain", "p over seeds (Holm)", "answer"], contrasts),
        ]
    )


def parser_of_plan(
    about: str | None, file: str, names: Sequence[str], seeds: Sequence[int], steps: int
) -> argparse.ArgumentParser:
    """Return the parser of a plan that trains on what a student of Firefox translated."""
    parser = argparse.ArgumentParser(description=about, formatter_class=HelpFormatter)
    parser.add_argument("start", type=checkpoint_folder, help="the student, converted")
    parser.add_argument("--text", type=Path, nargs=2, required=True, metavar=LANGUAGES, help="by the student itself")
    parser.add_argument("--test", type=Path, nargs=2, required=True, metavar=LANGUAGES, help="text and its reference")
    parser.add_argument("--arms", nargs="+", choices=names, default=names, metavar="ARM", help=", ".join(names))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    parser.add_argument("--steps", type=positive, default=steps, help="another number is for a trial")
    parser.add_argument("--sentences", type=positive, help="only the first of the test text, for a trial")
    parser.add_argument("--work", type=Path, default=Path(f"outputs/{file}"), help="checkpoints")
    parser.add_argument("--results", type=Path, default=Path("lab/results"), help="results and translations")
    return parser


class StrongStudent:
    """The runs of the plan, in one folder."""

    kind, file = "strong student", FILE

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.records = Records(arguments.results)
        sources, references = read_parallel(arguments.test)
        self.sources, self.references = sources[: arguments.sentences], references[: arguments.sentences]

    def missing(self) -> Iterator[tuple[str, int]]:
        """Yield the runs that have no result, and that no other call is at, holding each for its training."""
        asked = [(START, 0), *((arm, seed) for seed in self.arguments.seeds for arm in self.arguments.arms)]
        for name, seed in asked:
            try:
                with lock_output(self.arguments.work / f"{name}-seed{seed}.run"):
                    if self.records.run(self.file, name, seed) is None:
                        yield name, seed
            except OutputTakenError:
                continue

    def folder(self, name: str, seed: int) -> Path:
        return Path(self.arguments.start if name == START else self.arguments.work / f"{name}-seed{seed}")

    def recipe(self, name: str, seed: int) -> Recipe:
        arguments = self.arguments
        return recipe(ARMS[name], seed, arguments.start, arguments.text, self.folder(name, seed), arguments.steps)

    def train(self, name: str, seed: int) -> dict[str, Any]:
        """Train an arm; return what its result says of the training."""
        arm_recipe, folder = self.recipe(name, seed), self.folder(name, seed)
        # the first call encodes the text, others find it in the cache
        with lock_output(self.arguments.work / "text", wait=True):
            corpus = load_corpus(arm_recipe)
            encode_part(arm_recipe, corpus, "train", load_or_train_tokenizer(arm_recipe, corpus, folder))
        began = time.monotonic()
        try:
            result = run_recipe(arm_recipe)
        except FloatingPointError as error:
            return {"diverged": str(error)}
        if result is None:
            raise SystemExit("Stopped by a signal; the same command resumes.")
        checkpoint = last_checkpoint(folder)
        log = json.loads((checkpoint / TRAINER_STATE).read_text())["log_history"] if checkpoint else []
        losses = [entry.get("nll_loss", entry["loss"]) for entry in log if "loss" in entry][-AT_THE_END:]
        return {
            "recipe": result["recipe"],
            "parameters": result["parameters"],
            "steps": result["steps"],
            "loss": sum(losses) / len(losses),
            "training_seconds": time.monotonic() - began,
        }

    def score(self, name: str, seed: int) -> tuple[list[str], dict[str, Any]]:
        """Translate the test text, greedily, with the full vocabulary and in float32."""
        began = time.monotonic()
        translations = translating(self.folder(name, seed))(self.sources)
        scores = score_corpus(translations, [self.references], ["bleu", "chrf"])
        return translations, {
            "sentences": len(self.sources),
            "scores": {key: {"score": result.score, "signature": result.signature} for key, result in scores.items()},
            "decoding_seconds": time.monotonic() - began,
        }

    def run(self) -> None:
        for name, seed in self.missing():
            trained = {} if name == START else self.train(name, seed)
            result = {"kind": self.kind, "run": name, "seed": seed, **trained}
            if "diverged" in trained:
                result["scores"] = {"bleu": {"score": 0.0}}
            else:
                translations, scored = self.score(name, seed)
                self.records.keep_translations(self.file, name, seed, translations)
                result |= scored
            self.records.keep(self.file, result)
            print(f"{name}, seed {seed}: {result['scores']['bleu']['score']:.2f} BLEU", flush=True)


def main() -> None:
    keep_freed_memory()
    study = StrongStudent(parser_of_plan(__doc__, FILE, list(ARMS), SEEDS, steps=2000).parse_args())
    study.run()
    print(table(study.records))


if __name__ == "__main__":
    run(main)
