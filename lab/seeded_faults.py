"""How well `capsule-mt score` ranks free translations, some of which have a fault that was seeded.

    tail -n +2 lab/sheets/free_en_pt.tsv | cut -f 3,4 | capsule-mt score outputs/enpt --reverse outputs/pten --int8 \\
        --src-lang en --tgt-lang pt --adequacy --coverage --output scores.jsonl
    python -m lab.seeded_faults lab/sheets/free_en_pt.tsv scores.jsonl

The ranking does not see the last column of the sheet, the kind of the fault. lab/sheets/README.md says how faults were
seeded. Intervals are 95 % by bootstrap over sentences.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.files.reading import read_lines
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.results import markdown_table
from lab.area_under_curve import area_under_curve
from lab.records import read_rows

KINDS = ("omission", "invention", "number")
FIRST = (20, 40)  # sentences that a reader checks
CHECKED = 10.0  # more than any other score: pairs with a check come first


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("sheet", type=Path, help="sources, translations and the kind of each seeded fault")
    parser.add_argument("scores", type=Path, help="the .jsonl of `capsule-mt score --adequacy --coverage`")
    parser.add_argument("--output", type=Path, default=Path("outputs/seeded-faults.json"), help="the result file")
    return parser.parse_args()


def rankings(rows: Sequence[dict[str, str]], scored: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Return how suspicious each pair is, by name of the ranking."""
    omission, hallucination = ([pair[name] for pair in scored] for name in ("omission", "hallucination"))
    both = [sum(values) for values in zip(omission, hallucination, strict=True)]
    has_checks = [bool(pair["coverage"].get("checks")) for pair in scored]
    return {
        "a check, then `omission + hallucination`": [
            CHECKED * has_check + value for has_check, value in zip(has_checks, both, strict=True)
        ],
        "`omission + hallucination`": both,
        "`omission`": omission,
        "`hallucination`": hallucination,
        "coverage score": [-pair["coverage"]["score"] for pair in scored],
        "log-probability": [-pair["score"] for pair in scored],
        "length ratio": [len(row["source"]) / len(row["translation"]) for row in rows],
    }


def measured(values: Sequence[float], faults: Sequence[str]) -> dict[str, Any]:
    """Return the areas under the ROC curve, of all faults and of each kind, and the faults that rank first."""
    order = sorted(range(len(values)), key=lambda index: -values[index])
    first = {str(number): sum(bool(faults[index]) for index in order[:number]) for number in FIRST}
    areas = {"all": area_under_curve(values, [bool(fault) for fault in faults])}
    for kind in KINDS:
        indices = [index for index, fault in enumerate(faults) if fault in ("", kind)]
        areas[kind] = area_under_curve(
            [values[index] for index in indices], [bool(faults[index]) for index in indices]
        )
    return {"first": first, "auc": areas}


def main() -> None:
    arguments = parse_arguments()
    rows = read_rows(arguments.sheet)
    scored = [json.loads(line) for line in read_lines(arguments.scores)]
    pairs, sheet_pairs = ([(row["source"], row["translation"]) for row in table] for table in (scored, rows))
    if pairs != sheet_pairs:
        raise ValueError(f"{arguments.scores} must have the {len(rows)} pairs of {arguments.sheet}, in their order")
    faults = [row["fault"] for row in rows]
    results = {name: measured(values, faults) for name, values in rankings(rows, scored).items()}
    table = [
        [
            name,
            *(str(count) for count in result["first"].values()),
            "{auc:.2f} [{low:.2f}, {high:.2f}]".format(**result["auc"]["all"]),
            *(f"{result['auc'][kind]['auc']:.2f}" for kind in KINDS),
        ]
        for name, result in results.items()
    ]
    header = ["ranked by", *(f"in the first {number}" for number in FIRST), "AUC", *KINDS]
    record = {"kind": "seeded faults", "sheet": arguments.sheet.stem, "sentences": len(rows), "rankings": results}
    record["faults"] = {kind: faults.count(kind) for kind in KINDS}
    path = write_result(arguments.output, record)
    print(f"{markdown_table(header, table)}\nResult: {path}")


if __name__ == "__main__":
    run(main)
