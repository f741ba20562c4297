"""Golden checkpoints: today's code translates, scores and learns as the code that they were made with."""

import json
from typing import Any

import pytest

from tests.golden.make import EXPECTED, FAMILIES, FOLDER, measure

# what the order of additions may change; a score is an average log-probability, a share lies between 0 and 1
TOLERANCE = 1e-4


def differences(measured: Any, expected: Any, path: str = "") -> list[str]:
    """List the places where two nested structures differ: texts at all, numbers by more than the tolerance."""
    if isinstance(expected, dict):
        if not isinstance(measured, dict) or measured.keys() != expected.keys():
            return [f"{path}: {measured!r} instead of {expected!r}"]
        return [
            difference for key in expected for difference in differences(measured[key], expected[key], f"{path}.{key}")
        ]
    if isinstance(expected, list):
        if not isinstance(measured, list) or len(measured) != len(expected):
            return [f"{path}: {measured!r} instead of {expected!r}"]
        pairs = enumerate(zip(measured, expected, strict=True))
        return [
            difference
            for number, (left, right) in pairs
            for difference in differences(left, right, f"{path}[{number}]")
        ]
    if isinstance(expected, float):
        is_equal = measured == pytest.approx(expected, abs=TOLERANCE, rel=TOLERANCE)
    else:
        is_equal = measured == expected
    return [] if is_equal else [f"{path}: {measured!r} instead of {expected!r}"]


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name):
    expected = json.loads((FOLDER / name / EXPECTED).read_text(encoding="utf-8"))
    measured = measure(FOLDER / name, expected["pairs"])
    assert differences(measured, expected["measured"]) == []
