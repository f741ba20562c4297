"""Texts in capitals: models know few, so the model reads lowercase, and the translation gets capitals back."""

import re
from collections.abc import Callable, Sequence

from capsule_mt.text.copying import may_have_non_words
from capsule_mt.text.keeping import COPIED_KINDS, Item, parts_of
from capsule_mt.text.words import WORDS

MIN_LETTERS = 7  # fewer may be abbreviations
# up to the first letter; without the bound, dots without a letter after them take quadratic time
SENTENCE_START = r"(?:^|[.!?\u2026]\s)\W{0,50}\w"


def without_capitals(text: str, are_words: Callable[[Sequence[str]], bool] = lambda words: False) -> str | None:
    """Return a text in capitals in sentence case, letter for letter; `None` for any other text.

    Items that a translation copies, such as URLs and placeholders, stay as they are.

    are_words: tells whether the words of a short text are words, as in "LOG IN", rather than abbreviations.
    """
    if not (text.isupper() or (may_have_non_words(text) and sum(map(str.isupper, text)) >= MIN_LETTERS)):
        return None  # a fast answer for most texts
    parts = parts_of(text, COPIED_KINDS)
    words = [word for part in parts if not isinstance(part, Item) for word in WORDS.findall(part) if word.isalpha()]
    if not "".join(words).isupper() or (sum(map(len, words)) < MIN_LETTERS and not are_words(words)):
        return None
    # only the Turkish "\u0130" becomes two characters in lowercase, and the user's offsets must stay valid
    lowercase = "".join(part if isinstance(part, Item) else part.replace("\u0130", "I").lower() for part in parts)
    without_items = "".join(" " * len(part) if isinstance(part, Item) else part for part in parts)
    starts = {match.end() - 1 for match in re.finditer(SENTENCE_START, without_items)}
    return "".join(text[offset] if offset in starts else lowered for offset, lowered in enumerate(lowercase))


def with_capitals(text: str) -> str:
    """Return a translation in capitals, letter for letter, except for copied items."""
    parts = parts_of(text, COPIED_KINDS)
    return "".join(part if isinstance(part, Item) else "".join(map(capital, part)) for part in parts)


def capital(letter: str) -> str:
    """Return the capital of a letter; the letter itself if its capital is two letters."""
    if letter == "\xdf":
        return "\u1e9e"
    return letter.upper() if len(letter.upper()) == 1 else letter
