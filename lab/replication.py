"""Multi30k with new seeds, by plans that were fixed before: what to train, and the answer.

    python -m lab.replication --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication --data-dir data/multi30k-en-de --budget 600 --seeds 4 5   # beside it, in the same folder
    python -m lab.replication --data-dir data/multi30k-en-de --budget 60 --seeds 4 --runs gdr_both
    python -m lab.replication from_plain --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication starts --data-dir data/multi30k-en-de --budget 600

Each plan was committed before the test set was translated with any of its seeds. A training that the budget stops
resumes in the next call.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from hf_capsule_mt.command_line import HelpFormatter, keep_freed_memory, run
from hf_capsule_mt.evaluation.results import markdown_table
from lab.effects import differences, effect
from lab.over_seeds import interval_over_seeds, p_over_seeds
from lab.records import Records
from lab.reproduce import Reproduction


@dataclass(frozen=True)
class Plan:
    """Rows to compare with a baseline over seeds.

    rows, control: runs and what they are. Holm's correction counts the rows; the control asks whether parameters alone
        do as much.
    changes: fields of every recipe.
    shares: the plan, of the same changes, that trains the baseline.
    """

    title: str
    seeds: tuple[int, ...]
    baseline: str
    rows: dict[str, str]
    control: dict[str, str]
    changes: dict[str, str]
    shares: str | None = None

    @property
    def runs(self) -> list[str]:
        return [self.baseline, *self.rows, *self.control]


# Runs train the same with and without validation; the first eight had it.
_EVERY_EPOCH = {"training.eval_strategy": '"no"', "training.save_steps": "462", "training.bf16": "true"}
# by the name of the file in lab/results
PLANS = {
    # Seed 1 chose the rows and is not counted. The control has as many parameters as the largest row.
    "replication": Plan(
        title="trained from the start; mean of the last five epochs",
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
        title="five epochs on top of a plain model of 4 + 4 layers and 8 heads; mean of the last three",
        seeds=(2, 3, 4),
        baseline="plain_further",
        rows={
            "linear_further": "Layers: linear combination (no routing)",
            "em_routing_further": "Layers: EM routing",
            "gdr_further": "Past and future: guided routing, capsules of half the width",
        },
        control={},
        changes=_EVERY_EPOCH
        | {"training.average_last": "3"}
        | {f"model.{side}_layers": "4" for side in ("encoder", "decoder")}
        | {f"model.{side}_attention_heads": "8" for side in ("encoder", "decoder")},
    ),
    # With the model's initial weights both start uniform, and what they squash is nearly nothing.
    "starts": Plan(
        title="from the start, with votes near 1 at first; mean of the last five epochs",
        seeds=(2, 3, 4),
        baseline="plain",
        rows={
            "dynamic_routing_routed": "Layers: dynamic routing",
            "head_simple_lower_routed": "Heads: simple routing, two lowest encoder layers",
        },
        control={},
        changes=_EVERY_EPOCH | {"training.average_last": "5"},
        shares="replication",
    ),
}


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Correct p-values for the number of tests, step down (Holm 1979).

    >>> holm({"a": 0.04, "b": 0.01, "c": 0.5})
    {'b': 0.03, 'a': 0.08, 'c': 0.5}
    """
    corrected: dict[str, float] = {}
    largest = 0.0
    for place, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p))
        corrected[name] = largest
    return corrected


def verdict(values: Sequence[float]) -> str:
    """Say what the interval of a mean difference in BLEU allows.

    >>> verdict([0.5, 0.6, 0.7]), verdict([-0.5, -0.6, -0.7]), verdict([0.1, -0.1, 0.2]), verdict([0.1])
    ('helps', 'hurts', 'within 0.4 BLEU of nothing', 'open')
    """
    interval = interval_over_seeds(values)
    if interval is None:
        return "open"
    low, high = interval
    if low > 0:
        return "helps"
    if high < 0:
        return "hurts"
    return f"within {max(-low, high):.1f} BLEU of nothing"


def table(records: Records, name: str) -> str:
    """Return a row for each method of a plan with its interval over seeds, empty if nothing has been trained."""
    plan = PLANS[name]
    runs = records.runs(plan.shares or name)
    found: dict[str, list[float]] = {}
    for run_name in [*plan.rows, *plan.control]:
        values = differences(runs, run_name, plan.baseline)
        if values:
            found[run_name] = values
    if not found:
        return ""
    by_seeds = {row: p_over_seeds(found[row]) for row in plan.rows if row in found}
    corrected = holm({row: p for row, p in by_seeds.items() if p is not None})
    lines = []
    for row, values in found.items():
        shown = f"{corrected[row]:.3f}" if row in corrected else ""
        all_seeds = len(values) == len(plan.seeds)
        answer = verdict(values) if all_seeds else f"{len(values)} of {len(plan.seeds)} seeds are trained"
        lines.append([(plan.rows | plan.control)[row], effect(values), shown, answer])
    plain = [run["scores"]["bleu"]["score"] for run in runs[plan.baseline].values()]
    baseline = f"{fmean(plain):.2f} BLEU, n = {len(plain)}"
    header = ["method", f"gain over the plain model ({baseline})", "p over seeds (Holm)", "answer"]
    return f"Multi30k, {plan.title}:\n\n{markdown_table(header, lines)}"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("plan", nargs="?", choices=list(PLANS), default="replication", help="(default: %(default)s)")
    parser.add_argument("--data-dir", help="where the files of Multi30k are")
    parser.add_argument("--budget", type=float, default=30, help="minutes; the next call goes on from there")
    parser.add_argument("--seeds", type=int, nargs="+", help="only these of the plan, so that calls share it")
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
