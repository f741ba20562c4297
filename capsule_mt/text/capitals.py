"""Texts in capitals: models have read few, so they read one in small letters, and its translation is in capitals."""

import re

from capsule_mt.text.copying import may_have_no_words
from capsule_mt.text.keeping import COPIED, Item, parts_of
from capsule_mt.text.words import WORDS

LEAST_LETTERS = 7  # fewer may be an abbreviation
BEGINS = r"(?:^|[.!?\u2026]\s)\W*\w"  # of sentences


def without_capitals(text: str) -> str | None:
    """Return a text in capitals as it is else written, letter for letter; `None` for any other text.

    URLs, placeholders and whatever else is kept stay as they are.
    """
    if not (text.isupper() or (may_have_no_words(text) and sum(map(str.isupper, text)) >= LEAST_LETTERS)):
        return None  # most texts, in no time
    parts = parts_of(text, COPIED)
    words = [word for part in parts if not isinstance(part, Item) for word in WORDS.findall(part) if word.isalpha()]
    if sum(map(len, words)) < LEAST_LETTERS or not "".join(words).isupper():
        return None
    small = "".join(part if isinstance(part, Item) else part.lower() for part in parts)
    if len(small) != len(text):
        return None
    shadow = "".join(" " * len(part) if isinstance(part, Item) else part for part in parts)
    begins = {match.end() - 1 for match in re.finditer(BEGINS, shadow)}
    return "".join(old if place in begins else new for place, (old, new) in enumerate(zip(text, small, strict=True)))


def with_capitals(text: str) -> str:
    """Return a translation in capitals, letter for letter, but for what is kept."""
    parts = parts_of(text, COPIED)
    return "".join(part if isinstance(part, Item) else "".join(map(_capital, part)) for part in parts)


def _capital(letter: str) -> str:
    if letter == "\xdf":
        return "\u1e9e"
    return letter.upper() if len(letter.upper()) == 1 else letter
