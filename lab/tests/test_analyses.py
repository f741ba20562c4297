"""The analyses: each has a number from a record, and gains by length are over seeds."""

from lab.analyses import ANALYSES, CURVES, by_length, table
from lab.records import Records
from lab.report import LAB


def test_every_analysis_has_a_result_and_its_rows():
    text = table(Records(LAB / "results"))
    rows = [line.split("|")[1:-1] for line in text.splitlines()[2:] if line.startswith("|")]
    assert len(rows) == len(ANALYSES)
    assert all(cell.strip() for row in rows for cell in row)
    assert "Rows: `lab/results/studies.jsonl`, 11 of commits" in text


def test_gains_by_length_are_over_seeds(tmp_path, monkeypatch):
    """Gains of 1.2, 0.9 and 0.9 have a mean of 1 and a standard error of 0.1: t(2) = 4.30."""
    monkeypatch.setattr("lab.records.stamped", dict)  # the environment takes a quarter of a second for each
    records = Records(tmp_path)
    for curve in CURVES:
        for seed, gain in enumerate((1.2, 0.9, 0.9)):
            for run, score in ((curve.baseline, 20.0), (curve.run, 20 + gain)):
                words = {"hypothesis_words": 10 + (run == curve.run), "reference_words": 10.5}
                bins = [
                    {"label": label, "sentences": n, "score": score, **words} for label, n in (("0-9", 99), ("10+", 7))
                ]
                record = {"run": run, "seed": seed, "by_length": bins, "coverage_difference_ratio": score / 100}
                records.keep(curve.study, record)
    lines = by_length(records).splitlines()
    (row,) = [line for line in lines if "recurrent" in line and "0-9" in line]
    assert "| 99 | 20.00 | 21.00 | +1.00 [+0.57, +1.43] | 10.00 | +1.00 [+1.00, +1.00] | 10.50 |" in row
    assert not any("10+" in line for line in lines), "a bin of 7 sentences says nothing"
    (coverage,) = [line for line in lines if line.startswith("|") and "recurrent" in line and "0-9" not in line]
    assert coverage.endswith("| 0.200 | 0.210 | +0.010 [+0.006, +0.014] | 3 |")
