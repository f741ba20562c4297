"""Disturb the commands in every way that a long run meets, and check that nothing is lost and nothing is silent.

    python -m lab.campaign --minutes 30 --output outputs/campaign.json
    python -m lab.campaign --minutes 5 --sections kill-train damage-train
    python -m lab.campaign --sections strings --seed 17 --tries 1            # repeat a single try

Trains a tiny model, and translates, scores, calibrates and distils with it undisturbed. Then the sections take turns
until the time is over: kills, SIGTERM and Ctrl-C at random moments, damage between them, no space, two runs into one
output, a server under load, changed models, broken downloads and hostile strings; one measures memory. A disturbed
command is run again, and its files must be those of the undisturbed run, byte for byte. Prints a table; exits with 1
after a failure, and prints how to repeat it. Needs a system that forks, such as Linux.
"""

import argparse
import itertools
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from capsule_mt.commands.console import HelpFormatter, checkpoint_folder, positive, run
from capsule_mt.files.outputs import check_outputs
from hf_capsule_mt.evaluation import write_result
from lab.benchmark_tables import render_campaign
from lab.campaign_processes import start_server
from lab.campaign_services import broken_downloads, changed_model, served
from lab.campaign_tries import (
    Bench,
    Job,
    damaged,
    flat_memory,
    hostile_strings,
    signalled,
    two_at_once,
    without_space,
)


class Section(NamedTuple):
    """What is tried, what its disturbances are, and a try, which returns how many of them there were."""

    title: str
    counted: str
    attempt: Callable[[Bench, random.Random], int]
    tries: float = float("inf")  # at most


def _task(name: str, attempt: Callable[[Bench, Job, random.Random], int]) -> Callable[[Bench, random.Random], int]:
    return lambda bench, chance: attempt(bench, bench.jobs[name], chance)


_KINDS: dict[str, tuple[str, str, Callable[[Bench, Job, random.Random], int]]] = {
    "kill": ("SIGKILL at random moments of `{}`", "kills", signalled(signal.SIGKILL)),
    "term": ("SIGTERM at random moments of `{}`", "signals", signalled(signal.SIGTERM)),
    "ctrl-c": ("Ctrl-C at random moments of `{}`", "signals", signalled(signal.SIGINT)),
    "damage": ("`{}` killed, and what it had saved emptied, cut or changed", "damaged files", damaged),
    "space": ("files of `{}` that cannot grow", "failed writes", without_space),
    "twice": ("`{}` twice at once into one output", "refusals", two_at_once),
}
SECTIONS = {
    f"{kind}-{job}": Section(title.format(job), counted, _task(job, attempt))
    for kind, (title, counted, attempt) in _KINDS.items()
    for job in ("train", "translate", "distill", "score", "calibrate")
    if job != "calibrate" or kind not in ("damage", "twice")  # it saves nothing on the way
} | {
    "serve": Section("`serve` under load, beside slow clients, killed or stopped", "ends", served),
    "changed": Section("`translate` while its weights are replaced, overwritten or removed", "changes", changed_model),
    "downloads": Section("`models download` over connections that break off, killed", "kills", broken_downloads),
    "strings": Section("hostile strings through `translate`", "hostile lines", hostile_strings),
    "memory": Section("memory of `translate`, the same for any number of lines", "runs", flat_memory, tries=1),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--minutes", type=float, default=30, help="no try begins later than that")
    parser.add_argument("--tries", type=positive, default=10**6, help="at most this many tries in each section")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the first try in each section; each further try takes the next"
    )
    parser.add_argument("--sections", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help="what to try")
    parser.add_argument(
        "--checkpoint", type=checkpoint_folder, help="a guided checkpoint that translates (default: train a tiny one)"
    )
    parser.add_argument("--output", type=Path, help="the result file")
    return parser.parse_args()


def turns(sections: list[str], tries: int, seconds: float) -> Iterator[tuple[str, int]]:
    """Yield a section and the number of its try, in turns, until the time is over."""
    started = time.monotonic()
    for number, name in itertools.product(range(tries), sections):
        if time.monotonic() - started > seconds:
            return
        if number < SECTIONS[name].tries:
            yield name, number


def attempt(bench: Bench, name: str, seed: int) -> tuple[int, str | None]:
    """Make one try; return the number of disturbances, and what failed."""
    files = set(bench.folder.iterdir())
    try:
        return SECTIONS[name].attempt(bench, random.Random(f"{name} {seed}")), None
    except AssertionError as error:
        return 0, str(error)
    finally:
        for path in set(bench.folder.iterdir()) - files:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def campaign(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the tries and failures of each section."""
    started = time.monotonic()
    start_server(folder)
    tried: dict[str, dict[str, Any]] = {
        name: {"title": SECTIONS[name].title, "counted": SECTIONS[name].counted, "tries": 0, "disturbances": 0}
        | {"failures": []}
        for name in arguments.sections
    }
    with tqdm(unit=" tries", bar_format="{desc}{n_fmt}{unit}, {elapsed}") as progress:
        bench = Bench(folder, arguments.checkpoint, progress.set_description)
        remaining = 60 * arguments.minutes - (time.monotonic() - started)
        for name, number in turns(arguments.sections, arguments.tries, remaining):
            progress.set_description(name)
            disturbances, failure = attempt(bench, name, arguments.seed + number)
            tried[name]["tries"] += 1
            tried[name]["disturbances"] += disturbances
            if failure is not None:
                repeat = f"python -m lab.campaign --sections {name} --seed {arguments.seed + number} --tries 1"
                tried[name]["failures"].append({"repeat": repeat, "what": failure})
                tqdm.write(f"FAILED {name}: {failure}\nRepeat it with: {repeat}")
            progress.update()
    minutes = round((time.monotonic() - started) / 60, 1)
    return {"minutes": minutes, "sections": tried, "memory": bench.memory}


def main() -> int:
    arguments = parse_arguments()
    check_outputs([arguments.output])
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        summary = campaign(arguments, Path(folder).resolve())
    result = {"kind": "campaign", "seed": arguments.seed, **summary}
    print(render_campaign(result))
    if arguments.output is not None:
        write_result(arguments.output, result)
    return int(any(section["failures"] for section in result["sections"].values()))


if __name__ == "__main__":
    run(main)
