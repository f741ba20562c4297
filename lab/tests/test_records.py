"""Results and translations on lines, tables: read back as written; the report shows its results."""

import json
from pathlib import Path

import pytest

from lab.records import Records, read_rows
from lab.report import DOCS, LAB, SECTION, main

SENTENCES = ["ein Satz", "", "noch | einer\t"]


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "new")


def run_of(run, seed, bleu):
    return {"run": run, "seed": seed, "scores": {"bleu": {"score": bleu}}}


def test_runs_and_names_are_sorted_and_replaced(records):
    for record in (run_of("plain", 10, 1.0), {"name": "speeds"}, run_of("plain", 2, 2.0), run_of("em", 1, 3.0)):
        records.keep("embedded", record)
    records.keep("embedded", run_of("plain", 2, 4.0))
    lines = [json.loads(line) for line in records.path("embedded").read_text().splitlines()]
    keys = [(line.get("run"), line.get("seed")) for line in lines]
    assert keys == [("em", 1), ("plain", 2), ("plain", 10), (None, None)]
    assert records.run("embedded", "plain", 2)["scores"]["bleu"]["score"] == 4.0
    assert records.run("embedded", "plain", 3) is None
    assert list(records.named("embedded")) == ["speeds"]
    assert set(records.runs("embedded")) == {"em", "plain"}
    assert records.read("nothing") == []
    assert records.runs("nothing") == {}


def test_translations(records):
    assert records.translations("embedded") == {}
    records.keep_translations("embedded", "plain", 1, SENTENCES)
    records.keep_translations("embedded", "em", 2, ["kürzer\u2028"])  # another test set
    assert records.translations("embedded") == {("plain", 1): SENTENCES, ("em", 2): ["kürzer\u2028"]}


def test_a_table_says_where_it_is_broken(tmp_path: Path) -> None:
    (tmp_path / "table").write_text('src\tmt\nein "Wort\tone\n')
    assert read_rows(tmp_path / "table") == [{"src": 'ein "Wort', "mt": "one"}]
    (tmp_path / "table").write_text("src\tmt\nein\n")
    with pytest.raises(ValueError, match="table:2: has 1 columns, but the header has 2"):
        read_rows(tmp_path / "table")


def test_the_report_in_the_repository_is_that_of_its_results(tmp_path, monkeypatch):
    pages = {"REPORT.md": LAB, "does-it-help.svg": DOCS}
    monkeypatch.setattr(
        "sys.argv", f"lab.report --report {tmp_path}/REPORT.md --picture {tmp_path}/does-it-help.svg".split()
    )
    main()
    for name, folder in pages.items():
        assert (tmp_path / name).read_text("utf-8") == (folder / name).read_text("utf-8"), "run `python -m lab.report`"


def test_the_prose_of_the_report_is_short():
    text = (LAB / "REPORT.md").read_text("utf-8")
    assert len(SECTION.sub("", text).split()) <= 3000
