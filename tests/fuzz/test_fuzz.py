"""Hostile inputs: those that broke something once, and in the slow part new ones for a minute."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from tests.fuzz.cases import TARGETS
from tests.fuzz.run import CORPUS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.glob("*-*.json")))
def test_what_broke_something_once(name):
    case = json.loads((CORPUS / name).read_text())
    TARGETS[case.pop("target")][1](case)


@pytest.mark.slow
def test_a_minute_of_new_ones(tmp_path):
    command = [sys.executable, "-m", "tests.fuzz.run", "--seconds", "60", "--keep", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert done.returncode == 0, (done.stdout, done.stderr[-2000:], kept)
