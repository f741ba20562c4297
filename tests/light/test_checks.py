"""Faults that rules find in a translation: numbers, signs, placeholders, negations and the like."""

import pytest

from capsule_mt.coverage.checks import checks_of, values_of
from capsule_mt.coverage.results import Check
from tests.fixtures.vectors import vectors

# removed one at a time from a translation: each must be marked
KEPT = ["7", "1,250", "3.5", "£", "%", "{name}", "%s", "<b>", "https://example.org/a"]


@pytest.mark.parametrize("case", vectors("checks")["cases"], ids=repr)
def test_rules(case):
    checks = checks_of(case["source"], case["translation"], *case["languages"])
    assert [[check.kind, check.missing, check.added] for check in checks] == case["checks"]


@pytest.mark.parametrize("lost", KEPT)
def test_nothing_is_lost_without_a_mark(lost):
    text = f"Bring {' and '.join(KEPT)} home."
    complete = f"Bringe {' und '.join(KEPT)} heim."
    assert checks_of(text, complete, "en", "de") == ()
    checks = checks_of(text, complete.replace(lost, "", 1), "en", "de")
    assert lost in {check.missing for check in checks}


def test_values_of_a_number():
    assert values_of("1.234") == {"1234", "1.234"}
    assert values_of("1,234.50") == values_of("1.234,5") == values_of("1 234,50") == {"1234.5"}
    assert values_of("1,23") == {"1.23"}
    assert values_of("007") == {"7"}


def test_digits_of_other_scripts_are_digits():
    assert checks_of("CO₂ ٣", "CO2 3") == ()
    assert checks_of("CO₂ ٣", "CO2") == (Check("numbers", "3", ""),)


def test_a_number_of_thousands_of_digits_is_a_number():
    digits = "7" * 5000
    assert checks_of(f"Call {digits}.", f"Ruf {digits} an.", "en", "de") == ()
    assert checks_of("Call us.", f"Ruf {digits} an.", "en", "de") == (Check("numbers", "", digits),)
    assert checks_of(f"Call {digits}.", "Ruf an.", "en", "de") == (Check("numbers", digits, ""),)


def test_the_afternoon_explains_whole_hours_only():
    assert checks_of("It starts at 5 p.m.", "Começa às 17.", "en", "pt") == ()
    checks = checks_of("It starts at 5.30 p.m.", "Começa às 11.", "en", "pt")
    assert checks == (Check("numbers", "5.30", ""), Check("numbers", "", "11"))
