"""Multi30k with new seeds, by plans that were fixed before (plans.yaml): what to train, and the answer.

    python -m lab.replication --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication --data-dir data/multi30k-en-de --budget 60 --seeds 4 --runs gdr_both
    python -m lab.replication from_plain --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication eight_seeds --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication as_printed_rates --data-dir data/multi30k-en-de --budget 600

Each plan was committed before any of its rows translated the test set with its seeds. A training that the budget stops
resumes in the next call. The same call in a second process, in the same folder, shares the work.
"""

import argparse
import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from capsule_mt.commands.console import HelpFormatter, run
from hf_capsule_mt.commands.arguments import keep_freed_memory
from hf_capsule_mt.evaluation.results import markdown_table
from lab.effects import Gains, answer, corrected, differences, effect, estimated, shown
from lab.over_seeds import p_over_seeds, shown_p
from lab.paper_tables import PLANNED, RUNS
from lab.plan_spread import Scores, Spread, blocks, pooled
from lab.records import Records, Runs
from lab.reproduce import Reproduction, add_subset_options, add_training_options, changes_on, check_subset
from lab.tables import provenance


@dataclass(frozen=True)
class Plan:
    """What is compared over seeds.

    column: the heading of its gains where all methods stand together.
    contrasts: {title: (run, baseline)}; the first baseline is that of the plan. Holm's correction counts them.
    changes: fields of every recipe.
    controls: contrasts that ask whether parameters alone do as much, which Holm's correction does not count.
    shares: the plan, of the same changes, that trains the baseline.
    shared_start: all runs of a seed start from the same model, so seeds are blocks.
    test: the parts of the test set, if it is not the recipe's.
    on_gpu: whether it was trained on a GPU, in float32 with TF32 products; other plans on CPUs, in bfloat16.
    ended: how its runs are repeated, if their program is no longer here.
    """

    title: str
    column: str
    seeds: list[int]
    contrasts: dict[str, list[str]]
    changes: dict[str, str] = field(default_factory=dict)
    controls: list[str] = field(default_factory=list)
    shares: str | None = None
    shared_start: bool = False
    test: list[str] = field(default_factory=list)
    on_gpu: bool = False
    ended: str | None = None

    @property
    def baseline(self) -> str:
        return next(iter(self.contrasts.values()))[1]

    @property
    def tests(self) -> list[str]:
        """The titles that Holm's correction counts."""
        return [title for title in self.contrasts if title not in self.controls]

    @property
    def all_changes(self) -> dict[str, str]:
        files = [{"text": [f"{part}.{language}.gz" for language in ("en", "de")]} for part in self.test]
        return self.changes | (_ON_GPU if self.on_gpu else {}) | ({"data.test": json.dumps(files)} if files else {})

    @property
    def runs(self) -> list[str]:
        """The runs, baselines first."""
        baselines = [baseline for _, baseline in self.contrasts.values()]
        return list(dict.fromkeys([*baselines, *(run for run, _ in self.contrasts.values())]))


_ON_GPU = {"training.bf16": "false", "training.float32_matmul_precision": '"high"'}
# by the name of the file in lab/results
PLANS = {name: Plan(**fields) for name, fields in PLANNED["plans"].items()}


def _runs(records: Records, name: str, key: str = "scores") -> Runs:
    """Return the runs of a plan with its seeds. With "joined", their scores are those of sentences in pairs."""
    plan = PLANS[name]
    study_runs = records.runs(plan.shares or name)
    return {
        run: {
            seed: record | {"scores": record[key]}
            for seed, record in study_runs.get(run, {}).items()
            if seed in plan.seeds
        }
        for run in plan.runs
    }


def _scores(runs: Runs) -> Scores:
    return {
        run: {seed: record["scores"]["bleu"]["score"] for seed, record in by_seed.items()}
        for run, by_seed in runs.items()
    }


def spread(records: Records, name: str, key: str = "scores") -> Spread | None:
    """Return the spread of a plan: with a shared start that of its blocks, else of all arms of its study, pooled."""
    plan = PLANS[name]
    if plan.shared_start:
        return blocks(_scores(_runs(records, name, key)))
    scores: dict[str, dict[int, float]] = {}
    for plan_name, other_plan in PLANS.items():
        if (other_plan.shares or plan_name) == (plan.shares or name):
            for run, by_seed in _scores(_runs(records, plan_name, key)).items():
                scores.setdefault(run, {}).update(by_seed)
    return pooled(scores)


def gains(records: Records, name: str, key: str = "scores") -> dict[str, Gains]:
    """Return the gains of what a plan compares, by their titles.

    With all its seeds a gain has a p-value, corrected for all tests of the plan.
    """
    plan = PLANS[name]
    runs = _runs(records, name, key)
    values_by_title = {title: values for title, pair in plan.contrasts.items() if (values := differences(runs, *pair))}
    complete = [title for title, values in values_by_title.items() if len(values) == len(plan.seeds)]
    arms = spread(records, name, key)
    estimates = {title: arms and arms.difference(*plan.contrasts[title]) for title in complete}
    alone = {title: p_over_seeds(values_by_title[title]) for title in complete}
    by_spread = {title: alone[title] if estimate is None else estimate.p for title, estimate in estimates.items()}
    p_alone, p_by_spread = corrected(alone, plan.tests), corrected(by_spread, plan.tests)
    gains_by_title = {}
    for title, values in values_by_title.items():
        estimate, p = estimates.get(title), p_by_spread.get(title)
        if estimate is not None and p is not None:
            estimate = estimate._replace(p=p)
        gains_by_title[title] = Gains(values, len(plan.seeds), p_alone.get(title), estimate)
    return gains_by_title


