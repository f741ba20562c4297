"""Capsules against pooling on distilled text, both tuned alike, by a plan that was fixed before.

    python -m lab.capsules_fairly --data-dir data/multi30k-en-de --budget 600

All learn what one plain model, trained for 2,300 steps, says in the place of Multi30k's references, and 3,000 pairs of
such sentences in one line, of 25 to 30 source words: long sentences are nothing new to them. They have the paper's
depth and a width of 128, for 15 of them have to be trained on a processor; the paper has 512. The capsules are 8, in 2
iterations: the surest row of a sweep on the embedded corpus; the paper has 6 and 3. Dropout and rate are tuned with
seed 1: 800 steps for each of the same four pairs, and the highest BLEU on the validation set; a run that diverges has
0. A third row, pooling with as many parameters as the capsules, has pooling's choice and is not tuned itself. Seeds 2
to 6 train 1,800 steps; the mean of the checkpoints of the last 360 is what counts. Each model's length penalty and
forbidden n-grams come from the same six pairs, by BLEU on the validation set, and for long sentences on pairs of its
sentences. Then it translates the test set once, and once its sentences in pairs: made, as the corpus has few long
ones.

A training that the budget stops resumes in the next call. The same call in a second process, in the same folder,
shares the work. Without the checkpoints of an earlier call the teacher is trained and translates again. On another
processor it may say something else, so only runs that learnt from the same text are compared.
"""

import argparse
import functools
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.text.outputs import write_output
from hf_capsule_mt.analysis.routing_statistics import encoded_batches, routing_statistics
from hf_capsule_mt.commands.arguments import keep_freed_memory
from hf_capsule_mt.evaluation import read_result
from hf_capsule_mt.evaluation.metrics import score_corpus
from hf_capsule_mt.evaluation.results import markdown_table
from hf_capsule_mt.loading import load_checkpoint
from hf_capsule_mt.training import load_recipe
from hf_capsule_mt.training.run_data import load_corpus
from lab.effects import Gains, answer, both, by_plan, with_p
from lab.paper_tables import RUNS, Run
from lab.plan_spread import pooled
from lab.records import Records, Runs
from lab.reproduce import Reproduction, TrainingError, translating

FILE = "capsules_fairly"  # of lab/results
METHODS = {
    "pooling": "Pooling",
    "capsules": "CapsNMT",
    "wide": "Pooling with as many parameters",
}
# what is compared, by its title; the last one asks whether parameters alone do as much
CONTRASTS = {
    "CapsNMT: the same, both distilled": ("capsules", "pooling"),
    "CapsNMT: the same, against as many parameters": ("capsules", "wide"),
    "Pooling with as many parameters (the control)": ("wide", "pooling"),
}
PLANNED = list(CONTRASTS)[:2]
TUNING_SEED, SEEDS = 1, (2, 3, 4, 5, 6)
TEACHER = ("plain", "distilled-by-plain")  # what is there once, for all seeds
TEACHER_SEED = 4
DIVERGED = "the training has diverged"  # of a run's log
CHANGES = {  # of every run
    "training.max_steps": "2000",
    "training.eval_strategy": '"no"',
    "training.save_steps": "500",
    "training.bf16": "true",
    "data.validation": "null",  # no translations: they would take longer than the training
    "data.test": "null",
}
TUNING = {"training.max_steps": 800, "training.save_steps": 400}
LONGER = {"training.max_steps": 1800, "training.save_steps": 36, "training.average_last": 10}
OF_TEACHER = {"training.max_steps": 2300}
DECODING = [
    {"length_penalty": penalty, "no_repeat_ngram_size": size} for penalty in (0.6, 1.0, 1.4) for size in (0, 3)
]
LONG = range(25, 31)  # source words
JOINED_FOR_TRAINING = 3000


def grid(method: str) -> list[str]:
    return [name for name in RUNS if name.startswith(f"fair_{method}_")]


def tuned_runs(runs: Runs, method: str) -> dict[str, dict[str, Any]]:
    return {name: runs[name][TUNING_SEED] for name in grid(method) if TUNING_SEED in runs.get(name, {})}


