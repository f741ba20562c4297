"""The wheel and the source distribution: what is in them, and the program outside of the repository."""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import hf_capsule_mt
from tests.fixtures.tiny import save_tiny_checkpoint

pytest.importorskip("hatchling", reason="hatchling builds the wheel")
ROOT = Path(__file__).resolve().parents[2]
VERSION = hf_capsule_mt.__version__
EXTRAS = (
    "datasets",
    "evaluate",
    "fastapi",
    "matplotlib",
    "sacrebleu",
    "uvicorn",
)  # an installation without extras lacks these


def call(*words, **settings):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=True, timeout=300, **settings)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the wheel and of the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def program(built, tmp_path_factory):
    """`capsule-mt` of a new environment that has the libraries of this one, but the package from the wheel."""
    environment = tmp_path_factory.mktemp("installed")
    call(sys.executable, "-m", "venv", "--without-pip", environment)
    (wheel,) = built.glob("*.whl")
    options = ("--quiet", "--no-deps", "--no-index", "--no-warn-script-location")
    call(sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install", *options, wheel)
    (site,) = environment.glob("lib/python*/site-packages")
    paths = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    # without the .pth files of these folders, and so without the package that is being developed
    (site / "libraries.pth").write_text("\n".join(paths), encoding="utf-8")
    return environment / "bin" / "capsule-mt"


@pytest.fixture
def run(program, tmp_path):
    """Run the program in an empty folder; return what it printed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*words, **variables):
        return call(program, *words, cwd=tmp_path, env={**environment, **variables}).stdout

    return run


def test_the_wheel_has_the_package_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        points = archive.read(f"hf_capsule_mt-{VERSION}.dist-info/entry_points.txt").decode()
    information = f"hf_capsule_mt-{VERSION}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"hf_capsule_mt", "capsule_mt.py", information}
    inside = {name.removeprefix("hf_capsule_mt/") for name in names}
    here = ROOT / "hf_capsule_mt"
    wanted = {str(path.relative_to(here)) for path in here.rglob("*") if path.suffix in (".py", ".yaml")}
    assert wanted | {"py.typed"} <= inside
    assert {
        "hub/card_template.md",
        "recipes/methods.yaml",
        "recipes/corpora.yaml",
        "recipes/papers/baseline.yaml",
    } <= inside
    assert points.split() == ["[console_scripts]", "capsule-mt", "=", "capsule_mt:main"]


def test_the_source_has_what_its_tests_need(built):
    if not (ROOT / ".git").exists():
        pytest.skip("git lists the files")
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = call("git", "ls-files", "hf_capsule_mt", "scripts", "tests", "lab/*.py", cwd=ROOT).stdout.split()
    assert set(tracked) <= names | {path for path in tracked if not (ROOT / path).exists()}
    assert {"capsule_mt.py", "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile", ".ci/run"} <= names
    assert not [name for name in names if Path(name).suffix in (".so", ".dylib", ".dll")], "of this machine"


def test_the_program_lists_commands_and_recipes(run):
    assert "Start here:" in run("--help")
    assert run("recipes", "embedded").splitlines()[0].startswith("embedded/plain ")


def test_the_program_translates_without_extras(run, tmp_path):
    save_tiny_checkpoint(tmp_path / "model", layer_aggregation="em_routing")
    (tmp_path / "stubs").mkdir()
    for name in EXTRAS:
        stub = f'raise ModuleNotFoundError("No module named {name}", name="{name}")\n'
        (tmp_path / "stubs" / f"{name}.py").write_text(stub, encoding="utf-8")
    (tmp_path / "text.en").write_text("The old man buys a red hat.\nThe child sleeps.\n", encoding="utf-8")
    words = ("model", "--input", "text.en", "--output", "text.de", "--max-new-tokens", "5", "--cpu")
    run("translate", *words, "--speed-result", "speed.json", PYTHONPATH=str(tmp_path / "stubs"), OMP_NUM_THREADS="1")
    assert len((tmp_path / "text.de").read_text(encoding="utf-8").splitlines()) == 2
    assert json.loads((tmp_path / "speed.json").read_text())["command"].startswith("capsule-mt translate model")
