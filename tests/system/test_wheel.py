"""The wheels of both distributions: what is in them, and nothing else. `tests/dist.sh` installs and uses them."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from capsule_mt import __version__

pytest.importorskip("hatchling", reason="hatchling builds the wheels")
ROOT = Path(__file__).resolve().parents[2]
# files of a package that are neither Python files nor found by the suffixes below
FURTHER = {
    "capsule_mt": {
        "py.typed",
        "engine/operations.def",
    },
    "hf_capsule_mt": {"py.typed", "data/embedded_corpus.tsv.gz", "hub/card_template.md"},
}
PROGRAM = ["[console_scripts]", "capsule-mt", "=", "capsule_mt.commands:program"]


def built(folder: Path, output: Path) -> zipfile.ZipFile:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", output]
    # a target that is no platform: the wheel is built without the engine, which takes a minute to compile
    environment = {"PATH": "", "HF_CAPSULE_MT_TARGET": "none"}
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=300, capture_output=True)
    (wheel,) = output.glob("*.whl")
    return zipfile.ZipFile(wheel)


@pytest.mark.parametrize(("package", "folder"), [("capsule_mt", "capsule_mt"), ("hf_capsule_mt", ".")])
def test_a_wheel_has_its_package_and_nothing_else(package, folder, tmp_path):
    with built(ROOT / folder, tmp_path) as wheel:
        names = set(wheel.namelist())
        points = wheel.read(f"{package}-{__version__}.dist-info/entry_points.txt").decode()
        licences = f"{package}-{__version__}.dist-info/licenses"
        terms, notice = (wheel.read(f"{licences}/{name}") for name in ("LICENSE", "NOTICE"))
    information = {name for name in names if name.startswith(f"{package}-{__version__}.dist-info/")}
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".yaml", ".html", ".css", ".js", ".json", ".ts", ".wasm")
    }
    expected |= {f"{package}/{name}" for name in FURTHER[package]}
    if package == "capsule_mt":  # the npm package, without what its build writes
        paths = (path for path in (ROOT / "web").rglob("*") if path.suffix in (".js", ".ts", ".json"))
        files = {path.relative_to(ROOT / "web").as_posix() for path in paths if "node_modules" not in path.parts}
        files -= {"interface.js", "interface.d.ts"}
        expected |= {f"capsule_mt/web/package/{name}" for name in files}
        assert {"capsule_mt/web/package/native/team.c", "capsule_mt/web/package/page/service.js"} <= names
    unbuilt = {"capsule_mt/hatch_build.py"}
    sources = {name for name in names if "/native/" in name}
    assert all(name.endswith((".c", ".h")) for name in sources)
    assert names - information - sources == expected - unbuilt
    assert terms == (ROOT / "LICENSE").read_bytes()
    assert notice == (ROOT / "NOTICE").read_bytes()
    assert (points.split() == PROGRAM) == (package == "capsule_mt")