def chosen(runs: Runs, method: str) -> str | None:
    """Return the run that goes on; None while the grid is incomplete, or if its runs learnt from several texts."""
    like = "pooling" if method == "wide" else method
    tuned = tuned_runs(runs, like)
    every = [record for one in ("pooling", "capsules") for record in tuned_runs(runs, one).values()]
    if len(tuned) < len(grid(like)) or len({json.dumps(record["data"]) for record in every}) > 1:
        return None
    best = max(tuned, key=lambda name: tuned[name]["validation"])
    return best.replace(f"fair_{like}_", f"fair_{method}_")


def table(records: Records) -> str:
    """Return the tuning, and once that is complete a row for each contrast; empty if nothing has been trained."""
    runs = records.runs(FILE)
    tuned = []
    for method in ("pooling", "capsules"):
        for name, record in tuned_runs(runs, method).items():
            dropout, rate = RUNS[name].model["dropout"], RUNS[name].training["learning_rate"]
            in_use = record.get("capsules_in_use", [])[-1:]
            tuned.append([
                METHODS[method],
                str(dropout),
                str(rate),
                f"{record['validation']:.2f}",
                f"{record['validation_loss']:.3f}",
                "".join(f"{capsules:.1f}" for capsules in in_use),
            ])  # fmt: skip
    if not tuned:
        return ""
    title = "Multi30k, distilled, 4 + 3 layers, M = 8, T = 2 (`python -m lab.capsules_fairly`)"
    header = ["method", "dropout", "rate", "BLEU, validation", "loss", "capsules in use, of 8"]
    parts = [f"{title}; tuning:", markdown_table(header, tuned)]
    long = gains(records, "joined")
    lines = [
        [
            *(name, both(of), both(long[name])),
            *("" if p is None else f"{p:.3f}" for p in (of.p, None if of.of_plan is None else of.of_plan.p)),
            answer(of),
        ]
        for name, of in gains(records).items()
    ]
    if lines:
        header = ["difference", "test set", "its sentences in pairs", "p alone (Holm)", "p (Holm)", "answer"]
        parts.append(markdown_table(header, lines))
    return "\n\n".join(parts)


def gains(records: Records, key: str = "scores") -> dict[str, Gains]:
    """Return the contrasts on the test set, or with "joined" on its sentences in pairs, by titles.

    The planned ones have a p-value once all seeds are trained, corrected for both.
    """
    runs, found = records.runs(FILE), {}
    texts: set[str] = set()
    scores: dict[str, dict[int, float]] = {}
    for method in METHODS:
        of = {} if (name := chosen(runs, method)) is None else runs.get(name, {})
        scores[method] = {seed: of[seed][key]["bleu"]["score"] for seed in SEEDS if seed in of}
        texts.update(json.dumps(of[seed]["data"]) for seed in scores[method])
    for title, methods in CONTRASTS.items():
        ours, theirs = ({} if (name := chosen(runs, method)) is None else runs.get(name, {}) for method in methods)
        pairs = [(ours[seed], theirs[seed]) for seed in SEEDS if seed in ours and seed in theirs]
        values = [
            one[key]["bleu"]["score"] - other[key]["bleu"]["score"]
            for one, other in pairs
            if one["data"] == other["data"]
        ]
        if values:
            found[title] = Gains(values, len(SEEDS))
    alone = with_p(found, PLANNED)
    spread = pooled(scores) if len(texts) == 1 else None  # runs of several texts are compared within a seed
    estimates = {title: None if spread is None else spread.difference(*pair) for title, pair in CONTRASTS.items()}
    return by_plan(alone, estimates, PLANNED)


def mixed_pairs(runs: Runs, names: Sequence[str]) -> list[str]:
    """Say which seeds have runs that learnt from different texts."""
    texts = {
        seed: {json.dumps(runs[name][seed]["data"]) for name in names if seed in runs.get(name, {})} for seed in SEEDS
    }
    return [
        f"Seed {seed} was trained on several texts of the teacher: remove its rows to train it anew."
        for seed, found in texts.items()
        if len(found) > 1
    ]


