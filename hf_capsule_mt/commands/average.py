"""Average the weights of several checkpoints into a new one.

    capsule-mt average outputs/run --last 5 --output outputs/averaged
    capsule-mt average --checkpoints outputs/a outputs/b --output outputs/averaged

`capsule-mt train ... --average_last 5` does the same at the end of a run, and keeps as many checkpoints as it needs.
Without it, `--save_total_limit 5` keeps the last five checkpoints of a run, and the best.
"""

import json
from pathlib import Path

from capsule_mt.commands.console import CommandParser, folder
from capsule_mt.files.outputs import check_output_folder, write_output
from hf_capsule_mt.commands.push import TRAINING_RESULT


def main() -> None:
    parser = CommandParser(description=__doc__)
    parser.add_argument("run", type=folder, nargs="?", help="the output folder of a training run")
    parser.add_argument("--last", type=int, help="average this many of the run's last checkpoints")
    parser.add_argument("--checkpoints", type=Path, nargs="+", help="average these instead")
    parser.add_argument("--output", type=Path, required=True, help="folder for the averaged checkpoint")
    arguments = parser.parse_args()
    chosen = (arguments.run, arguments.last, arguments.checkpoints)
    is_run, is_last, is_listed = (value is not None for value in chosen)
    if is_run != is_last or is_run == is_listed:
        parser.error("give either a run and --last, or --checkpoints")
    from hf_capsule_mt.training.checkpoints import average_checkpoints, last_checkpoints

    try:
        check_output_folder(arguments.output)
        checkpoints = arguments.checkpoints or last_checkpoints(arguments.run, arguments.last)
        inputs = [folder.resolve() for folder in (*checkpoints, *([arguments.run] if is_run else []))]
        if arguments.output.resolve() in inputs:
            parser.error(
                f"{arguments.output} has weights of its own, which the average would replace: name a new folder"
            )
        average_checkpoints(checkpoints, arguments.output)
        if is_run:
            record_origin(arguments.run, checkpoints, arguments.output)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{arguments.output}: the mean of {', '.join(map(str, checkpoints))}")


def record_origin(run: Path, checkpoints: list[Path], output: Path) -> None:
    """Write a finished run's result beside its average, for the card, without scores of other weights."""
    from hf_capsule_mt.evaluation import read_result

    if (run / TRAINING_RESULT).is_file():
        averaged = [checkpoint.name for checkpoint in checkpoints]
        result = read_result(run / TRAINING_RESULT) | {"scores": {}, "log": [], "averaged": averaged}
        write_output(output / TRAINING_RESULT, json.dumps(result, indent=2))
