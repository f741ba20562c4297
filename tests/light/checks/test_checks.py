"""Faults that rules find in a translation: numbers, signs, placeholders, negations and the like."""

import random
import sys
from typing import get_args

import pytest

from capsule_mt.checks.certain import certain_faults, count_certain_faults, has_invented_mark
from capsule_mt.checks.names import _similarity
from capsule_mt.checks.number_forms import values_of
from capsule_mt.checks.repeated_words import _longest_run
from capsule_mt.checks.results import Check, CheckKind
from capsule_mt.checks.rules import checks_of
from capsule_mt.coverage.reasons import REASONS
from tests.fixtures.vectors import vectors

# removed one at a time from a translation: each must be marked
ITEMS = ["7", "1,250", "3.5", "£", "%", "{name}", "%s", "<b>", "https://example.org/a"]


@pytest.mark.parametrize("case", vectors("checks")["cases"], ids=repr)
def test_rules(case):
    checks = checks_of(case["source"], case["translation"], *case["languages"])
    assert [[check.kind, check.missing, check.added] for check in checks] == case["checks"]


@pytest.mark.parametrize("case", vectors("certain")["cases"], ids=repr)
def test_certain_faults(case):
    source, translation = case["source"], case["translation"]
    assert count_certain_faults(source, translation, ("en", "de")) == case["faults"]
    assert has_invented_mark(source, translation) == case["invented"]


def test_every_kind_has_a_case_and_a_message():
    kinds = {kind for case in vectors("checks")["cases"] for kind, *_ in case["checks"]}
    assert kinds == {*get_args(CheckKind)}
    assert kinds <= REASONS.keys()


def test_certain_faults_are_checks():
    for case in vectors("checks")["cases"]:
        pair = case["source"], case["translation"]
        faults = certain_faults(*pair, tuple(case["languages"]))
        assert {*faults} <= {*checks_of(*pair, *case["languages"])}


@pytest.mark.parametrize("lost", ITEMS)
def test_nothing_is_lost_without_a_mark(lost):
    text = f"Bring {' and '.join(ITEMS)} home."
    complete = f"Bringe {' und '.join(ITEMS)} heim."
    assert checks_of(text, complete, "en", "de") == ()
    checks = checks_of(text, complete.replace(lost, "", 1), "en", "de")
    assert lost in {check.missing for check in checks}


def test_a_text_of_another_type_is_named():
    with pytest.raises(TypeError, match=r"`source` must be a string, got a NoneType"):
        checks_of(None, "Gut.")
    with pytest.raises(TypeError, match=r"`translation` must be a string, got a list"):
        checks_of("Good.", ["Gut."])


@pytest.mark.parametrize("pair", [("a", "a"), ("Mosca", "Moscou"), ("Ana", "Otto"), ("Schröder", "Schroeder")])
def test_similarity_is_of_the_longest_common_subsequence(pair):
    def longest(first, second):
        if not first or not second:
            return 0
        if first[0] == second[0]:
            return 1 + longest(first[1:], second[1:])
        return max(longest(first[1:], second), longest(first, second[1:]))

    assert _similarity(*pair) == 2 * longest(*pair) / sum(map(len, pair))


def test_values_of_a_number():
    assert values_of("1.234") == {"1234", "1.234"}
    assert values_of("1,234.50") == values_of("1.234,5") == values_of("1 234,50") == {"1234.5"}
    assert values_of("1,23") == {"1.23"}
    assert values_of("007") == {"7"}
    assert values_of(".04") == {".04", "4"}


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


@pytest.mark.parametrize("pair", [("It ends at 5.30 p.m.", "Termina às 17h30."), ("At 5.30 p.m.", "Às 17.30.")])
def test_a_time_has_hours_and_minutes(pair):
    source, translation = pair
    assert checks_of(source, translation, "en", "pt") == ()
    assert checks_of(translation, source, "pt", "en") == ()
    for other_time in ("17h45", "18h30", "17.45", "18.30"):
        wrong = translation.replace("17h30", other_time).replace("17.30", other_time)
        assert {check.kind for check in checks_of(source, wrong, "en", "pt")} == {"numbers"}


