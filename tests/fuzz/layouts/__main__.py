"""Draw folders, read each by both programs, and report what differs in silence."""

import argparse
import json
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

from tests.fuzz.layouts.families import FAMILIES
from tests.fuzz.layouts.reading import RefusedError, difference


def outcome_of(case: dict, folder: Path) -> tuple[str, str]:
    """Return what happened to a folder, and its reason: "equal", "refused", "only we read it" or a finding."""
    family = FAMILIES[case["family"]]
    folder.parent.mkdir(parents=True, exist_ok=True)
    family.write(case, folder)
    try:
        ours = family.read_ours(case, folder)
        refusal = ""
    except RefusedError as error:
        ours, refusal = None, str(error)
    except Exception as error:
        ours, refusal = None, ""
        crash = f"{type(error).__name__}: {' '.join(str(error).split())}"
    try:
        theirs = family.read_theirs(case, folder)
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if ours is not None:
            return "only we read it", reason
        return (
            ("neither reads it", f"{refusal}; the original program: {reason}")
            if refusal
            else ("FINDING: crash", crash)
        )
    if refusal:
        return "refused", refusal
    if ours is None:
        return "FINDING: crash", crash
    rank = None if family.rank is None else partial(family.rank, case)
    message = difference(ours, theirs, rank)
    return ("FINDING: differs", message) if message else ("equal", "")


def drawn_cases(seed: int, families: list[str], count: int) -> Iterator[dict]:
    """Draw a folder of each family in turn; a family's folders do not depend on which others are drawn."""
    generators = {name: random.Random(f"{seed} {name}") for name in families}
    for index in range(count):
        name = families[index % len(families)]
        yield json.loads(json.dumps(FAMILIES[name].make(generators[name])))


def outcomes_in(log: Path | None) -> dict[str, str]:
    """Return the outcomes that a run before this one has written down, by the names of their cases."""
    lines = log.read_text().splitlines() if log is not None and log.exists() else []
    return {name: outcome for name, outcome, _ in (line.split("\t") for line in lines if line.count("\t") == 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folders", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--keep", type=Path, help="a folder for the cases of findings")
    parser.add_argument("--case", type=Path, help="read the folder of this case alone")
    parser.add_argument("--verbose", action="store_true", help="print why folders were refused")
    parser.add_argument("--log", type=Path, help="a file with a line for each folder; those in it are not read again")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    cases = drawn_cases(arguments.seed, arguments.families.split(","), arguments.folders)
    if arguments.case is not None:
        cases = iter([json.loads(arguments.case.read_text())])
    outcomes, start, num_findings = Counter(), time.monotonic(), 0
    logged = outcomes_in(arguments.log)
    for case in cases:
        content = json.dumps(case)
        name = f"{case['family']}-{sha256(content.encode()).hexdigest()[:10]}.json"
        outcome, reason = logged.get(name, ""), "as the log says"
        if not outcome:
            with tempfile.TemporaryDirectory() as parent:
                outcome, reason = outcome_of(case, Path(parent) / case.get("title", "model"))
        outcomes[f"{case['family']}: {outcome}"] += 1
        is_finding = outcome.startswith("FINDING")
        if is_finding or arguments.verbose:
            print(f"{name} {outcome}: {reason[:400]}", flush=True)
        if is_finding and arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            (arguments.keep / name).write_text(content + "\n")
        if arguments.log is not None and name not in logged:
            with arguments.log.open("a") as log:
                log.write(f"{name}\t{outcome}\t{' '.join(reason.split())[:400]}\n")
        num_findings += is_finding
    for name, count in sorted(outcomes.items()):
        print(f"{count:6} {name}")
    total = sum(outcomes.values())
    print(f"{total} folders, seed {arguments.seed}, {time.monotonic() - start:.0f} s, {num_findings} findings")
    sys.exit(1 if num_findings else 0)


if __name__ == "__main__":
    main()
