"""Multi30k again with new seeds: the plan, and the answer.

    python -m lab.replication --data-dir data/multi30k-en-de --budget 600
    python -m lab.replication --data-dir data/multi30k-en-de --budget 600 --seeds 4 5   # beside it, in the same folder

The plan below was committed before the test set was translated with any of its seeds. Seed 1, which chose the rows, is
not counted. Every row has the mean of its last five epochs. `plain_wide` asks whether parameters alone do as much: it
has as many as the largest row. A training that the budget stops resumes in the next call.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from hf_capsule_mt.command_line import HelpFormatter, keep_freed_memory, run
from hf_capsule_mt.evaluation.results import markdown_table
from lab.effects import differences, effect
from lab.over_seeds import interval_over_seeds, p_over_seeds
from lab.records import Records
from lab.reproduce import Reproduction

STUDY = "replication"
SEEDS = [2, 3, 4, 5]
ROWS = {
    "linear": "Layers: linear combination (no routing)",
    "head_em_lower": "Heads: EM routing, two lowest encoder layers",
    "gdr_both": "Past and future: guided routing",
}
CONTROL = {"plain_wide": "Wider feed-forward layers (the control)"}
CHANGES = {
    "training.eval_steps": "462",  # an epoch
    "training.save_steps": "462",
    "training.average_last": "5",
    "training.bf16": "true",
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


def table(records: Records) -> str:
    """Return a row for each method with its interval over seeds, empty if nothing has been trained."""
    runs = records.runs(STUDY)
    found: dict[str, list[float]] = {}
    for name in [*ROWS, *CONTROL]:
        values = differences(runs, name, "plain")
        if values:
            found[name] = values
    if not found:
        return ""
    by_seeds = {name: p_over_seeds(found[name]) for name in ROWS if name in found}
    corrected = holm({name: p for name, p in by_seeds.items() if p is not None})
    lines = []
    for name, values in found.items():
        shown = f"{corrected[name]:.3f}" if name in corrected else ""
        answer = verdict(values) if len(values) == len(SEEDS) else f"{len(values)} of {len(SEEDS)} seeds are trained"
        lines.append([(ROWS | CONTROL)[name], effect(values), shown, answer])
    plain = [runs["plain"][seed]["scores"]["bleu"]["score"] for seed in sorted(runs["plain"])]
    header = ["method", f"gain over the plain model ({fmean(plain):.2f} BLEU)", "p over seeds (Holm)", "answer"]
    return markdown_table(header, lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--data-dir", help="where the files of Multi30k are")
    parser.add_argument("--budget", type=float, default=30, help="minutes; the next call goes on from there")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=SEEDS, choices=SEEDS, help="only these, so that calls share the plan"
    )
    parser.add_argument("--work", type=Path, default=Path("outputs/reproduce"), help="checkpoints and logs")
    parser.add_argument("--results", type=Path, default=Path("lab/results"), help="results and translations")
    parser.add_argument("--cpu", action="store_true", help="train on the CPU even where there is a GPU")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    keep_freed_memory()
    changes = CHANGES | ({"training.use_cpu": "true"} if arguments.cpu else {})
    plan = {"setting": "multi30k", "study": STUDY, "changes": list(changes.items())}
    reproduction = Reproduction(argparse.Namespace(**vars(arguments), **plan))
    failed = reproduction.train_and_score(["plain", *ROWS, *CONTROL])
    print(table(reproduction.records) or "Nothing is trained yet.")
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
