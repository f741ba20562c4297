"""Average the weights of several checkpoints into a new one.

    capsule-mt average outputs/run --last 5 --output outputs/averaged
    capsule-mt average outputs/run --best 5 --metric bleu --output outputs/averaged
    capsule-mt average --checkpoints outputs/a outputs/b --output outputs/averaged

`capsule-mt train ... --average_last 5` or `--average_best 5` does the same at the end of a run and keeps as many
checkpoints as it needs; without them `--save_total_limit` sets how many a run keeps.
"""

from pathlib import Path

from capsule_mt.commands.console import CommandParser
from capsule_mt.text.outputs import check_output_folder


def main() -> None:
    parser = CommandParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?", help="the output folder of a training run")
    parser.add_argument("--last", type=int, help="how many of its last checkpoints")
    parser.add_argument("--best", type=int, help="how many of its best checkpoints")
    parser.add_argument("--metric", default="bleu", help="metric of the evaluations that ranks checkpoints")
    parser.add_argument("--checkpoints", type=Path, nargs="+", help="average these instead")
    parser.add_argument("--output", type=Path, required=True, help="folder for the mean")
    arguments = parser.parse_args()
    if (arguments.run is None) == (arguments.checkpoints is None):
        parser.error("give either a run or --checkpoints")
    if arguments.checkpoints and (arguments.last is not None or arguments.best is not None):
        parser.error("--last and --best choose from a run; --checkpoints are averaged as they are")
    from hf_capsule_mt.training.checkpoints import average_checkpoints, choose_checkpoints

    try:
        check_output_folder(arguments.output)
        checkpoints = arguments.checkpoints or choose_checkpoints(
            arguments.run,
            last=arguments.last,
            best=arguments.best,
            metric=arguments.metric,
            greater_is_better="loss" not in arguments.metric,
        )
        average_checkpoints(checkpoints, arguments.output)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{arguments.output}: the mean of {', '.join(map(str, checkpoints))}")