def table(records: Records, name: str) -> str:
    """Return a row for each contrast of a plan with its interval over seeds, empty if nothing has been trained."""
    plan, by_title = PLANS[name], gains(records, name)
    if not by_title:
        return ""
    lines = [
        [
            title,
            *(effect(gain.values), shown_p(gain.p)),
            estimated(gain.plan_estimate),
            "" if gain.plan_estimate is None or title not in plan.tests else shown_p(gain.plan_estimate.p),
            answer(gain),
        ]
        for title, gain in by_title.items()
    ]
    runs = _runs(records, name)
    scores = list(_scores(runs)[plan.baseline].values())
    baseline = f"{fmean(scores):.2f} BLEU, n = {len(scores)}" if scores else "not yet trained"
    header = [
        "method",
        f"gain over the baseline ({baseline})",
        "p over seeds (Holm)",
        f"by the plan's spread ({spread(records, name) or 'not yet known'})",
        "p (Holm)",
        "answer",
    ]
    cpu = "" if plan.on_gpu else " --cpu"
    command = plan.ended or f"python -m lab.replication {name} --data-dir data/multi30k-en-de --budget 600{cpu}"
    parts = [f"**Multi30k, {plan.title}** (`{command}`):", markdown_table(header, lines)]
    if all("joined" in record for by_seed in runs.values() for record in by_seed.values()):
        rows = [[title, shown(gain)] for title, gain in gains(records, name, "joined").items()]
        parts += ["On its sentences in pairs, of 25 to 30 source words:", markdown_table(["difference", "gain"], rows)]
    return "\n\n".join(filter(None, [*parts, provenance(records, plan.shares or name, plan.runs)]))


class Replication(Reproduction):
    """The runs of a plan, one of which is computed."""

    def train(self, name: str, seed: int) -> bool:
        if name != "plain_widened":
            return super().train(name, seed)
        folder = self.folder(name, seed)
        if not self.train("plain", seed):
            return False
        if not folder.exists():
            widen_checkpoint(self.folder("plain", seed), folder, RUNS[name].model["encoder_ffn_dim"], seed)
        return True


@torch.no_grad()
def widen(model: PreTrainedModel, size: int, seed: int) -> PreTrainedModel:
    """Return a model with all weights of another and further hidden units in each feed-forward layer.

    The new units start as in a new model, and what they add starts at zero.

    Args:
        size: units of each feed-forward layer, at least as many as there are.
        seed: of the new units.
    """
    config = copy.deepcopy(model.config)
    narrow = max(config.encoder_ffn_dim, config.decoder_ffn_dim)
    if size < narrow:
        raise ValueError(f"`size` must be at least {narrow}, the units that the model has, got {size}")
    config.encoder_ffn_dim = config.decoder_ffn_dim = size
    torch.manual_seed(seed)
    wide = type(model)(config)
    old = model.state_dict()
    for name, weight in wide.state_dict().items():
        if name.endswith("fc2.weight"):
            weight.zero_()
        weight[tuple(map(slice, old[name].shape))] = old[name]
    wide.generation_config = copy.deepcopy(model.generation_config)
    return wide.train(model.training)


def widen_checkpoint(folder: Path, output: Path, size: int, seed: int) -> None:
    """Write a widened checkpoint with its tokenizer at once: `output` is there complete or not at all."""
    partial = output.with_name(f"{output.name}.partial")
    widen(AutoModelForSeq2SeqLM.from_pretrained(folder), size, seed).save_pretrained(partial)
    AutoTokenizer.from_pretrained(folder).save_pretrained(partial)
    partial.replace(output)


RUNNING_PLANS = [name for name, plan in PLANS.items() if plan.ended is None]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("plan", nargs="?", choices=RUNNING_PLANS, default="replication", help="(default: %(default)s)")
    add_training_options(parser)
    add_subset_options(parser)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    plan = PLANS[arguments.plan]
    seeds = arguments.seeds or list(plan.seeds)
    runs = arguments.runs or plan.runs
    check_subset("lab.replication --seeds", seeds, plan.seeds)
    check_subset("lab.replication --runs", runs, plan.runs)
    keep_freed_memory()
    changes = changes_on(plan.all_changes, arguments.cpu)
    settings = vars(arguments) | {"setting": "multi30k", "study": plan.shares or arguments.plan, "seeds": seeds}
    reproduction = Replication(argparse.Namespace(**settings, changes=changes))
    failed = reproduction.train_and_score(runs)
    print(table(reproduction.records, arguments.plan) or "No model has been trained yet.")
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
