"""Try hostile inputs, and keep those that break something.

    python -m tests.fuzz.run --seconds 600 --seed 7                 # all targets
    python -m tests.fuzz.run --cases 500 --targets search,file      # the same cases on every machine

Each case is written to `last.json` before it is tried: a crash of the process leaves it there. A case that fails is
kept in tests/fuzz/corpus, where `pytest tests/fuzz` tries it ever after. Under sanitizers, build the engine with
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
SLOW_SECONDS = 60.0  # of processor time; a case that takes more fails


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--seconds", type=float, default=math.inf)
    length.add_argument("--cases", type=float, default=math.inf, help="the number of cases, of all targets together")
    parser.add_argument("--seed", type=int, default=1, help="printed, for one that is new each night")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--keep", type=Path, default=CORPUS, help="where what fails is written")
    arguments = parser.parse_args()
    generator, targets = random.Random(arguments.seed), arguments.targets.split(",")
    print(f"seed {arguments.seed}", flush=True)
    end, tried, failed = time.monotonic() + arguments.seconds, 0, 0
    while time.monotonic() < end and tried < arguments.cases:
        target = targets[tried % len(targets)]
        make, check = TARGETS[target]
        case = {"target": target, **make(generator)}
        content = json.dumps(case)
        (arguments.keep / "last.json").write_text(content + "\n")
        began = time.process_time()
        try:
            check({name: value for name, value in json.loads(content).items() if name != "target"})
            assert time.process_time() - began < SLOW_SECONDS, "it took too long"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failed += 1
            name = f"{target}-{sha256(content.encode()).hexdigest()[:10]}.json"
            (arguments.keep / name).write_text(content + "\n")
            print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
        tried += 1
    (arguments.keep / "last.json").unlink()
    print(f"{tried} cases, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
