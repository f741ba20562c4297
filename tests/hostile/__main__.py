"""Try hostile files of every kind, or write them into a folder for another program.

python -m tests.hostile --cases 500 --seed 1                  # 500 files of each kind
python -m tests.hostile --cases 500 --kinds pickle --write out
"""

import argparse
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path

from tests.fuzz.pickles import archive
from tests.hostile.grammar import KINDS
from tests.hostile.trials import trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--write", type=Path, help="a folder for the files")
    parser.add_argument("--keep", type=Path, help="a folder for the files of findings")
    arguments = parser.parse_args()
    num_findings = 0
    for kind in arguments.kinds.split(","):
        outcomes, slowest = Counter[str](), 0.0
        for index, (content, outcome) in enumerate(trials(kind, arguments.cases, arguments.seed)):
            outcomes[outcome.name] += 1
            slowest = max(slowest, outcome.seconds)
            is_finding = outcome.name in ("crashed", "unnamed")
            if is_finding:
                name = f"{kind}-{index}-{sha256(content).hexdigest()[:10]}"
                print(f"{name} {outcome.name}: {outcome.message[:300]}", flush=True)
                num_findings += 1
            for folder in (arguments.write, arguments.keep if is_finding else None):
                if folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                    file = folder / f"{kind}-{index:03}"
                    archive(content, file) if kind == "pickle" else file.write_bytes(content)
        counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
        print(f"{kind}: {counts}; the slowest took {slowest:.1f} s", flush=True)
    sys.exit(1 if num_findings else 0)


if __name__ == "__main__":
    main()
