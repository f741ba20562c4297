"""The words that rules look for, from word_lists.json; model files for JavaScript have those of their two languages.

Each language of the file has numbers, tens and articles; the other lists may be absent.

    numbers             the words for 0 to 19, each with its forms, separated by spaces
    tens                the words for 20, 30, ... 100
    hundreds            the words for 200, 300, ... 900, if each is one word
    units_before_tens   what 21, 22, ... 29 begin with, if they are one word that ends in the one for 20
    months, weekdays    from January and from Monday on; Portuguese "segunda" is Monday or second
    weekday_endings     what a weekday may end in; not "e" in German, since "Montage" is assembly, too
    articles            those that may be the number one, too
    negation            see `NegationPatterns`; the alternatives are regular expressions for whole words
    translated_names    regular expressions for words with a capital that have a translation, such as "Germany"; only
                        of languages that write other nouns in lower case

Other lists are for all languages.

    month_verbs         months that are verbs, too
    half_hours          words before an hour: German "halb acht" and Dutch "half acht" are half past seven
    afternoon           regular expressions for what adds 12 to an hour
    units               regular expressions for units of both systems; what is converted has another number
    large_numbers       regular expressions for parts of larger numbers: "oitocentos", "half past two"
    signs               parts of words, and other signs, that stand for each sign, in any language
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
    """The words of a language: values by word for numbers, months and weekdays; the articles; patterns of negation.

    translated_names: the pattern of names that have a translation.
    """

    numbers: Mapping[str, int]
    months: Mapping[str, int]
    weekdays: Mapping[str, int]
    articles: frozenset[str]
    negation: NegationPatterns | None
    translated_names: str | None


class CheckWords(NamedTuple):
    """The words that rules look for: `languages` by their two-letter codes, and those of all languages."""

    languages: Mapping[str, LanguageWords]
    month_verbs: Sequence[str]
    half_hours: Sequence[str]
    afternoon: str
    units: Sequence[str]
    large_number: str
    sign_names: Mapping[str, Sequence[str]]


NO_WORDS = LanguageWords({}, {}, {}, frozenset(), None, None)


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
        [_whole_words(units) for units in lists["units"].values()],
        "|".join([*lists["large_numbers"], *tens, *teens]),
        lists["signs"],
    )


def _language_words(lists: Mapping[str, Any]) -> LanguageWords:
    negation, names = lists.get("negation"), lists.get("translated_names")
    numbers = _values(lists["numbers"], range(20)) | _values(lists.get("hundreds", ()), range(200, 901, 100))
    for ten, forms in zip(range(20, 101, 10), lists["tens"], strict=True):
        beginnings = lists.get("units_before_tens", ()) if ten < 100 else ()
        compounds = (" ".join(beginning + form for form in forms.split()) for beginning in beginnings)
        numbers |= _values([forms, *compounds], range(ten, ten + 10))
    return LanguageWords(
        numbers,
        _values(lists.get("months", ()), range(1, 13)),
        _values(lists.get("weekdays", ()), range(1, 8), ("", *lists.get("weekday_endings", ()))),
        frozenset(lists["articles"]),
        negation and NegationPatterns(**{name: _whole_words(words) for name, words in negation.items()}),
        names and _whole_words([alternative for line in names for alternative in line.split()]),
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
