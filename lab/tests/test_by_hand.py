"""Marks compared with the words that readers named, and the sheets of these words."""

import pytest

from lab.by_hand import Labels, digest, marks_under, spans_of, table
from lab.over_seeds import wilson
from lab.records import read_rows
from lab.report import LAB

SHEETS = LAB / "sheets"


def test_words_are_named_by_number_and_by_prefix():
    assert spans_of("in the city, in black", "in#2 city cit* bla*") == {(13, 15), (7, 11), (16, 21)}
    for name in ("in", "in#3", "town", "in#0"):
        with pytest.raises(ValueError, match=f"'{name}' must name one word of 'in the city, in black'"):
            spans_of("in the city, in black", name)


def test_interval_by_hand():
    assert wilson(8, 10) == pytest.approx((0.490, 0.943), abs=0.001)
    assert wilson(0, 0) == (0, 1)


def test_marks_under_labels():
    labels = [Labels(sure={(0, 1)}, borderline={(2, 3)}), Labels(set(), set())]
    counts = marks_under(labels, [{(0, 1), (2, 3), (4, 5)}, set()])
    assert counts == {"named": 1, "borderline named": 1, "marks": 3, "right": 1, "borderline": 1}
    marks = {"left out": dict.fromkeys(("sure", "likely", "all"), counts)}
    shown = table([{"sheet": "s", "translations": 1, "marks": marks}])
    assert "| 1 (1) | 1 of 3 | 1 of 3 | 0.33 [0.06, 0.79] | 1.00 | 1 of 3 |  |" in shown


@pytest.mark.parametrize("sheet", sorted(SHEETS.glob("*.tsv")), ids=lambda path: path.stem)
def test_the_translations_contain_the_words_named_as_made_up(sheet):
    rows = read_rows(sheet)
    assert len({(row["text"], row["line"], row.get("word")) for row in rows}) == len(rows)
    for row in rows:
        if row["translation"].startswith("sha256:"):
            assert len(row["translation"]) == len(digest(""))
        else:
            made_up, borderline = (
                spans_of(row["translation"], row.get(name, "")) for name in ("made up", "made up, borderline")
            )
            assert not made_up & borderline