def test_a_missing_time_or_date_is_one_number():
    lines = "Our train leaves at 17:45 from platform 6.", "Nosso trem sai da plataforma 6."
    assert checks_of(*lines) == (Check("numbers", "17:45", ""),)
    assert checks_of(*reversed(lines)) == (Check("numbers", "", "17:45"),)
    assert checks_of("Am 31/12/2026 um 9:30 und 8:15.", "Then.")[:2] == (
        Check("numbers", "31/12/2026", ""),
        Check("numbers", "9:30", ""),
    )
    # only a part of it is missing
    assert checks_of("At 17:45.", "Às 18:45.") == (Check("numbers", "17", ""), Check("numbers", "", "18"))


def test_whole_hours_need_no_minutes():
    assert checks_of("It ends at 5.00 p.m.", "Termina às 17h.", "en", "pt") == ()


@pytest.mark.parametrize(
    ("source", "translation", "checks"),
    [
        ("a (b) c", "a (b (c", [(")", "(")]),
        ("a (b) c", "a b) c)", [("(", ")")]),
        ("a (b) c", "a b c", [("()", "")]),
        ("a b c", "a (b) c", [("", "()")]),
        ("a (b (c", "a b c", []),
    ],
)
def test_brackets(source, translation, checks):
    assert [(check.missing, check.added) for check in checks_of(source, translation)] == checks


def test_a_phrase_that_the_source_doubles_accounts_for_itself():
    source, translation = "Ha ha, said Mary.", "Ha ha, sagte Mary Mary."
    assert checks_of("Haha haha, said Mary.", "Haha haha, sagte Maria Maria.") == (Check("doubled", "", "maria"),)
    assert checks_of(source, translation) == (Check("doubled", "", "mary"),)
    assert checks_of("Very very good.", "Muito muito bom.") == ()


def _longest_run_in_plain_loops(words, target_words):
    runs = [
        (length, -end)
        for end in range(len(words) + 1)
        for length in range(end + 1)
        if any(words[end - length : end] == target_words[i : i + length] for i in range(len(target_words) + 1))
    ]
    length, end = max(runs)
    return words[-end - length : -end] if length else []


@pytest.mark.parametrize("seed", range(50))
def test_the_longest_run_of_both_texts(seed):
    rng = random.Random(seed)
    words, target_words = (rng.choices("abcdefg"[: rng.randint(4, 7)], k=rng.randint(4, 14)) for _ in range(2))
    if len(set(words) & set(target_words)) >= 4:
        assert [*_longest_run(words, target_words)] == _longest_run_in_plain_loops(words, target_words)


def test_the_longest_run_takes_linear_time():
    """If words repeat, plain loops take quadratic or cubic time."""

    class Word(str):
        num_compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            Word.num_compared += 1
            return str.__eq__(self, other)

    num_compared = []
    for num_words in (1000, 2000):
        Word.num_compared = 0
        words = [Word("abcd"[index % 4]) for index in range(num_words)]
        assert len(_longest_run(words, [Word(str(word)) for word in words])) == num_words
        num_compared.append(Word.num_compared)
    assert num_compared[1] < 2.2 * num_compared[0]


def _num_calls(function, *arguments):
    """Count the calls of functions and the steps of generators that a function takes."""
    num_calls = 0

    def count(frame, event, argument):
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return num_calls


# numbers that nothing accounts for, in all the forms that are looked up: times, whole hours, decimals, integers
@pytest.mark.parametrize("number", ["{hour}.45", "00", "{n},5", "{n}", "1{n}", "{n} {{name}}"])
def test_numbers_take_linear_time(number):
    def check(num_numbers):
        source = " and ".join(number.format(hour=n % 12, n=n) for n in range(num_numbers))
        translation = " und ".join(f"{n % 7 + 13}.30 {n + 1 / 3:.6f} {30 + n % 20}" for n in range(num_numbers))
        checks_of(f"At 5 p.m.: {source}", f"Abends: {translation}", "en", "de")

    check(10)
    assert _num_calls(check, 400) < 2.2 * _num_calls(check, 200)
