"""Folders that were read in another way than by the program they are made for, and a fixed number of new ones."""

import json
import random
from pathlib import Path

import pytest

from tests.fuzz.layouts.__main__ import outcome_of
from tests.fuzz.layouts.families import FAMILIES, VARIABLES
from tests.fuzz.layouts.reading import Reading, difference

pytestmark = pytest.mark.slow

CASES = Path(__file__).parent / "layouts" / "cases"
NUM_FOLDERS = 15  # of each family


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.glob("*.json")))
def test_what_was_read_in_another_way(name, tmp_path):
    case = json.loads((CASES / name).read_text())
    if case["family"] not in FAMILIES:
        pytest.skip(f"{case['family']} judges it: set {VARIABLES[case['family']]}")
    outcome, reason = outcome_of(case, tmp_path / "model")
    assert not outcome.startswith("FINDING"), reason


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_folders_on_every_machine(family, tmp_path):
    generator, outcomes = random.Random(1), []
    for index in range(NUM_FOLDERS):
        case = json.loads(json.dumps(FAMILIES[family].make(generator)))
        outcome, reason = outcome_of(case, tmp_path / str(index) / case.get("title", "model"))
        assert not outcome.startswith("FINDING"), (case, reason)
        outcomes.append(outcome)
    assert "equal" in outcomes


def test_a_difference_is_found():
    reading = Reading([[1, 2]], [[3, 4]], ["a"], [[-1.0, -2.0]])
    assert difference(reading, reading) == ""
    other = Reading([[1, 9]], [[3, 9]], ["b"], [[-1.0, -2.1]])
    for field in Reading._fields:
        assert difference(reading._replace(**{field: getattr(other, field)}), reading) != ""
    assert difference(reading._replace(log_probs=[[float("nan")] * 2]), reading) != ""
