"""Compare systems with a baseline, the first: scores, three significance tests, the sentences that differ most.

    capsule-mt compare plain=plain.hyp em=em.hyp --references test.de
    capsule-mt compare plain=plain.hyp em=em.hyp --references test.de --sources test.en --output compare.json

Paired bootstrap and approximate randomisation are sacreBLEU's; where at most 12 sentences differ, the randomisation is
exact. The sign test is Collins et al.'s (2005).
"""

import argparse
from pathlib import Path

from capsule_mt.commands.console import CommandParser
from capsule_mt.files.outputs import check_outputs
from capsule_mt.files.reading import read_parallel
from hf_capsule_mt.evaluation.choices import METRICS


def named_file(argument: str) -> tuple[str, Path]:
    name, separator, path = argument.partition("=")
    return (name, Path(path)) if separator else (Path(argument).stem, Path(argument))


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    parser.add_argument("systems", nargs="+", type=named_file, metavar="NAME=FILE", help="the baseline comes first")
    parser.add_argument(
        "--references",
        type=Path,
        nargs="+",
        action="extend",
        required=True,
        help="one file or several, line by line",
    )
    parser.add_argument("--sources", type=Path, help="source sentences to show")
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=["bleu", "chrf", "ter"], help="which metrics")
    parser.add_argument("--output", type=Path, help="the result file to write")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    from hf_capsule_mt.evaluation import write_result
    from hf_capsule_mt.evaluation.comparison import as_text, build_report

    names = [name for name, _ in arguments.systems]
    if len(set(names)) != len(names) or len(names) < 2:
        raise ValueError(f"at least two systems with different names are needed, got {names}")
    files = [path for _, path in arguments.systems]
    check_outputs([arguments.output], [*files, *arguments.references, arguments.sources])
    extra = [arguments.sources] if arguments.sources else []
    lines = read_parallel([*files, *arguments.references, *extra])
    systems = dict(zip(names, lines, strict=False))
    references = lines[len(names) : len(names) + len(arguments.references)]
    report = build_report(systems, references, lines[-1] if extra else None, arguments.metrics)
    print(as_text(report), end="")
    if arguments.output:
        print(f"Result: {write_result(arguments.output, {'kind': 'comparison', **report.as_dict()})}")
