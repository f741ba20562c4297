"""Results and translations on lines, tables: read back as written; the report shows its results."""

import json
from pathlib import Path

import pytest

from lab.records import Records, read_rows
from lab.report import LAB, main

SENTENCES = ["ein Satz", "", "noch | einer\t"]


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "new")


def run_of(run, seed, bleu):
    return {"run": run, "seed": seed, "scores": {"bleu": {"score": bleu}}}


def test_runs_and_names_are_sorted_and_replaced(records):
    for record in (
        run_of("plain", 10, 1.0),
        {"name": "speeds", "models": {}},
        run_of("plain", 2, 2.0),
        run_of("em", 1, 3.0),
    ):
        records.keep("embedded", record)
    records.keep("embedded", run_of("plain", 2, 4.0))
    lines = [json.loads(line) for line in records.path("embedded").read_text().splitlines()]
    assert [(line.get("run"), line.get("seed")) for line in lines] == [
        ("em", 1),
        ("plain", 2),
        ("plain", 10),
        (None,) * 2,
    ]
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


DOCS = LAB.parent / "docs"


def test_the_report_in_the_repository_is_that_of_its_results(tmp_path, monkeypatch):
    options = f"--report {tmp_path}/REPORT.md --picture {tmp_path}/does-it-help.svg"
    monkeypatch.setattr("sys.argv", ["lab.report", *options.split()])
    main()
    message = "run `python -m lab.report`"
    for name in ("REPORT.md", "does-it-help.svg", "speed.md"):
        folder = LAB if name == "REPORT.md" else DOCS
        assert (tmp_path / name).read_text("utf-8") == (folder / name).read_text("utf-8"), message