def joined(sources: Sequence[str], targets: Sequence[str]) -> tuple[list[str], list[str]]:
    """Join pairs of sentences, in the order in which they are found, to sources of 25 to 30 words.

    Each sentence is in one pair or in none. One without a stop at its end is in none.

    >>> long, short = "A " * 19 + "man sings.", "A dog and a cat sleep."
    >>> [len(line.split()) for line in joined([short, long, "No stop", short], ["1", "2", "3", "4"])[0]]
    [27]
    """
    waiting: dict[int, list[int]] = {}  # {words: sentences}
    found: list[tuple[int, int]] = []
    for number, source in enumerate(sources):
        words = len(source.split())
        if not source.rstrip().endswith((".", "!", "?")):
            continue
        wanted = next((total - words for total in LONG if waiting.get(total - words)), None)
        if wanted is None:
            waiting.setdefault(words, []).append(number)
        else:
            found.append((waiting[wanted].pop(0), number))
    lines = ([f"{side[first]} {side[second]}" for first, second in found] for side in (sources, targets))
    return next(lines), next(lines)


def length_ratio(lines: Sequence[str], references: Sequence[str]) -> float:
    words, expected = (sum(len(line.split()) for line in side) for side in (lines, references))
    return words / expected


class Fairly(Reproduction):
    """Runs on distilled text: the validation set judges the tuning seed's runs, the test set all others."""

    def overrides(self, run: Run, seed: int) -> dict[str, Any]:
        return super().overrides(run, seed) | (OF_TEACHER if run == RUNS["plain"] else self.steps(seed))

    def steps(self, seed: int) -> dict[str, Any]:
        return TUNING if seed == TUNING_SEED else LONGER

    def folder(self, run: str, seed: int) -> Path:
        return super().folder(run, TEACHER_SEED if run in TEACHER else seed)

    def train(self, name: str, seed: int) -> bool:
        if name in TEACHER:
            return super().train(name, TEACHER_SEED)
        log = self.folder(name, seed).with_suffix(".log")
        before = log.stat().st_size if log.exists() else 0
        try:
            return super().train(name, seed)
        except TrainingError:
            said = log.read_bytes()[before:] if log.exists() else b""
            if seed != TUNING_SEED or DIVERGED.encode() not in said:
                raise
            kept = {"run": name, "seed": seed, "data": self.text_of(name, seed), "comparisons": {}}
            self.records.keep(self.file, kept | {"validation": 0.0, "validation_loss": math.inf})
            return True

    def text_of(self, name: str, seed: int) -> dict[str, Any]:
        """Return the digests of the text that a run learns from."""
        digests = json.loads((self.folder(name, seed) / "data.json").read_text(encoding="utf-8"))
        return dict(digests["data.train"])

    def distilled_texts(self, folder: Path) -> str | list[str]:
        """Return the teacher's files, and write the one of long sentences."""
        rows = [
            json.loads(line) for path in sorted(folder.glob("part-*.jsonl")) for line in path.open(encoding="utf-8")
        ]
        pairs = [row["translation"] for row in sorted(rows, key=lambda row: row["index"])]  # they are by length
        sources, targets = joined([pair["en"] for pair in pairs], [pair["de"] for pair in pairs])
        lines = [
            json.dumps({"translation": {"en": source, "de": target}}, ensure_ascii=False)
            for source, target in zip(sources[:JOINED_FOR_TRAINING], targets, strict=False)
        ]
        path = folder / "joined.jsonl"
        write_output(path, "".join(f"{line}\n" for line in lines))
        return [str(super().distilled_texts(folder)), os.path.join(".", path)]

    def score(self, name: str, seed: int) -> None:
        record = self.validated(name, seed) | {"data": self.text_of(name, seed)}
        translated = functools.partial(translating(self.folder(name, seed)), split_sentences=False)

        def bleu(sources: list[str], references: list[str], settings: dict[str, Any]) -> float:
            return score_corpus(translated(sources, **settings), [references], ["bleu"])["bleu"].score

        record["changes"] |= {field: str(value) for field, value in self.steps(seed).items()}
        validation, test = self.pairs("validation"), self.pairs("test")
        if seed == TUNING_SEED:
            record["validation"] = bleu(*validation, {})
        else:
            for key, of_validation, of_test in (
                ("scores", validation, test),
                ("joined", joined(*validation), joined(*test)),
            ):
                validated = [bleu(*of_validation, settings) for settings in DECODING]
                decoding = DECODING[max(range(len(DECODING)), key=validated.__getitem__)]
                sources, references = of_test
                lines = translated(sources, **decoding)
                record[key] = {
                    metric: {"score": score.score, "signature": score.signature}
                    for metric, score in score_corpus(lines, [references], ["bleu", "chrf"]).items()
                }
                record[f"{key} were"] = {
                    "sentences": len(lines),
                    "validation": validated,
                    "decoding": decoding,
                    "length_ratio": length_ratio(lines, references),
                }
        self.records.keep(self.file, record)
        shown = record["validation"] if seed == TUNING_SEED else record["scores"]["bleu"]["score"]
        print(f"{name}, seed {seed}: {shown:.2f} BLEU", flush=True)

    def validated(self, name: str, seed: int) -> dict[str, Any]:
        """Return the record of a run, with its loss and its capsules in use on the validation set."""
        folder = self.folder(name, seed)
        training = read_result(folder / "train_result.json")
        model, tokenizer = load_checkpoint(folder)
        batches = list(encoded_batches(tokenizer, *self.pairs("validation")))
        record: dict[str, Any] = {
            "kind": "capsules fairly",
            "run": name,
            "seed": seed,
            "setting": self.setting,
            "changes": dict(self.arguments.changes),
            "model": RUNS[name].model,
            "parameters": training["parameters"],
            "steps": training["steps"],
            "validation_loss": cross_entropy(model, batches),
            "comparisons": {},
        }
        if model.config.aggregation == "capsules":
            (entries,) = routing_statistics(model, batches).values()
            record["capsules_in_use"] = [entry.effective_capsules for entry in entries]
        return record

    @functools.cache  # noqa: B019  one object lives as long as the command
    def pairs(self, part: Literal["validation", "test"]) -> tuple[list[str], list[str]]:
        """Return the sources and the references of a part of the corpus."""
        plain = load_recipe(self.recipe("plain"))
        recipe = load_recipe(self.recipe("plain"), {"data_dir": self.arguments.data_dir or plain.data_dir})
        found = load_corpus(recipe, parts=(part,))[part]
        source, target = (list(self.side(found, recipe, side)) for side in ("source", "target"))
        return source, target


