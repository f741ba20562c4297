"""Rankings of free translations: pairs with a check come first, and faults are counted by their rank."""

import re
from collections import Counter

import pytest

from lab.records import read_rows
from lab.report import DOCS, LAB
from lab.seeded_faults import KINDS, measured, rankings

SHEET = LAB / "sheets" / "free_en_pt.tsv"


def scored_pair(omission: float, checks: list[str]) -> dict:
    return {"omission": omission, "hallucination": 0.5, "score": -1.0, "coverage": {"score": 0.9, "checks": checks}}


def test_a_pair_with_a_check_comes_first():
    rows = [{"source": "a", "translation": "b"}] * 3
    values = rankings(rows, [scored_pair(0.1, []), scored_pair(0.9, []), scored_pair(0.0, ["numbers"])])
    first, *_, length_ratio = values.values()
    assert first == [0.6, 1.4, 10.5]
    assert values["`omission`"] == [0.1, 0.9, 0.0]
    assert length_ratio == [1.0, 1.0, 1.0]


def test_faults_are_counted_by_rank_and_kind():
    faults = ["", "omission", "", "invention", "number", *[""] * 35]
    result = measured([0.9, 0.8, 0.7, 0.6, 0.95, *[0.0] * 35], faults)
    assert result["first"] == {"20": 3, "40": 3}
    # of 37 pairs without a fault, those with 0.9 and 0.7 rank above an invention, that with 0.9 above an omission
    areas = {kind: area["auc"] for kind, area in result["auc"].items()}
    assert areas == pytest.approx({"all": 108 / 111, "omission": 36 / 37, "invention": 35 / 37, "number": 1})


def test_the_page_counts_the_faults_of_the_sheet():
    counts = Counter(row["fault"] for row in read_rows(SHEET))
    page = re.sub(r"\s+", " ", (DOCS / "coverage.md").read_text())
    omissions, inventions, numbers = (counts[kind] for kind in KINDS)
    assert f"left out a phrase ({omissions}), made one up ({inventions}), or changed a number ({numbers})" in page
