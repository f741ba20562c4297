"""Each of our operators computes what other people's code computes, and has the same gradients."""

import re

import pytest
import torch

from tests.authors.comparisons import (
    LIMIT,
    OPERATORS,
    PAGE,
    Comparison,
    differences,
    guided,
    held,
    load,
    page_with_table,
    simple,
    table,
)

COMPARISONS = [comparison for operator in OPERATORS for comparison in operator.comparisons]


def compared(name: str) -> Comparison:
    return next(comparison for comparison in COMPARISONS if comparison.numbers == name)


@pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda comparison: comparison.numbers)
def test_outputs_and_gradients_are_theirs(comparison):
    output, gradient = differences(comparison)
    assert output <= LIMIT
    assert gradient <= LIMIT


@pytest.mark.parametrize(
    ("numbers", "compute"),
    [("gdr_released", guided("printed")), ("gdr_printed", guided("released")), ("gdr_dynamic", simple)],
)
def test_another_form_is_told_apart(numbers, compute):
    output, gradient = differences(compared(numbers)._replace(compute=compute))
    assert output > 1e-3
    assert gradient > 1e-3


@pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda comparison: comparison.numbers)
def test_every_input_has_a_gradient(comparison):
    record = load(comparison.numbers)
    assert record["gradients"].keys() == record["inputs"].keys()
    for gradient in record["gradients"].values():
        assert torch.tensor(gradient).abs().max() > 1e-4


def test_files_name_their_source():
    for comparison in COMPARISONS:
        record = load(comparison.numbers)
        assert all(record[field] for field in ("repository", "commit", "licence", "function", "settings"))


def test_nine_of_ten_operators_are_held_to_code_by_others():
    assert len(OPERATORS) == 10
    assert sum(map(held, OPERATORS)) == 9
    assert "9 of 10 operators held to code by others" in table()


def test_the_page_has_the_table():
    """Apart from the differences, which are others on another processor. After a change: python -m tests.authors."""
    pages = PAGE.read_text(encoding="utf-8"), page_with_table()
    written, computed = (re.sub(r"\| \d+e-\d+, \d+e-\d+ \|", "", page) for page in pages)
    assert written == computed
