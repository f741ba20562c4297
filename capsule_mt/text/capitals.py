"""Texts in capitals: models know few, so the model reads lowercase, and the translation gets capitals back."""

import re
from collections.abc import Callable, Sequence

from capsule_mt.text.copying import may_have_non_words
from capsule_mt.text.keeping import COPIED_KINDS, Item, parts_of
from capsule_mt.text.sentences import language_code
from capsule_mt.text.words import WORDS

MIN_LETTERS = 7  # fewer may be abbreviations
# up to the first letter; without the bound, dots without a letter after them take quadratic time
SENTENCE_START = r"(?:^|[.!?\u2026]\s)\W{0,50}\w"


DOTLESS_I_LANGUAGES = frozenset({"tr", "az"})  # whose pairs are I and \u0131, \u0130 and i


def has_dotless_i(language: str | None) -> bool:
    """Return whether a language has the letter \u0131, the small form of I, as Turkish does."""
    return language_code(language) in DOTLESS_I_LANGUAGES


def without_capitals(
    text: str, are_words: Callable[[Sequence[str]], bool] = lambda words: False, dotless_i: bool = False
) -> str | None:
    """Return a text in capitals in sentence case, letter for letter; `None` for any other text.

    Items that a translation copies, such as URLs and placeholders, stay as they are.

    are_words: tells whether the words of a short text are words, as in "LOG IN", rather than abbreviations.
    dotless_i: the language has the letter \u0131.
    """
    if not (text.isupper() or (may_have_non_words(text) and sum(map(str.isupper, text)) >= MIN_LETTERS)):
        return None  # a fast answer for most texts
    parts = parts_of(text, COPIED_KINDS)
    words = [word for part in parts if not isinstance(part, Item) for word in WORDS.findall(part) if word.isalpha()]
    if not "".join(words).isupper() or (sum(map(len, words)) < MIN_LETTERS and not are_words(words)):
        return None
    # in other languages, "\u0130" becomes two characters in lowercase, and the user's offsets must stay valid
    strings = (
        parts if dotless_i else [part if isinstance(part, Item) else part.replace("\u0130", "I") for part in parts]
    )
    lowercase = "".join(part if isinstance(part, Item) else lowered(part, dotless_i) for part in strings)
    without_items = "".join(" " * len(part) if isinstance(part, Item) else part for part in parts)
    starts = {match.end() - 1 for match in re.finditer(SENTENCE_START, without_items)}
    return "".join(text[offset] if offset in starts else letter for offset, letter in enumerate(lowercase))


def with_capitals(text: str, dotless_i: bool = False) -> str:
    """Return a translation in capitals, letter for letter, except for copied items."""
    parts = parts_of(text, COPIED_KINDS)
    return "".join(
        part if isinstance(part, Item) else "".join(capital(letter, dotless_i) for letter in part) for part in parts
    )


def lowered(text: str, dotless_i: bool) -> str:
    """Return a text in lowercase."""
    return text.replace("I", "\u0131").replace("\u0130", "i").lower() if dotless_i else text.lower()


def raised(text: str, dotless_i: bool) -> str:
    """Return a text in capitals."""
    return text.replace("i", "\u0130").upper() if dotless_i else text.upper()


def capital(letter: str, dotless_i: bool = False) -> str:
    """Return the capital of a letter; the letter itself if its capital is two letters."""
    if letter == "\xdf":
        return "\u1e9e"
    if letter == "i" and dotless_i:
        return "\u0130"
    return letter.upper() if len(letter.upper()) == 1 else letter
