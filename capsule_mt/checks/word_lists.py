"""The words that rules look for, from word_lists.json; model files for JavaScript have those of their two languages.

Each language of the file has numbers, tens and articles; the other lists may be absent.

    numbers             the words for 0 to 19, each with its forms, separated by spaces
    tens                the words for 20, 30, ... 100
    months, weekdays    from January and from Monday on; Portuguese "segunda" is Monday or second
    weekday_endings     what a weekday may end in; not "e" in German, since "Montage" is assembly, too
    articles            those that may be the number one, too
    negation            see `NegationPatterns`; the alternatives are regular expressions for whole words

Other lists are for all languages.

    month_verbs         months that are verbs, too
    half_hours          words before an hour: German "halb acht" and Dutch "half acht" are half past seven
    afternoon           regular expressions for what adds 12 to an hour
    large_numbers       regular expressions for parts of larger numbers: "trezentos", "half past two"
    signs               parts of words that stand for each sign, in any language
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

PATH = os.path.join(os.path.dirname(__file__), "word_lists.json")
NOTHING = r"(?!)"  # matches no text
TEENS = slice(13, None)  # of `numbers`; these are parts of larger numbers, too: "thirteen hundred"


class NegationPatterns(NamedTuple):
    """Patterns of words in a language.

    sure: words that negate.
    firm: words that may translate a negation, `sure` ones included.
    weak: words that may translate one, but do so in few texts, such as those that begin with "in".
    """

    sure: str
    firm: str
    weak: str = NOTHING


class LanguageWords(NamedTuple):
    """The words of a language: values by word for numbers, months and weekdays; the articles; patterns of negation."""

    numbers: Mapping[str, int]
    months: Mapping[str, int]
    weekdays: Mapping[str, int]
    articles: frozenset[str]
    negation: NegationPatterns | None


class CheckWords(NamedTuple):
    """The words that rules look for: `languages` by their two-letter codes, and those of all languages."""

    languages: Mapping[str, LanguageWords]
    month_verbs: Sequence[str]
    half_hours: Sequence[str]
    afternoon: str
    large_number: str
    sign_names: Mapping[str, Sequence[str]]


NO_WORDS = LanguageWords({}, {}, {}, frozenset(), None)


def words_in(language: str | None) -> LanguageWords:
    """Return the words of a language, given as a two-letter code; no words if the file lacks it."""
    return check_words().languages.get(language or "", NO_WORDS)


@cache
def check_words() -> CheckWords:
    """Read the file."""
    with open(PATH, encoding="utf-8") as stream:
        lists = json.load(stream)
    languages = lists["languages"]
    tens = [word for words in languages.values() for word in words["tens"]]
    teens = [word for words in languages.values() for word in words["numbers"][TEENS]]
    return CheckWords(
        {language: _language_words(words) for language, words in languages.items()},
        lists["month_verbs"],
        lists["half_hours"],
        "|".join(lists["afternoon"]),
        "|".join([*lists["large_numbers"], *tens, *teens]),
        lists["signs"],
    )


def _language_words(lists: Mapping[str, Any]) -> LanguageWords:
    negation = lists.get("negation")
    return LanguageWords(
        _values(lists["numbers"], range(20)) | _values(lists["tens"], range(20, 101, 10)),
        _values(lists.get("months", ()), range(1, 13)),
        _values(lists.get("weekdays", ()), range(1, 8), ("", *lists.get("weekday_endings", ()))),
        frozenset(lists["articles"]),
        negation and NegationPatterns(**{name: _whole_words(words) for name, words in negation.items()}),
    )


def _values(names: Sequence[str], values: Iterable[int], endings: Sequence[str] = ("",)) -> dict[str, int]:
    """Return the value of each form of each name, with each ending."""
    return {
        form + ending: value
        for forms, value in zip(names, values, strict=False)
        for form in forms.split()
        for ending in endings
    }


def _whole_words(alternatives: Sequence[str]) -> str:
    return rf"\b(?:{'|'.join(alternatives)})\b"
