"""Try hostile inputs, and keep those that fail.

    python -m tests.fuzz.run --seconds 600 --seed 7                 # all targets
    python -m tests.fuzz.run --cases 500 --targets search,file      # the same cases on every machine

Each case is written to `last.json` before it runs, so it is still there if the process crashes. A case that fails goes
into tests/fuzz/corpus, and from then on `pytest tests/fuzz` runs it. To fuzz with sanitizers, build the engine with
`CC=gcc python -m capsule_mt.engine.build --sanitize address,undefined`.
"""

import argparse
import json
import math
import random
import sys
import time
from hashlib import sha256
from pathlib import Path

from tests.fuzz.cases import TARGETS

CORPUS = Path(__file__).parent / "corpus"
SLOW_SECONDS = 60.0  # processor time; a slower case fails


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    limit = parser.add_mutually_exclusive_group(required=True)
    limit.add_argument("--seconds", type=float, default=math.inf)
    limit.add_argument("--cases", type=float, default=math.inf, help="how many cases to run, over all targets")
    parser.add_argument(
        "--seed", type=int, default=1, help="printed, so that a nightly run with a new seed can be repeated"
    )
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument(
        "--keep", type=Path, default=CORPUS, help="the folder for failing cases (default: %(default)s)"
    )
    arguments = parser.parse_args()
    generator, targets = random.Random(arguments.seed), arguments.targets.split(",")
    print(f"seed {arguments.seed}", flush=True)
    end, num_cases, num_failures = time.monotonic() + arguments.seconds, 0, 0
    while time.monotonic() < end and num_cases < arguments.cases:
        target = targets[num_cases % len(targets)]
        make, check = TARGETS[target]
        case = {"target": target, **make(generator)}
        content = json.dumps(case)
        (arguments.keep / "last.json").write_text(content + "\n")
        start = time.process_time()
        try:
            check({name: value for name, value in json.loads(content).items() if name != "target"})
            assert time.process_time() - start < SLOW_SECONDS, f"took over {SLOW_SECONDS:.0f} s of processor time"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            num_failures += 1
            name = f"{target}-{sha256(content.encode()).hexdigest()[:10]}.json"
            (arguments.keep / name).write_text(content + "\n")
            print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
        num_cases += 1
    (arguments.keep / "last.json").unlink()
    print(f"{num_cases} cases, {num_failures} failed")
    sys.exit(1 if num_failures else 0)


if __name__ == "__main__":
    main()
