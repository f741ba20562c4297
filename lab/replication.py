"""Multi30k with new seeds, by plans that were fixed before: what to train, and the answer.

    python -m lab.replication --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication --data-dir data/multi30k-en-de --budget 60 --seeds 4 --runs gdr_both
    python -m lab.replication from_plain --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication starts --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication recurrent --data-dir data/multi30k-en-de --budget 600

Each plan was committed before any of its rows translated the test set with its seeds. A training that the budget stops
resumes in the next call. The same call in a second process, in the same folder, shares the work.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from capsule_mt.commands.console import HelpFormatter, run
from hf_capsule_mt.commands.arguments import keep_freed_memory
from hf_capsule_mt.evaluation.results import markdown_table
from lab.effects import Gains, answer, differences, effect
from lab.over_seeds import holm, paired_t_test
from lab.records import Records
from lab.reproduce import Reproduction


@dataclass(frozen=True)
class Plan:
    """Rows to compare with a baseline over seeds.

    column: the heading of its gains where all methods stand together.
    rows, control: runs and what they are. Holm's correction counts the rows; the control asks whether parameters alone
        do as much.
    changes: fields of every recipe.
    shares: the plan, of the same changes, that trains the baseline.
    """

    title: str
    column: str
    seeds: tuple[int, ...]
    baseline: str
    rows: dict[str, str]
    control: dict[str, str]
    changes: dict[str, str]
    shares: str | None = None

    @property
    def runs(self) -> list[str]:
        return [self.baseline, *self.rows, *self.control]


# Runs train the same with and without validation; the first eleven had it.
_EVERY_EPOCH = {"training.eval_strategy": '"no"', "training.save_steps": "462", "training.bf16": "true"}
FROM_THE_START = "Multi30k, from the start"
# by the name of the file in lab/results
PLANS = {
    # Seed 1 chose the rows and is not counted. The control has as many parameters as the largest row.
    "replication": Plan(
        title="trained from the start; mean of the last five epochs",
        column=FROM_THE_START,
        seeds=(2, 3, 4, 5),
        baseline="plain",
        rows={
            "linear": "Layers: linear combination (no routing)",
            "head_em_lower": "Heads: EM routing, two lowest encoder layers",
            "gdr_both": "Past and future: guided routing",
        },
        control={"plain_wide": "Wider feed-forward layers (the control)"},
        changes=_EVERY_EPOCH | {"training.average_last": "5"},
    ),
    # As in the papers: all rows of a seed go on from its plain model for equally many steps, and so does the baseline.
    "from_plain": Plan(
        title="five epochs on top of a plain model of 4 + 4 layers and 8 heads, guided capsules of half the width; "
        "mean of the last three",
        column="Multi30k, on top of a plain model",
        seeds=(2, 3, 4),
        baseline="plain_further",
        rows={
            "linear_further": "Layers: linear combination (no routing)",
            "dynamic_combination_further": "Layers: dynamic combination (no routing)",
            "em_routing_further": "Layers: EM routing",
            "gdr_further": "Past and future: guided routing",
        },
        control={},
        changes=_EVERY_EPOCH
        | {"training.average_last": "3"}
        | {f"model.{side}_layers": "4" for side in ("encoder", "decoder")}
        | {f"model.{side}_attention_heads": "8" for side in ("encoder", "decoder")},
    ),
    # With the model's initial weights the first two start uniform, and what they squash is nearly nothing. The third's
    # votes are near 1 by default.
    "starts": Plan(
        title="from the start, with votes near 1 at first; mean of the last five epochs",
        column=FROM_THE_START,
        seeds=(2, 3, 4),
        baseline="plain",
        rows={
            "dynamic_routing_routed": "Layers: dynamic routing, larger votes at first",
            "head_simple_lower_routed": "Heads: simple routing, lowest layers, larger votes at first",
            "head_em_everywhere": "Heads: EM routing, all attentions",
        },
        control={},
        changes=_EVERY_EPOCH | {"training.average_last": "5"},
        shares="replication",
    ),
    "recurrent": Plan(
        title="recurrent models, trained from the start; mean of the last five epochs",
        column=FROM_THE_START,
        seeds=(2, 3, 4),
        baseline="rnmt",
        rows={"rnmt_gdr": "Past and future, recurrent model"},
        control={},
        changes=_EVERY_EPOCH | {"training.average_last": "5", "model.dropout": "0.2"},
    ),
}


def gains(records: Records, name: str) -> dict[str, Gains]:
    """Return the gains of a plan's rows and its control over its baseline, by their titles.

    A row with all its seeds has a p-value, corrected for all rows of the plan.
    """
    plan = PLANS[name]
    runs = {
        run: {seed: result for seed, result in of.items() if seed in plan.seeds}
        for run, of in records.runs(plan.shares or name).items()
    }
    found = {
        title: Gains(differences(runs, run, plan.baseline), len(plan.seeds))
        for run, title in (plan.rows | plan.control).items()
    }
    corrected = holm({
        title: paired_t_test(found[title].values) if found[title].complete else 1.0 for title in plan.rows.values()
    })  # fmt: skip
    return {
        title: of._replace(p=corrected.get(title) if of.complete else None) for title, of in found.items() if of.values
    }


def table(records: Records, name: str) -> str:
    """Return a row for each method of a plan with its interval over seeds, empty if nothing has been trained."""
    plan, found = PLANS[name], gains(records, name)
    if not found:
        return ""
    lines = [
        [title, effect(of.values), "" if of.p is None else f"{of.p:.3f}", answer(of)] for title, of in found.items()
    ]
    runs = records.runs(plan.shares or name)[plan.baseline]
    scores = [runs[seed]["scores"]["bleu"]["score"] for seed in plan.seeds if seed in runs]
    baseline = f"{fmean(scores):.2f} BLEU, n = {len(scores)}"
    header = ["method", f"gain over the baseline ({baseline})", "p over seeds (Holm)", "answer"]
    command = f"python -m lab.replication {name} --data-dir data/multi30k-en-de --budget 600 --cpu"
    return f"Multi30k, {plan.title} (`{command}`):\n\n{markdown_table(header, lines)}"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("plan", nargs="?", choices=list(PLANS), default="replication", help="(default: %(default)s)")
    parser.add_argument("--data-dir", help="where the files of Multi30k are")
    parser.add_argument("--budget", type=float, default=30, help="minutes; the next call goes on from there")
    parser.add_argument("--seeds", type=int, nargs="+", help="only these of the plan")
    parser.add_argument("--runs", nargs="+", metavar="RUN", help="only these of the plan")
    parser.add_argument("--work", type=Path, default=Path("outputs/reproduce"), help="checkpoints and logs")
    parser.add_argument("--results", type=Path, default=Path("lab/results"), help="results and translations")
    parser.add_argument("--cpu", action="store_true", help="train on the CPU even where there is a GPU")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    plan = PLANS[arguments.plan]
    seeds = arguments.seeds or list(plan.seeds)
    if not set(seeds) <= set(plan.seeds):
        raise SystemExit(f"lab.replication --seeds: the plan {arguments.plan} has {list(plan.seeds)}; got {seeds}")
    runs = arguments.runs or plan.runs
    if not set(runs) <= set(plan.runs):
        raise SystemExit(f"lab.replication --runs: the plan {arguments.plan} has {plan.runs}; got {runs}")
    keep_freed_memory()
    changes = plan.changes | ({"training.use_cpu": "true"} if arguments.cpu else {})
    settings = vars(arguments) | {"setting": "multi30k", "study": plan.shares or arguments.plan, "seeds": seeds}
    reproduction = Reproduction(argparse.Namespace(**settings, changes=list(changes.items())))
    failed = reproduction.train_and_score(runs)
    print(table(reproduction.records, arguments.plan) or "Nothing is trained yet.")
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
