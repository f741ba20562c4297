"""Which variant of CapsNMT keeps its capsules in use, chosen without the test set.

    python -m lab.capsule_variants --data-dir data/multi30k-en-de --budget 60

Each trains for 2,000 steps on Multi30k. Of those that use at least half of their capsules at the last iteration, the
one with the lowest validation loss goes on; the paper's own does if none is left. This rule was committed before any
of them was trained. A training that the budget stops resumes in the next call.
"""

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from capsule_mt.commands.console import HelpFormatter, run
from hf_capsule_mt.analysis.routing_statistics import encoded_batches, routing_statistics
from hf_capsule_mt.commands.arguments import keep_freed_memory
from hf_capsule_mt.evaluation import read_result
from hf_capsule_mt.evaluation.results import markdown_table
from hf_capsule_mt.modeling.loading import load_checkpoint
from hf_capsule_mt.training import load_recipe
from hf_capsule_mt.training.run_data import load_corpus
from lab.paper_tables import EIGHT, RUNS
from lab.records import Records, Runs
from lab.reproduce import Reproduction

FILE = "capsule_variants"  # of lab/results
RELEASED = "capsules-in-use"  # among the studies
PAPER = "deep_capsnmt"
VARIANTS = {
    PAPER: "the paper's capsules",
    "deep_capsnmt_soft": "scores / sqrt(d)",
    "deep_capsnmt_softest": "scores / d",
    "deep_capsnmt_compared": "scores / sqrt(d), of capsules * sqrt(d)",
    "deep_capsnmt_normalized": "capsules normalised instead of * sqrt(d)",
}
TITLES = VARIANTS | {"deep_pooling": "pooling, to compare"}
CHANGES = {
    "training.max_steps": "2000",
    "training.eval_strategy": '"no"',
    "training.save_steps": "500",
    "training.bf16": "true",
    "data.validation": "null",  # no translations: they would take longer than the training
    "data.test": "null",
}


def capsules_in_use(runs: Runs, name: str) -> float:
    """Return how many capsules a variant uses at the last iteration, mean over seeds."""
    return fmean(record["capsules_in_use"][-1] for record in runs[name].values())


def validation_loss(runs: Runs, name: str) -> float:
    return fmean(record["validation_loss"] for record in runs[name].values())


def chosen(runs: Runs) -> str:
    """Return the variant that goes on, by the rule above."""
    alive = [name for name in VARIANTS if name in runs and capsules_in_use(runs, name) >= EIGHT["num_capsules"] / 2]
    return min(alive, key=lambda name: validation_loss(runs, name), default=PAPER)


def table(records: Records) -> str:
    """Return a row for each variant that is trained, and the choice."""
    runs = records.runs(FILE)
    found = [name for name in TITLES if name in runs]
    rows = [
        [
            TITLES[name],
            f"{validation_loss(runs, name):.3f}",
            f"{capsules_in_use(runs, name):.1f}" if name in VARIANTS else "",
            str(len(runs[name])),
        ]
        for name in found
    ]
    header = ["variant", "validation loss", f"capsules in use, of {EIGHT['num_capsules']}", "seeds"]
    answer = f"{len(found)} of {len(TITLES)} are trained."
    if len(found) == len(TITLES):
        answer = f"The rule chooses: {TITLES[chosen(runs)]}."
    released = records.named("studies")[RELEASED]
    (iterations,) = released["routings"].values()
    answer += (
        f" Trained to the end, the released `{released['checkpoint']}` uses "
        f"{iterations[-1]['effective_capsules']:.1f} capsules on {released['sentences']:,} sentences "
        "(`capsule-mt analyze`)."
    )
    return f"{markdown_table(header, rows)}\n\n{answer}"


class Variants(Reproduction):
    """Runs that are judged by the validation set."""

    def score(self, name: str, seed: int) -> None:
        record = self.validated(name, seed)
        self.records.keep(self.file, record)
        print(f"{name}, seed {seed}: validation loss {record['validation_loss']:.3f}", flush=True)

    def validated(self, name: str, seed: int) -> dict[str, Any]:
        """Return the record of a run, with its loss and its capsules in use on the validation set."""
        folder = self.folder(name, seed)
        training = read_result(folder / "train_result.json")
        model, tokenizer = load_checkpoint(folder)
        batches = list(encoded_batches(tokenizer, *self.pairs("validation")))
        record: dict[str, Any] = {
            "kind": "capsule variant",
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
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="train with each of these")
    parser.add_argument("--work", type=Path, default=Path("outputs/reproduce"), help="checkpoints and logs")
    parser.add_argument("--results", type=Path, default=Path("lab/results"), help="where the results are kept")
    parser.add_argument("--cpu", action="store_true", help="train on the CPU even where there is a GPU")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    keep_freed_memory()
    changes = CHANGES | ({"training.use_cpu": "true"} if arguments.cpu else {})
    settings = vars(arguments) | {"setting": "multi30k", "study": FILE, "changes": list(changes.items())}
    variants = Variants(argparse.Namespace(**settings))
    failed = variants.train_and_score(list(TITLES))
    print(table(variants.records))
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
