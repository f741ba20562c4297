"""The rules about values that have names: months, weekdays, and numbers up to twelve."""

from collections.abc import Container, Iterator, Mapping, Sequence

from capsule_mt.checks.results import Check, CheckKind
from capsule_mt.checks.texts import CheckedText
from capsule_mt.checks.word_lists import check_words

MAX_SMALL_NUMBER = 12  # larger numbers may be written as several words


def month_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield months that change."""
    names = (_named_values(text, text.vocabulary.months) for text in (source, translation))
    return _change_checks("months", *names)


def weekday_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield weekdays that change."""
    return _change_checks("weekdays", _weekdays(source), _weekdays(translation))


def number_word_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield small numbers in words that change."""
    names = _small_numbers(source, _weekdays(translation)), _small_numbers(translation, _weekdays(source))
    return _change_checks("numbers", *names)


def _change_checks(
    kind: CheckKind, names: Mapping[int, Sequence[str]], target_names: Mapping[int, Sequence[str]]
) -> Iterator[Check]:
    """Yield names that change: the value of a name on either side stands less often on the other, as "two" and "três".

    If only one side has such a name, the other may have a paraphrase, such as "both" or "at the end of the year".
    """
    missing = [words[-1] for value, words in names.items() if len(words) > len(target_names.get(value, ()))]
    added = [words[-1] for value, words in target_names.items() if len(words) > len(names.get(value, ()))]
    if missing and added:
        yield from (Check(kind, name, "") for name in missing)
        yield from (Check(kind, "", name) for name in added)


def _weekdays(text: CheckedText) -> dict[int, list[str]]:
    return _named_values(text, text.vocabulary.weekdays)


def _named_values(text: CheckedText, value_of_name: Mapping[str, int]) -> dict[int, list[str]]:
    """Return the names of each month or weekday in a text."""
    names = dict[int, list[str]]()
    if not value_of_name:
        return names
    words, month_verbs = text.words, check_words().month_verbs
    for previous, word, following in zip(["", *words], words, [*words[1:], ""], strict=False):
        name = word.casefold().replace("\u2019", "'")
        value = value_of_name.get(name)
        if value is not None and (name not in month_verbs or _is_month(previous, word, following)):
            names.setdefault(value, []).append(word)
    return names


def _is_month(previous: str, word: str, following: str) -> bool:
    """Return whether "May" or "March" isn't a verb: it has a capital within its sentence, or before a number."""
    is_within = previous == "," or previous[:1].isalnum()
    return word[0].isupper() and (is_within or following[:1].isdecimal())


def _small_numbers(text: CheckedText, other_weekdays: Container[int | None]) -> dict[int, list[str]]:
    """Return a word for each number from 2 to 12 in a text, without hours such as "halb acht".

    Portuguese "sexta" is the sixth or Friday: it is no number if the other text names Friday.
    """
    vocabulary, numbers = text.vocabulary, dict[int, list[str]]()
    if not vocabulary.numbers:
        return numbers
    half_hours = check_words().half_hours
    for previous, word in zip(["", *text.words], text.words, strict=False):
        value = vocabulary.numbers.get(word.casefold(), 0)
        is_weekday = vocabulary.weekdays.get(word.casefold()) in other_weekdays
        if 2 <= value <= MAX_SMALL_NUMBER and previous.casefold() not in half_hours and not is_weekday:
            numbers.setdefault(value, [word])
    return numbers
