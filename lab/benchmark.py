"""Measure speed: by sentence length, and of engines on students.

    python -m lab.benchmark lengths 10 100 400 --threads 1 --processor-time --native    # CapsNMT beside Marian
    python -m lab.benchmark students FOLDER --input test.en             # students of Firefox beside other engines

All runs take turns in one process, and a ratio compares two medians. Prints a table and writes a JSON result.
`python -m lab.report --keep` adds it to lab/results.
"""

import argparse
from pathlib import Path

import torch

from capsule_mt.commands.console import HelpFormatter, folder, positive, run
from hf_capsule_mt.evaluation import read_result, write_result
from lab.lengths import measure_by_length, render_lengths
from lab.student_engines import measure_students, render_students


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=help, formatter_class=HelpFormatter)

    lengths = command("lengths", "CapsNMT beside Marian by sentence length")
    lengths.add_argument("lengths", nargs="*", type=int, default=[10, 25, 50, 100, 200, 400], help="in words")
    lengths.add_argument("--models", nargs="+", default=["Marian", "CapsNMT"], help="or folders of checkpoints")
    lengths.add_argument("--processor-time", action="store_true", help="the clock for a shared machine, on one thread")
    lengths.add_argument("--native", action="store_true", help="measure the native engine in int8, too, on a CPU")
    lengths.add_argument("--threads", type=int, help="processor threads to use (default: all)")
    students = command("students", "engines on students of Firefox Translations; one thread, processor time")
    students.add_argument("students", nargs="+", type=folder, help="folders of Mozilla's files")
    students.add_argument("--bergamot", help="a Python 3.10 with the wheel `bergamot`, to measure it, too")
    students.add_argument("--input", type=Path, required=True, help="a sentence on a line")
    students.add_argument("--sentences", type=positive, default=100, help="how many of them, from the first")
    students.add_argument("--batch-sizes", nargs="+", type=positive, default=[1, 16, 64], help="of sentences")
    students.add_argument("--num-beams", nargs="+", type=positive, default=[1, 4], help="hypotheses")
    for name, subcommand in commands.choices.items():
        subcommand.add_argument("--repeats", type=positive, default=3, help="counted runs of everything")
        output = Path(f"outputs/benchmark-{name}.json")
        subcommand.add_argument("--output", type=Path, default=output, help="the result file")
    return parser.parse_args()


SECTIONS = {
    "lengths": (measure_by_length, render_lengths),
    "students": (measure_students, render_students),
}


def main() -> None:
    arguments = parse_arguments()
    if getattr(arguments, "threads", None) is not None:
        torch.set_num_threads(arguments.threads)
    measure_section, render = SECTIONS[arguments.command]
    path = write_result(arguments.output, measure_section(arguments))
    print(render(read_result(path)))
    print(f"Result: {path}")


if __name__ == "__main__":
    run(main)
