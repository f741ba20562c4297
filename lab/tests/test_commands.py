"""The laboratory's commands, run as a person runs them, on a few sentences."""

import json
from pathlib import Path

import pytest


def test_adequacy(command):
    sources, lines = (Path(name).read_text().splitlines() for name in ("test.en", "worse.hyp"))
    rows = zip(sources, lines, Path("test.de").read_text().splitlines(), strict=True)
    table = [f"{src}\t{mt}\t{ref}\t{int(n % 3 > 0)}\t0" for n, (src, mt, ref) in enumerate(rows)]
    Path("labelled.tsv").write_text("\n".join(["src\tmt\tref\tomission\tother", *table]) + "\n")
    Path("model.txt").write_text("".join(f"{-(n % 3)}\n" for n in range(40)))
    command(
        "adequacy",
        "--labelled labelled.tsv --any-of anything omission --align-with train.en train.de --scores own=model.txt "
        "--bootstrap 20 --cross-validate omission --output auc.json",
    )
    areas = json.loads(Path("auc.json").read_text())["auc"]
    assert "| shorter than its words | 4 |" in Path("auc.md").read_text()
    assert areas["own"]["omission"]["auc"] == 1.0
    assert areas["own"]["anything"] == areas["own"]["omission"]
    assert areas["uncovered source"]["omission"]["auc"] > 0.6
    assert "other" not in areas["own"]  # nothing has this label
    assert "| own | **1.000**" in Path("auc.md").read_text()


def test_align(command):
    Path("gold.text").write_text("the man sleeps . ||| der Mann schläft .\n")
    Path("gold.links").write_text("1-1 2-2 3-3 4p4\n")
    printed = command(
        "align", "--train train.en train.de --gold-text gold.text --gold gold.links --result result.json"
    )
    assert "Alignment error rate: 0.0" in printed
    assert json.loads(Path("result.json").read_text())["trained_on"] == {
        "files": ["train.en", "train.de"],
        "pairs": 300,
    }
    command("align", "--train train.en train.de --text test.en test.de --output test.links")
    links = Path("test.links").read_text().splitlines()
    assert len(links) == 40
    assert all("-" in line for line in links)


def test_wrong_input(command):
    with pytest.raises(SystemExit, match="nofile: no such file"):
        command("align", "--text nofile test.en")
