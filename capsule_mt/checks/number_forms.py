"""The numbers in digits of a text, and other forms in which a translation may write them."""

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

# a number with its separators: "1,234.56", "1 234,56", "1'234", ".5"; a time or a date is several numbers
_DATE_END = r"\.(?:1\d|20)\d\d(?![.,]?\d)"
NUMBER = re.compile(
    rf"\d\d?(?=\.\d\d?{_DATE_END})|(?<=\d\.)\d\d?(?={_DATE_END})"  # "31.12.2026"
    r"|\d+(?:[\u00a0\u202f ]\d{3}(?!\d))+(?:[.,]\d+)?|\d+(?:[.,'\u2019]\d+)*|(?<![\w.,])[.,]\d+"
)
# digits of other scripts and of exponents compare as plain ones
OTHER_DIGIT = r"[\xb2\xb3\xb9\u2070\u2074-\u2079\u2080-\u2089]|(?![0-9\U00010000-\U0010ffff])\d"
HAS_DIGIT = re.compile(rf"[0-9]|{OTHER_DIGIT}")
TIME = re.compile(r"(\d{1,2})[.,](\d\d)")
MAX_INTEGER = 999_999  # more than any number in words, and any year
ROMAN_NUMERAL = re.compile(r"(?<!\w)(?=[IVXL]{2})X{0,3}L?X{0,3}(?:IX|IV|V?I{0,3})(?=[e\u1d49]?\b)")  # also of "XIXe"
ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50}


def numbers_in(text: str) -> list[str]:
    return [match[0] for match in number_matches(text)] if HAS_DIGIT.search(text) else []


def number_matches(text: str) -> Iterator[re.Match[str]]:
    if not text.isascii():
        text = re.sub(OTHER_DIGIT, lambda digit: str(unicodedata.digit(digit[0])), text)
    return NUMBER.finditer(text)


def values_of(number: str) -> frozenset[str]:
    """Return the values that a number may have, as strings: "1.234" has two."""
    digits = re.sub(r"[\u00a0\u202f '\u2019]", "", number)
    separators = re.findall(r"[.,]", digits)
    plain = re.sub(r"[.,]", "", digits)
    values = set()
    if not separators:
        values.add(plain)
    elif len(set(separators)) == 2:
        integer_part, _, fraction = digits.rpartition(separators[-1])
        values.add(f"{re.sub('[.,]', '', integer_part)}.{fraction}")
    elif len(separators) > 1:
        values |= {plain, digits}
    else:
        integer_part, _, fraction = digits.rpartition(separators[0])
        values.add(f"{integer_part}.{fraction}")
        # a calibre of ".22" is often written "22"
        if not integer_part or (len(fraction) == 3 and len(integer_part) <= 3):
            values.add(plain)
    return frozenset(_trimmed(value) for value in values)


def _trimmed(value: str) -> str:
    value = value.lstrip("0") or "0"
    return value.rstrip("0").rstrip(".") if "." in value else value


def integer_of(digits: str) -> int:
    """Return the value of decimal digits; of seven or more, `MAX_INTEGER`: Python refuses to convert thousands."""
    return int(digits) if len(digits) <= len(str(MAX_INTEGER)) else MAX_INTEGER


def roman_value(numeral: str) -> int:
    values = [ROMAN_VALUES[letter] for letter in numeral]
    return sum(-value if value < max(values[index:]) else value for index, value in enumerate(values))


class NumberPool:
    """Numbers in the order of their text. To look one up by a key, or to remove it, takes amortised constant time."""

    def __init__(self, numbers: Sequence[str], keys_of: Callable[[str], Iterable[Hashable]]) -> None:
        self._numbers: list[str | None] = [*numbers]
        self._indices: dict[Hashable, deque[int]] = {}
        for index, number in enumerate(numbers):
            for key in keys_of(number):
                self._indices.setdefault(key, deque()).append(index)

    def first(self, keys: Iterable[Hashable], skipped: int | None = None) -> int | None:
        """Return the first index, other than `skipped`, of a remaining number with one of these keys, if any."""
        return min((index for key in keys for index in self._first_two(key) if index != skipped), default=None)

    def remove(self, *indices: int) -> None:
        for index in indices:
            self._numbers[index] = None

    def remaining(self) -> list[str]:
        return [number for number in self._numbers if number is not None]

    def _first_two(self, key: Hashable) -> list[int]:
        """Return the indices of the first two remaining numbers with a key; forget removed ones before them."""
        indices, first_two = self._indices.get(key, deque()), list[int]()
        while indices and len(first_two) < 2:
            index = indices.popleft()
            if self._numbers[index] is not None:
                first_two.append(index)
        indices.extendleft(reversed(first_two))
        return first_two


def keys_of(number: str) -> Iterator[Hashable]:
    """Yield the keys of a number in a `NumberPool`: its text, and its integer value or its hour and minutes."""
    yield number
    if number.isdecimal():
        yield integer_of(number)
    if time := TIME.fullmatch(number):
        yield int(time[1]), time[2]


def same_time(number: str, other_numbers: NumberPool, is_afternoon: bool, is_other_afternoon: bool) -> tuple[int, ...]:
    """Return the indices of other numbers for the same time: of 19 and 45 for "19.45", of 17.30 for "5.30 p.m."."""
    match = TIME.fullmatch(number)
    if match is None:
        return ()
    hours = {int(match[1]), *related_numbers(int(match[1]), is_afternoon, is_other_afternoon)}
    time_index = other_numbers.first((hour, match[2]) for hour in hours)
    if time_index is not None:
        return (time_index,)
    minutes_index = other_numbers.first([match[2]])
    hour_index = other_numbers.first(hours, skipped=minutes_index)
    if hour_index is None:
        return ()
    if minutes_index is None:
        return (hour_index,) if match[2] == "00" else ()
    return hour_index, minutes_index


def related_numbers(value: int, is_afternoon: bool, is_other_afternoon: bool) -> list[int]:
    """Return numbers that may mean the same: 17 for "5 p.m.", 90 for "the 1990s".

    is_afternoon, is_other_afternoon: whether the number's text, or the other text, mentions the afternoon.
    """
    forms = []
    if 0 <= value <= 12 and is_afternoon:
        forms.append(value + 12)
    if 12 < value <= 24 and is_other_afternoon:
        forms.append(value - 12)
    if 1900 <= value <= 1990 and value % 10 == 0:
        forms.append(value - 1900)
    if 20 <= value <= 90 and value % 10 == 0:
        forms.append(value + 1900)
    return forms
