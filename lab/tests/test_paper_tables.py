"""The tables as data, and as Markdown beside our results."""

import pytest

from lab.effects import METHODS, published
from lab.paper_tables import RUNS, TABLES
from lab.replication import NO_RATE, PLANS, RUNNING_PLANS


def test_every_row_is_a_run_that_exists():
    for key, table in TABLES.items():
        assert table.rows, key
        for row in table.rows:
            assert row.run is None or row.run in RUNS, (key, row)
            assert row.baseline is None or row.baseline in RUNS, (key, row)
            assert set(row.printed) <= set(table.columns)
    for run in RUNS.values():
        assert set(run.needs) <= set(RUNS)
    used = {row.run for table in TABLES.values() for row in table.rows} - {None}
    runs = {run for plan in RUNNING_PLANS for run in PLANS[plan].runs if not run.endswith(NO_RATE)}
    planned = {name for run in runs for name in (run, *RUNS[run].needs)}
    assert set(RUNS) == used | planned, "a run that no table uses, or the other way round"


def test_gains_are_differences_of_what_the_papers_print():
    printed = {method.run: published(method) for method in METHODS}
    assert printed["em_routing"] == pytest.approx(28.81 - 27.31)
    assert printed["capsnmt"] == pytest.approx(25.7 - 21.3)  # to pooling, not to the plain model
    assert printed["rnmt_gdr"] == pytest.approx(38.45 - 36.61)
    assert all(value is not None and value > 0 for value in printed.values()), "the papers claim gains"
