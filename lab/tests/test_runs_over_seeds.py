"""Any row against any other, by results and translations as `lab.reproduce` keeps them."""

import pytest

from lab.bootstrap_over_seeds import bootstrap_over_seeds
from lab.records import Records
from lab.runs_over_seeds import RunsOverSeeds

REFERENCE = [f"the {n} cats sat on their {n + 1} mats ." for n in range(20)]
HALF = [line if n % 2 else "a dog" for n, line in enumerate(REFERENCE)]
NEARLY = [line if n % 5 else "a dog" for n, line in enumerate(REFERENCE)]


@pytest.fixture
def runs(tmp_path) -> RunsOverSeeds:
    """`better` and `worse` with seeds 1, 2 and 10, of the last no translations of `worse`; `one` with seed 2."""

    records = Records(tmp_path)

    def keep(run: str, seed: int, bleu: float, lines: list[str] | None) -> None:
        result = {"kind": "reproduction", "run": run, "seed": seed, "scores": {"bleu": {"score": bleu}}}
        records.keep("embedded", result)
        if lines:
            records.keep_translations("embedded", run, seed, lines)

    keep("better", 1, 43.0, NEARLY)
    keep("better", 2, 41.0, NEARLY)
    keep("better", 10, 90.0, REFERENCE)
    keep("worse", 1, 41.0, HALF)
    keep("worse", 2, 40.0, HALF)
    keep("worse", 10, 10.0, None)
    keep("one", 2, 42.5, NEARLY)
    return RunsOverSeeds(records, "embedded")


def test_seeds_are_those_that_both_have(runs):
    assert runs.seeds_of_both("better", "worse") == [1, 2]
    assert runs.seeds_of_both("worse", "one") == [2]
    assert runs.seeds_of_both("better", "better") == [1, 2, 10]
    assert runs.seeds_of_both("better", "unknown") == []


def test_table_by_hand(runs):
    seen: list[str] = []
    asked = (seen.append(run) or run for run in ["better", "worse", "unknown", "one"])  # a progress bar may count them
    table = runs.table(asked, "worse", REFERENCE)
    assert seen == ["better", "worse", "unknown", "one"]
    difference, p_value = bootstrap_over_seeds([NEARLY, NEARLY], [HALF, HALF], [REFERENCE])
    assert p_value < 0.05
    # over seeds: t = 1.5 / sqrt(0.5) * sqrt(2) = 3 with one degree of freedom; p = 1 - 2 / pi * atan(3)
    means = f"| {difference:+.2f} | {p_value:.3f} | 0.205 |"
    header, _, *lines = table.splitlines()
    assert "BLEU of worse" in header
    assert lines[0] == f"| better | 1 / 2 | 43.00 / 41.00 | 41.00 / 40.00 | +2.00 / +1.00 {means}"
    assert lines[1].startswith("| one | 2 | 42.50 | 40.00 | +2.50 |")
    assert lines[1].endswith("|  |")  # one seed says nothing of others
    assert len(lines) == 2
    assert runs.table(["worse", "unknown"], "worse", REFERENCE) == ""