@torch.no_grad()
def cross_entropy(model: PreTrainedModel, batches: Sequence[dict[str, torch.Tensor]]) -> float:
    """Return the cross entropy of a token of the labels, in nats, without label smoothing."""
    total, tokens = 0.0, 0
    for batch in batches:
        logits, labels = model.eval()(**batch).logits.flatten(0, 1), batch["labels"].flatten()
        total += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
        tokens += int((labels >= 0).sum())
    return total / tokens


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
    changes = CHANGES | {"training.warmup_steps": "200", "data.cleaning": '{"drop_empty": true}'}  # the teacher's
    changes |= {"training.use_cpu": "true"} if arguments.cpu else {}
    settings = vars(arguments) | {"setting": "multi30k", "study": FILE, "changes": list(changes.items())}
    fairly = Fairly(argparse.Namespace(**settings | {"seeds": [TUNING_SEED]}))
    failed = fairly.train_and_score([name for method in arguments.tune for name in grid(method)])
    runs = fairly.records.runs(FILE)
    found = [name for method in METHODS if (name := chosen(runs, method)) is not None]
    if len(found) == len(METHODS):
        fairly.arguments.seeds = arguments.seeds
        failed += fairly.train_and_score(found)
        failed += mixed_pairs(fairly.records.runs(FILE), found)
    elif all(len(tuned_runs(runs, method)) == len(grid(method)) for method in ("pooling", "capsules")):
        failed.append("The grid was tuned on several texts of the teacher: remove its rows to tune anew.")
    print(table(fairly.records) or "Nothing is trained yet.")
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
