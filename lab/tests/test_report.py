"""The report in the repository is that of its results."""

import pytest

from lab import report
from lab.records import Records
from lab.report import LAB, fill, main

PAGE = LAB.parent / "docs" / "does-it-help.md"


def test_the_report_in_the_repository_is_that_of_its_results(tmp_path, monkeypatch):
    options = f"--report {tmp_path}/REPORT.md --page {tmp_path}/page.md --no-pictures"
    monkeypatch.setattr("sys.argv", ["lab.report", *options.split()])
    main()
    message = "run `python -m lab.report`"
    assert (tmp_path / "REPORT.md").read_text("utf-8") == (LAB / "REPORT.md").read_text("utf-8"), message
    assert (tmp_path / "page.md").read_text("utf-8") == PAGE.read_text("utf-8"), message
    deployment = PAGE.with_name("deployment.md").read_text("utf-8")
    assert (tmp_path / "deployment.md").read_text("utf-8") == deployment, message


def test_everything_is_drawn(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib").use("agg")
    options = f"--report {tmp_path}/REPORT.md --page {tmp_path}/page.md --pictures {tmp_path}/pictures"
    monkeypatch.setattr("sys.argv", ["lab.report", *options.split()])
    main()
    drawn = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.png") if path.stat().st_size > 5000}
    settings = {
        f"pictures/{setting}/{name}.png" for setting in ("embedded", "multi30k") for name in ("differences", "lengths")
    }
    assert drawn >= settings | {
        "page.png",
        "pictures/claims.png",
        "pictures/probing.png",
        "pictures/adequacy-de-en.png",
    }


def test_a_result_file_gets_a_line(tmp_path, monkeypatch):
    kept = tmp_path / "results"
    Records(kept).keep("embedded", {"run": "plain", "seed": 1})
    (tmp_path / "more.json").write_text('{"kind": "more"}')
    monkeypatch.setattr(report, "TEMPLATES", tmp_path)
    for name in ("REPORT.md", "does-it-help.md", "deployment.md"):
        (tmp_path / name).write_text("text\n")
    options = f"--results {kept} --keep {tmp_path}/more.json --report {tmp_path}/out.md --page {tmp_path}/page.md"
    monkeypatch.setattr("sys.argv", ["lab.report", *options.split(), "--no-pictures"])
    main()
    assert Records(kept).named("studies")["more"]["kind"] == "more"
    assert (tmp_path / "out.md").read_text() == "text\n"


def test_an_unknown_section_is_an_error(tmp_path):
    template = tmp_path / "template.md"
    template.write_text("# Title\n\n<!-- effects -->\n<!-- nothing -->\n<!-- A comment stays. -->\n")
    with pytest.raises(ValueError, match="no such section: nothing; there are claims, tables"):
        fill(template, Records(tmp_path))
