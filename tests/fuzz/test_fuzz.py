"""Hostile inputs: those that broke something once, and in the slow part a fixed number of others."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from capsule_mt.engine.search import Readings, SearchOptions
from tests.fuzz import pairs
from tests.fuzz.cases import TARGETS
from tests.fuzz.run import CORPUS
from tests.fuzz.searches import make_search, options_of

ROOT = Path(__file__).parents[2]
NUM_CASES = 5000  # of all targets together: about a minute


@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.glob("*-*.json")))
def test_what_broke_something_once(name):
    case = json.loads((CORPUS / name).read_text())
    TARGETS[case.pop("target")][1](case)


def test_every_field_of_a_search_and_of_readings_is_drawn_with_other_values_than_its_default():
    drawn = [options_of(make_search(random.Random(seed))) for seed in range(300)]
    values: dict[str, list[object]] = {
        name: [getattr(options, name) for options in drawn] for name in SearchOptions._fields
    }
    readings = [options.readings for options in drawn if options.readings]
    values |= {name: [getattr(reading, name) for reading in readings] for name in Readings._fields}
    defaults = SearchOptions._field_defaults | Readings._field_defaults
    assert [name for name in values if all(value == defaults.get(name) for value in values[name])] == []


@pytest.mark.slow
@pytest.mark.parametrize("model", pairs.MODELS)
def test_every_pair_of_options(model):
    for case in pairs.cases((model,)):
        pairs.check_pair(case)


@pytest.mark.slow
def test_the_same_cases_on_every_machine(tmp_path):
    """Other seeds are for the nightly workflow: here, a new find would depend on the machine's speed or on luck."""
    command = [sys.executable, "-m", "tests.fuzz.run", "--cases", str(NUM_CASES), "--keep", str(tmp_path)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    reports = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert process.returncode == 0, (process.stdout, process.stderr[-2000:], reports)
