"""Disturb the commands in every way that a long run meets, and check that nothing is lost and nothing is silent.

    python -m lab.campaign --minutes 30 --output outputs/campaign.json
    python -m lab.campaign --minutes 5 --sections kill-train damage-train
    python -m lab.campaign --sections strings --seed 17 --tries 1            # repeat a single try

Trains a tiny model, and translates, scores, calibrates and distils with it undisturbed. Then the sections take turns
until the time is over: kills, SIGTERM and Ctrl-C at random moments, damage between them, full disks, two runs into one
output, a server under load, changed models, broken downloads, hostile strings and malformed checkpoints; one measures
memory. A disturbed command is run again, and its files must be those of the undisturbed run, byte for byte. Prints a
table, and writes it beside the result file; exits with 1 after a failure, and prints how to repeat it. Needs a system
that forks, such as Linux; small disks are mounted where that is allowed.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from capsule_mt.commands.console import HelpFormatter, checkpoint_folder, positive, run
from capsule_mt.text.outputs import check_outputs, write_output
from hf_capsule_mt.evaluation import write_result
from lab.benchmark_tables import render_campaign
from lab.campaign_processes import can_mount, start_server
from lab.campaign_tries import SECTIONS, Bench, attempt


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--minutes", type=float, default=30, help="no try begins later than that")
    parser.add_argument("--tries", type=positive, help="at most so many in each section")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first try of each section; the next one has the next"
    )
    parser.add_argument("--sections", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help="what to try")
    parser.add_argument(
        "--checkpoint", type=checkpoint_folder, help="a guided checkpoint that translates (default: train a tiny one)"
    )
    parser.add_argument("--output", type=Path, help="the result file; its table gets the same name with .md")
    return parser.parse_args()


def campaign(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the tries and failures of each section."""
    started = time.monotonic()
    start_server(folder)
    mounts = can_mount(folder / "mount")
    if not mounts:
        print("No file system can be mounted here: the sections disk-* are left out")
    tried: dict[str, dict[str, Any]] = {
        name: {"title": SECTIONS[name].title, "counted": SECTIONS[name].counted, "tries": 0, "disturbances": 0}
        | {"failures": []}
        for name in arguments.sections
        if mounts or not name.startswith("disk-")
    }
    failures = 0
    with tqdm(
        total=round(60 * arguments.minutes), unit="s", bar_format="{l_bar}{bar}| {elapsed}{postfix}"
    ) as progress:
        bench = Bench(folder, arguments.checkpoint, progress.set_description)
        number = 0
        while arguments.tries is None or number < arguments.tries:
            for name, section in tried.items():
                most = SECTIONS[name].tries
                if most is not None and number >= most:
                    continue
                passed = time.monotonic() - started
                progress.update(min(round(passed), progress.total) - progress.n)
                if passed > 60 * arguments.minutes:
                    return {"minutes": round(passed / 60, 1), "sections": tried, "memory": bench.memory}
                progress.set_description(name)
                disturbances, failure = attempt(bench, name, arguments.seed + number)
                section["tries"] += 1
                section["disturbances"] += disturbances
                if failure is not None:
                    failures += 1
                    repeat = f"python -m lab.campaign --sections {name} --seed {arguments.seed + number} --tries 1"
                    section["failures"].append({"repeat": repeat, "what": failure})
                    tqdm.write(f"FAILED {name}: {failure}\nRepeat it with: {repeat}")
                progress.set_postfix_str(f"{failures} failures")
            number += 1
    minutes = round((time.monotonic() - started) / 60, 1)
    return {"minutes": minutes, "sections": tried, "memory": bench.memory}


def main() -> int:
    arguments = parse_arguments()
    table = arguments.output and arguments.output.with_suffix(".md")
    check_outputs([arguments.output, table])
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        found = campaign(arguments, Path(folder).resolve())
    result = {"kind": "campaign", "seed": arguments.seed, **found}
    text = render_campaign(result)
    print(text)
    if arguments.output is not None:
        write_result(arguments.output, result)
        write_output(table, text + "\n")
    return int(any(section["failures"] for section in result["sections"].values()))


if __name__ == "__main__":
    run(main)
