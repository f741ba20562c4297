"""The rules about numbers: in digits, in words and in Roman numerals, in either language's form.

Digits are not compared where units are converted: one text has imperial ones, and the other metric ones instead.
"""

import operator
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from capsule_mt.checks.named_values import MAX_SMALL_NUMBER, number_word_checks
from capsule_mt.checks.number_forms import (
    ROMAN_NUMERAL,
    NumberPool,
    integer_of,
    keys_of,
    number_matches,
    numbers_in,
    related_numbers,
    roman_value,
    same_time,
    values_of,
)
from capsule_mt.checks.results import Check
from capsule_mt.checks.texts import CheckedText
from capsule_mt.checks.word_lists import check_words

TIME_OR_DATE = re.compile(r"(?<![0-9])[0-9]+(?:[.:/-][0-9]+){1,2}(?![0-9])")
# For numbers that change places: in a longer text or phrase, their words may have moved, too.
MAX_SWAP_TEXT, MAX_SWAP_PHRASE = 15, 3
YEAR = re.compile(r"1\d{3}|20\d\d")
PARTS_OF_DATE = re.compile(r"[0-9]+[.-][0-9]+[.-][0-9]|(?<=[0-9][.-])[0-9]+[.-][0-9]")  # not of pages "5-7"


class PairedNumbers(NamedTuple):
    """The numbers in digits that only one text has.

    indices: of each other number of the source, among the numbers of the translation.
    """

    missing: list[str]
    added: list[str]
    indices: list[int]


def number_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield numbers that one text lacks, numbers that change places, and small numbers in words that change."""
    numbers = _paired_numbers(source, translation)
    yield from _digit_checks(numbers, source, translation)
    # not beside unpaired digits, which may stand for a number word of the other text
    if not numbers.missing and not numbers.added:
        yield from number_word_checks(source, translation)


def digit_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield numbers in digits that the other text lacks in digits, words or Roman numerals, or that change places."""
    return _digit_checks(_paired_numbers(source, translation), source, translation)


def _paired_numbers(source: CheckedText, translation: CheckedText) -> PairedNumbers:
    missing, indices, target_numbers = [], [], NumberPool(numbers_in(translation.prose), values_of)
    for number in numbers_in(source.prose):
        index = target_numbers.first(values_of(number))
        if index is None:
            missing.append(number)
        else:
            target_numbers.remove(index)
            indices.append(index)
    return PairedNumbers(missing, target_numbers.remaining(), indices)


def _digit_checks(numbers: PairedNumbers, source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    if not numbers.missing and not numbers.added:
        yield from _swap_checks(source, translation, numbers.indices)
        return
    if _is_converted(source, translation):
        return
    # once in each direction: a word of the other language may stand for a number of either text
    missing, added = _unexplained(numbers.missing, numbers.added, source, translation)
    added, missing = _unexplained(added, missing, translation, source)
    for number in _joined(missing, source.prose):
        yield Check("numbers", number, "")
    # a source that writes a large number in words may account for any larger number of its translation
    if added and re.search(check_words().large_number, source.prose, re.IGNORECASE):
        added = [number for number in added if integer_of(re.sub(r"\D", "", number)) <= MAX_SMALL_NUMBER]
    for number in _joined(added, translation.prose):
        yield Check("numbers", "", number)


def _is_converted(source: CheckedText, translation: CheckedText) -> bool:
    """Return whether only one text has imperial units, and the other one metric units instead."""
    units = check_words().units
    has_units, has_target_units = (
        [re.search(pattern, text.prose, re.IGNORECASE) is not None for pattern in units]
        for text in (source, translation)
    )
    return any(has_units) and any(has_target_units) and not any(map(operator.and_, has_units, has_target_units))


def _swap_checks(source: CheckedText, translation: CheckedText, indices: Sequence[int]) -> Iterator[Check]:
    """Yield the phrases of two adjacent numbers that change places, as in "12 to 30" and "30 a 12".

    Parts of a date have another order in some languages. A year moves with its preposition. Languages without a list
    of number words are not checked: of Japanese, for example, the order of words was not measured.

    indices: of each number of the source, among the numbers of the translation.
    """
    swaps = [index for index, pair in enumerate(pairwise(indices)) if pair[0] == pair[1] + 1]
    if not swaps or not (source.vocabulary.numbers and translation.vocabulary.numbers):
        return
    texts = source.prose, translation.prose
    numbers, target_numbers = ([*number_matches(text)] for text in texts)
    is_short = max(len(text.split()) for text in texts) <= MAX_SWAP_TEXT
    for index in swaps:
        phrase = texts[0][numbers[index].start() : numbers[index + 1].end()]
        target_phrase = texts[1][target_numbers[indices[index + 1]].start() : target_numbers[indices[index]].end()]
        is_close = max(len(phrase.split()), len(target_phrase.split())) <= MAX_SWAP_PHRASE
        num_years = sum(YEAR.fullmatch(number[0]) is not None for number in numbers[index : index + 2])
        is_date = "/" in phrase or PARTS_OF_DATE.match(texts[0], numbers[index].start()) is not None
        if (is_close or (is_short and num_years != 1)) and not is_date:
            yield Check("numbers", phrase, target_phrase)


def _joined(numbers: Sequence[str], text: str) -> list[str]:
    """Join numbers that are the parts of a time or a date, as in "17:45" or "31/12/2026"."""
    if len(numbers) < 2:
        return list(numbers)
    whole = {tuple(re.findall(r"\d+", match[0])): match[0] for match in TIME_OR_DATE.finditer(text)}
    joined, index = list[str](), 0
    while index < len(numbers):
        length = next((length for length in (3, 2) if tuple(numbers[index : index + length]) in whole), 1)
        parts = tuple(numbers[index : index + length])
        joined.append(whole.get(parts, parts[0]))
        index += length
    return joined


def _unexplained(
    numbers: Sequence[str], other_numbers: Sequence[str], text: CheckedText, other_text: CheckedText
) -> tuple[list[str], list[str]]:
    """Return the numbers without an equivalent in the other text, and the other numbers without one in this text."""
    missing = list[str]()
    if not numbers:
        return missing, list(other_numbers)
    remaining = NumberPool(other_numbers, keys_of)
    # number words that only the other text has: one that both have is not the equivalent of a number in digits
    word_values = _values_in_words(other_text) - _values_in_words(text)
    word_values[1] -= sum(word.casefold() in text.vocabulary.articles for word in text.words)
    afternoons = _mentions_afternoon(text), _mentions_afternoon(other_text)
    has_whole_hours = re.search(r"\d[:h]00", text.prose) is not None
    for number in numbers:
        time_indices = same_time(number, remaining, *afternoons)
        if time_indices:
            remaining.remove(*time_indices)
            continue
        if number == "00" and has_whole_hours:  # "10:00" or "10h00", and "10h"
            continue
        value = integer_of(number) if number.isdecimal() else -1
        index = remaining.first(related_numbers(value, *afternoons))
        if index is not None:
            remaining.remove(index)
        elif word_values[value] > 0:
            word_values[value] -= 1
        else:
            missing.append(number)
    return missing, remaining.remaining()


def _values_in_words(text: CheckedText) -> Counter[int]:
    """Count the values of the number words and Roman numerals in a text."""
    values = Counter(map(roman_value, ROMAN_NUMERAL.findall(text.prose)))
    value_of_word = text.vocabulary.numbers
    values.update(value_of_word[word.casefold()] for word in text.words if word.casefold() in value_of_word)
    return values


def _mentions_afternoon(text: CheckedText) -> bool:
    return re.search(check_words().afternoon, text.prose, re.IGNORECASE) is not None
