"""The word lists: complete, and read only when a rule runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from capsule_mt.checks.word_lists import NO_WORDS, PATH, words_in

LISTS = json.loads(Path(PATH).read_text(encoding="utf-8"))
LENGTHS = {"numbers": 20, "tens": 9, "months": 12, "weekdays": 7}
OPTIONAL_LENGTHS = {"hundreds": 8, "units_before_tens": 9}
KEYS = {*LENGTHS, *OPTIONAL_LENGTHS, "weekday_endings", "articles", "negation", "translated_names"}


@pytest.mark.parametrize("language", LISTS["languages"])
def test_lists_of_a_language(language):
    """A list that lacks an entry would shift the values of those after it."""
    lists = LISTS["languages"][language]
    assert KEYS >= lists.keys() >= {"numbers", "tens", "articles"}
    all_lengths = LENGTHS | OPTIONAL_LENGTHS
    lengths = {key: len(lists[key]) for key in all_lengths if key in lists}
    assert lengths == {key: all_lengths[key] for key in lengths}
    words = words_in(language)
    assert words.numbers[lists["tens"][-1].split()[0]] == 100
    values = {*range(101)} if "units_before_tens" in lists else {*range(21), *range(30, 101, 10)}
    assert {*words.numbers.values()} == values | ({*range(200, 901, 100)} if "hundreds" in lists else set())
    assert all(re.compile(pattern) for pattern in words.negation)


def test_compounds():
    german, portuguese = words_in("de").numbers, words_in("pt").numbers
    assert (german["vierundzwanzig"], german["einunddreißig"], german["neunhundert"]) == (24, 31, 900)
    assert (portuguese["cento"], portuguese["duzentas"]) == (100, 200)
    assert "einundhundert" not in german


def test_a_language_without_lists():
    assert words_in("ja") == words_in(None) == NO_WORDS


def test_the_file_is_read_by_the_first_rule():
    code = """
import sys

opened = []
sys.addaudithook(lambda event, details: opened.append(str(details[0])) if event == "open" else None)
from capsule_mt.checks.rules import checks_of

for text, translation in ("", ""), ("Two.", "Zwei."), ("Three.", "Drei."):
    checks_of(text, translation, "en", "de")
    print(sum(path.endswith("word_lists.json") for path in opened))
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert output.stdout.split() == ["0", "1", "1"]
