"""Faults of a translation that rules find without a model, as translation QA tools report them.

A rule compares a text with its translation. Rules that need a language are silent without it. Thresholds and
exceptions were chosen on the first, third, ... lines of human translations: Tatoeba, FLORES and newstest 2014.
"""

from collections.abc import Callable, Iterable, Sequence

from capsule_mt.checks.items import item_checks
from capsule_mt.checks.named_values import month_checks, weekday_checks
from capsule_mt.checks.names import name_checks
from capsule_mt.checks.negation import negation_checks
from capsule_mt.checks.numbers import digit_checks, number_checks
from capsule_mt.checks.punctuation import bracket_checks, end_checks, sign_checks
from capsule_mt.checks.repeated_words import doubled_checks, untranslated_checks
from capsule_mt.checks.results import Check
from capsule_mt.checks.sentence_counts import sentence_checks
from capsule_mt.checks.texts import CheckedText

Rule = Callable[[CheckedText, CheckedText], Iterable[Check]]
# in the order of their checks
RULES: Sequence[Rule] = (
    item_checks,
    number_checks,
    month_checks,
    weekday_checks,
    name_checks,
    sign_checks,
    end_checks,
    doubled_checks,
    untranslated_checks,
    bracket_checks,
    negation_checks,
    sentence_checks,
)
# Those with the fewest false alarms: a translation with such a fault is retried. Number words are not among them:
# "seven" may have become "a week".
CERTAIN_RULES: Sequence[Rule] = (bracket_checks, digit_checks, doubled_checks)


def checks_of(
    source: str, translation: str, source_language: str | None = None, target_language: str | None = None
) -> tuple[Check, ...]:
    """Return the faults that rules find in the translation of a text.

    Args:
        source_language, target_language: codes such as "de" or "deu_Latn".
    """
    for name, text in (("source", source), ("translation", translation)):
        if not isinstance(text, str):
            raise TypeError(f"`{name}` must be a string, got a {type(text).__name__}")
    return _checks(RULES, source, translation, source_language, target_language)


def certain_checks_of(
    source: str, translation: str, source_language: str | None = None, target_language: str | None = None
) -> tuple[Check, ...]:
    """Return those faults that `checks_of` reports with the fewest false alarms."""
    return _checks(CERTAIN_RULES, source, translation, source_language, target_language)


def _checks(
    rules: Sequence[Rule], source: str, translation: str, source_language: str | None, target_language: str | None
) -> tuple[Check, ...]:
    if not source.strip() or not translation.strip():
        return ()
    texts = CheckedText(source, source_language), CheckedText(translation, target_language)
    return tuple(check for rule in rules for check in rule(*texts))
