"""Multi30k with new seeds, by plans that were fixed before: what to train, and the answer.

    python -m lab.replication --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication --data-dir data/multi30k-en-de --budget 60 --seeds 4 --runs gdr_both
    python -m lab.replication from_plain --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication starts --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication recurrent --data-dir data/multi30k-en-de --budget 600
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
from lab.effects import Gains, answer, by_plan, differences, effect, estimated, shown, with_p
from lab.over_seeds import shown_p
from lab.paper_tables import AS_PRINTED, CANDIDATE_RATES, WIDENED
from lab.plan_spread import Scores, Spread, blocks, pooled
from lab.records import Records, Runs
from lab.reproduce import Reproduction
from lab.tables import provenance
from lab.training_options import add_subset_options, add_training_options, changes_on, check_subset


@dataclass(frozen=True)
class Plan:
    """What is compared over seeds.

    column: the heading of its gains where all methods stand together.
    contrasts: {title: (run, baseline)}; the first baseline is that of the plan. Holm's correction counts them.
    changes: fields of every recipe.
    controls: contrasts that ask whether parameters alone do as much, which Holm's correction does not count.
    shares: the plan, of the same changes, that trains the baseline.
    shared_start: all runs of a seed start from the same model, so seeds are blocks.
    test: the parts of the test set and their sentences, if it is not the recipe's.
    on_gpu: whether it was trained on a GPU, in float32 with TF32 products; other plans on CPUs, in bfloat16.
    ended: how its runs are repeated, if their program is no longer here.
    """

    title: str
    column: str
    seeds: tuple[int, ...]
    contrasts: dict[str, tuple[str, str]]
    changes: dict[str, str] = field(default_factory=dict)
    controls: tuple[str, ...] = ()
    shares: str | None = None
    shared_start: bool = False
    test: dict[str, int] = field(default_factory=dict)
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


# Runs train the same with and without validation; the first eleven had it.
_EVERY_EPOCH = {"training.eval_strategy": '"no"', "training.save_steps": "462", "training.bf16": "true"}
FROM_THE_START = "Multi30k, from the start"
_ON_GPU = {"training.bf16": "false", "training.float32_matmul_precision": '"high"'}
_FURTHER = (
    _EVERY_EPOCH
    | {"training.average_last": "3"}
    | {f"model.{side}_layers": "4" for side in ("encoder", "decoder")}
    | {f"model.{side}_attention_heads": "8" for side in ("encoder", "decoder")}
)
ON_TOP = "Multi30k, on top of a plain model"
FLICKR = {"test_2016_flickr": 1000, "test_2017_flickr": 1000, "test_2018_flickr": 1071}
# by the name of the file in lab/results
PLANS = {
    # Seed 1 chose the rows and is not counted. The control has as many parameters as the largest row.
    "replication": Plan(
        title="trained from the start; mean of the last five epochs",
        column=FROM_THE_START,
        seeds=(2, 3, 4, 5),
        contrasts={
            "Layers: linear combination (no routing)": ("linear", "plain"),
            "Heads: EM routing, two lowest encoder layers": ("head_em_lower", "plain"),
            "Past and future: guided routing": ("gdr_both", "plain"),
            "Wider feed-forward layers (the control)": ("plain_wide", "plain"),
        },
        controls=("Wider feed-forward layers (the control)",),
        changes=_EVERY_EPOCH | {"training.average_last": "5"},
    ),
    # As in the papers: all rows of a seed go on from its plain model for equally many steps, and so does the baseline.
    "from_plain": Plan(
        title="five epochs on top of a plain model of 4 + 4 layers and 8 heads, guided capsules of half the width; "
        "mean of the last three",
        column=ON_TOP,
        seeds=(2, 3, 4),
        contrasts={
            "Layers: linear combination (no routing)": ("linear_further", "plain_further"),
            "Layers: dynamic combination (no routing)": ("dynamic_combination_further", "plain_further"),
            "Layers: EM routing": ("em_routing_further", "plain_further"),
            "Past and future: guided routing": ("gdr_further", "plain_further"),
        },
        changes=_FURTHER,
        shared_start=True,
    ),
    # Does EM routing help (against plain), is it routing (against linear), is it parameters (against the control)?
    # The recipes are `from_plain`'s. The control starts from the same plain model, too: `widen` adds
    # hidden units without effect until it has as many parameters as EM routing has.
    # Each model translates the test set once, after its training, and nothing is chosen by that. The answer is that
    # of all seeds: a block each, the residual variance of these four arms in all blocks. Holm's correction counts the
    # three contrasts. Seeds 2 to 4 of `from_plain` chose the question: they stay apart.
    # Changed before the first row was scored: all train on one GPU, in float32 with TF32 products instead of
    # bfloat16, which costs more conversions there than it saves. The time on it ended when six of eight seeds had all
    # their arms.
    "eight_seeds": Plan(
        title="the same on flickr 2016, 2017 and 2018 together, by new seeds",
        column=ON_TOP,
        seeds=(5, 6, 7, 8, 9, 10),
        contrasts={
            "Layers: EM routing, new seeds": ("em_routing_further", "plain_further"),
            "Layers: EM routing against linear combination, new seeds": ("em_routing_further", "linear_further"),
            "Layers: EM routing against as many parameters, new seeds": (
                "em_routing_further",
                "plain_widened_further",
            ),
        },
        changes=_FURTHER,
        on_gpu=True,
        shared_start=True,
        test=FLICKR,
    ),
    # Which rate each arm of lab/as_printed.md gets: seed 1 alone, read on the validation set.
    "as_printed_rates": Plan(
        title="candidate rates of the printed forms, seed 1, on the validation set",
        column=ON_TOP,
        seeds=(1,),
        contrasts={
            f"{arm} at {rate:g}": (f"{arm}_further_at_{rate:g}", f"plain_further_at_{CANDIDATE_RATES[1]:g}")
            for arm in AS_PRINTED
            for rate in CANDIDATE_RATES
            if (arm, rate) != ("plain", CANDIDATE_RATES[1])
        },
        changes=_FURTHER,
        shared_start=True,
        test={"val": 1014},
    ),
    # With the model's initial weights the first two start uniform, and what they squash is nearly nothing. The third's
    # votes are near 1 by default.
    "starts": Plan(
        title="from the start, with votes near 1 at first; mean of the last five epochs",
        column=FROM_THE_START,
        seeds=(2, 3, 4),
        contrasts={
            "Layers: dynamic routing, larger votes at first": ("dynamic_routing_routed", "plain"),
            "Heads: simple routing, lowest layers, larger votes at first": ("head_simple_lower_routed", "plain"),
            "Heads: EM routing, all attentions": ("head_em_everywhere", "plain"),
        },
        changes=_EVERY_EPOCH | {"training.average_last": "5"},
        shares="replication",
    ),
    "recurrent": Plan(
        title="recurrent models, trained from the start; mean of the last five epochs",
        column=FROM_THE_START,
        seeds=(2, 3, 4),
        contrasts={"Past and future, recurrent model": ("rnmt_gdr", "rnmt")},
        changes=_EVERY_EPOCH | {"training.average_last": "5", "model.dropout": "0.2"},
    ),
    # Dropout 0.1 and the rate of 0.004 had the highest BLEU on the validation set with seed 1, of two each.
    "capsules_fairly": Plan(
        title="distilled, capsules and pooling of 4 + 3 layers tuned alike",
        column=FROM_THE_START,
        seeds=(2, 3, 4, 5, 6),
        contrasts={
            "CapsNMT: the same, both distilled": ("fair_capsules_1_4", "fair_pooling_1_4"),
            "CapsNMT: the same, against as many parameters": ("fair_capsules_1_4", "fair_wide_1_4"),
            "Pooling with as many parameters (the control)": ("fair_wide_1_4", "fair_pooling_1_4"),
        },
        controls=("Pooling with as many parameters (the control)",),
        ended="git checkout d7acef5; python -m lab.capsules_fairly --data-dir data/multi30k-en-de --budget 600",
    ),
}


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
    gains_by_title = {
        title: Gains(values, len(plan.seeds))
        for title, (run, baseline) in plan.contrasts.items()
        if (values := differences(runs, run, baseline))
    }
    alone = with_p(gains_by_title, plan.tests)
    arms = spread(records, name, key)
    estimates = {title: None if arms is None else arms.difference(*pair) for title, pair in plan.contrasts.items()}
    return by_plan(alone, estimates, plan.tests)


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
            widen_checkpoint(self.folder("plain", seed), folder, WIDENED["encoder_ffn_dim"], seed)
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
