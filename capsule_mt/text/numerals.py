"""The signs of numbers: between groups of three digits, and before decimals.

Of a number of one group, such as "1\u2019400", the model reads the sign of its source language, and writes that of
its target language; if it copies the number, the sign is replaced afterwards. Longer numbers, such as "1,400.50", are
kept, since models change their digits (see `keeping`): they get the signs of the target language beforehand. A sign
replaces a sign, so the user's offsets stay valid.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from capsule_mt.text.copying import has_signed_numbers
from capsule_mt.text.keeping import COPIED_KINDS, Item, parts_of
from capsule_mt.text.normal import Vocabulary
from capsule_mt.text.sentences import Span, rules_of

_SIGNS = "'\u2019\xa0\u2007\u2009\u202f"
# one group; a space that follows another number, as in a telephone number, may not be a grouping sign
ONE_GROUP = rf"(?<![\w.,+'\u2019])(?<!\d[ {_SIGNS}])(\d{{1,3}})[{_SIGNS}](?=\d{{3}}(?![\d{_SIGNS} .,]?\d))"


def with_grouping(text: str, sign: str, vocabulary: Vocabulary) -> str:
    """Return a text with another grouping sign in numbers of one group; unchanged if the sign is "".

    Copied items, such as code, stay as they are. So do numbers beside a sign that the vocabulary lacks, such as a
    currency: they are copied with it.
    """
    if not sign or not has_signed_numbers(text) or re.search(ONE_GROUP, text) is None:
        return text

    def regrouped(match: re.Match[str]) -> str:
        span = Span(match.start(), match.end() + 3)
        return match[1] + sign if _reads_neighbours(match.string, span, vocabulary) else match[0]

    parts = parts_of(text, COPIED_KINDS)
    return "".join(part if isinstance(part, Item) else re.sub(ONE_GROUP, regrouped, part) for part in parts)


def _reads_neighbours(text: str, number: Span, vocabulary: Vocabulary) -> bool:
    """Return whether the vocabulary has the two characters on each side of a number."""
    neighbours = text[max(number.start - 2, 0) : number.start] + text[number.end : number.end + 2]
    return all(map(vocabulary.reads, neighbours))


# with the signs of a language; no address, such as 192.168.100.200, no tax number, such as 123.456.789-09, and no
# number of a section, such as "\xa7 3.2"
_NUMBER = (
    rf"(?<![\w.,+'\u2019\xa7\xb6])(?<![\xa7\xb6\u2116][ \xa0\u202f])(?<!\d[{_SIGNS}])(?!(?:[012]\d\d\.){{3}})"
    rf"(?:\d{{1,3}}(?:(?:[{_SIGNS}]\d{{3}})+(?:[.,]\d+)?|(?:[SIGN]\d{{3}})+(?:[POINT]\d+)?|(?: \d{{3}})+[POINT]\d+)"
    rf"|\d+[POINT]\d\d?)(?![\w'\u2019]|[.,]\d|-\d\d(?![\d.,])|[ {_SIGNS}]\d)"
)


class NumberForms(NamedTuple):
    """How two languages write numbers.

    pattern: of a number as the source language writes it, or with its groups set off by other signs.
    signs, target_signs: the grouping sign, and the sign before decimals.
    """

    pattern: str
    signs: tuple[str, str]
    target_signs: tuple[str, str]


@cache
def number_forms(source: str | None, target: str | None) -> NumberForms | None:
    """Return how two languages write numbers; `None` if that is not known."""
    groupings = [rules_of(language).grouping for language in (source, target)]
    if not all(groupings):
        return None
    signs, target_signs = ((grouping, "." if grouping == "," else ",") for grouping in groupings)
    return NumberForms(_NUMBER.replace("SIGN", signs[0]).replace("POINT", signs[1]), signs, target_signs)


def with_target_signs(text: str, forms: NumberForms, vocabulary: Vocabulary) -> str:
    """Return a text with the signs of the target language in numbers that are kept.

    These are numbers with two signs or more, and numbers beside something that the vocabulary lacks, such as a
    currency. Numbers that the source language writes otherwise stay as they are. So does "912 345 678", which may be a
    telephone number.
    """

    def is_kept(match: re.Match[str]) -> bool:
        has_two_signs = len(re.findall(r"\D", match[0])) > 1
        return has_two_signs or not _reads_neighbours(match.string, Span(*match.span()), vocabulary)

    return _converted(text, forms, is_kept)


def with_copied_numbers(translation: str, source: str, forms: NumberForms) -> str:
    """Return a translation with the target language's sign in numbers of one group that it copies from its source."""
    if forms.signs == forms.target_signs or forms.signs[0] not in translation or not has_signed_numbers(source):
        return translation
    return _converted(
        translation, forms, lambda match: re.sub(r"\d", "", match[0]) == forms.signs[0] and match[0] in source
    )


def _converted(text: str, forms: NumberForms, is_converted: Callable[[re.Match[str]], bool]) -> str:
    """Return a text with the signs of the target language in some of its numbers outside other items."""
    if not has_signed_numbers(text) or re.search(forms.pattern, text) is None:
        return text

    def written(match: re.Match[str]) -> str:
        if not is_converted(match):
            return match[0]
        *groups, last = re.split(r"\D", match[0])
        signs = re.sub(r"\d", "", match[0])
        has_decimals = signs[-1] in ".," and (signs[-1] == forms.signs[1] or signs[-1] != signs[0])
        return forms.target_signs[0].join(groups) + forms.target_signs[has_decimals] + last

    parts = parts_of(text, [kind for kind in COPIED_KINDS if kind != "numerals"])
    return "".join(part if isinstance(part, Item) else re.sub(forms.pattern, written, part) for part in parts)
