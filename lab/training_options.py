"""Options of the commands that train runs: `lab.reproduce`, `lab.replication` and `lab.depth`."""

import argparse
from collections.abc import Collection, Mapping
from pathlib import Path

import torch


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Add what every training needs: data, time, and the folders of its files."""
    parser.add_argument("--data-dir", help="where the files of the recipes are")
    parser.add_argument("--budget", type=float, default=30, help="minutes; the next call goes on from there")
    parser.add_argument("--work", type=Path, default=Path("outputs/reproduce"), help="checkpoints and logs")
    parser.add_argument("--results", type=Path, default=Path("lab/results"), help="results and translations")


def add_subset_options(parser: argparse.ArgumentParser) -> None:
    """Add what a plan is trained on, and with: its seeds, its runs, a processor."""
    parser.add_argument("--seeds", type=int, nargs="+", help="only these of the plan")
    parser.add_argument("--runs", nargs="+", metavar="RUN", help="only these of the plan")
    parser.add_argument("--cpu", action="store_true", help="train on the CPU even where there is a GPU")


def check_subset(option: str, values: Collection[object], planned: Collection[object]) -> None:
    """Exit if an option names what the plan does not have."""
    if not set(values) <= set(planned):
        raise SystemExit(f"{option}: the plan has {list(planned)}; got {list(values)}")


def changes_on(changes: Mapping[str, str], cpu: bool) -> list[tuple[str, str]]:
    """Return the changed fields of a plan's recipes; the Trainer wants to be told to use bfloat16 on a CPU."""
    on_cpu = cpu or not torch.cuda.is_available()
    return list({**changes, **({"training.use_cpu": "true"} if on_cpu else {})}.items())
