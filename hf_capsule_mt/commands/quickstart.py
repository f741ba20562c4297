"""A first look: train a plain and a capsule model in minutes, and translate with both.

    capsule-mt quickstart                                             # what `make demo-training` runs
    capsule-mt quickstart --recipe head_em_routing --output outputs/heads
    capsule-mt quickstart --seeds 1 2 3                               # the mean of several runs

The command trains by two recipes of the embedded corpus, with fewer and larger steps than the recipes state. It prints
the BLEU of both models, some translations beside the references, and the coverage of a translation that is cut short.
The checkpoint of the capsule model works with `pipeline` and `capsule-mt analyze`. To resume a killed run, run the
same command again.
"""

import argparse
from pathlib import Path

from capsule_mt.commands.console import CommandParser


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    parser.add_argument("--recipe", default="em_routing", help="the capsule model: a method on the embedded corpus")
    parser.add_argument(
        "--output", type=Path, default=Path("outputs/demo"), help="folder for the checkpoint of the capsule model"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="train both models with each of these seeds")
    arguments = parser.parse_args()
    if arguments.recipe == "plain":
        parser.error("--recipe plain: the plain model is trained anyway; give a method with capsules")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    from hf_capsule_mt.quickstart import quickstart

    quickstart(arguments.recipe, arguments.output, arguments.seeds)
