"""The rule about names: one of them became another one."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise

from capsule_mt.checks.results import Check
from capsule_mt.checks.texts import CheckedText
from capsule_mt.text.words import WORDS

MIN_NAME = 3  # letters
MAX_NAME = 40  # letters: comparing two words takes the product of their lengths
STEM = 4  # letters at the start of a word that account for a name: "Russia" for "Russian"
MIN_SIMILAR = 0.5  # the share of letters, in order, that "Mosca" and "Moscou" have in common
BEFORE_NAME = ",;)"
CELL_END = re.compile(r"[ \t]*\n[ \t]*|[ \t]{3,}")  # a line's end, or the spaces that align columns


def name_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield a name and the other name that the translation has in its place, if all other names are the same.

    A name is a word with a capital within a sentence that also has a word in lower case. It may be written otherwise,
    so a similar word accounts for it.
    A name that has a translation, such as "Germany", and a word such as "Court" in "Supreme Court" are in the lists
    `translated_names`; only languages with such a list are checked.
    """
    patterns = [text.vocabulary.translated_names for text in (source, translation)]
    if None in patterns:
        return
    names, target_names = _names(source), _names(translation)
    if not names or len(names) != len(target_names):
        return
    missing, added = _without_stem(names, translation), _without_stem(target_names, source)
    if len(missing) != 1 or len(added) != 1 or names.index(missing[0]) != target_names.index(added[0]):
        return
    is_translated = any(
        re.fullmatch(pattern, part, re.IGNORECASE)
        for pattern, name in zip(patterns, (*missing, *added), strict=True)
        for part in _stem(name).split("-")
        if pattern is not None
    )
    if not is_translated and not _has_similar(missing[0], translation) and not _has_similar(added[0], source):
        yield Check("names", missing[0], added[0])


def _names(text: CheckedText) -> list[str]:
    """Return the words with a capital within a sentence, without abbreviations and titles such as "Find All"."""
    cells = [WORDS.findall(cell) for cell in CELL_END.split(text.prose)]
    return [
        word
        for words in cells
        if any(len(word) > 1 and word.islower() for word in words)
        for previous, word in pairwise(words)
        if MIN_NAME <= len(word) <= MAX_NAME
        and word[0].isupper()
        and word[1].islower()
        and (previous in BEFORE_NAME or previous[:1].isalnum())
    ]


def _stem(name: str) -> str:
    return re.sub(r"['\u2019]s?\Z", "", name).casefold()


def _without_stem(names: Sequence[str], text: CheckedText) -> list[str]:
    """Return the names that do not begin like a word of a text."""
    stems = {word.casefold()[:STEM] for word in text.words}
    return [name for name in names if _stem(name)[:STEM] not in stems]


def _has_similar(name: str, text: CheckedText) -> bool:
    words = {_letters(word) for word in text.words if word[0].isupper() and len(word) <= MAX_NAME}
    return any(_similarity(_letters(name), word) >= MIN_SIMILAR for word in words)


def _letters(name: str) -> str:
    """Return the letters of a stem without accents, which another language may leave out."""
    letters = unicodedata.normalize("NFD", _stem(name))
    return "".join(letter for letter in letters if not unicodedata.category(letter).startswith("M"))


def _similarity(first: str, second: str) -> float:
    """Return the share of the letters of two words that is in their longest common subsequence."""
    lengths = [0] * (len(second) + 1)
    for letter in first:
        diagonal = 0
        for index, other in enumerate(second, 1):
            longest = diagonal + 1 if letter == other else max(lengths[index - 1 : index + 1])
            diagonal, lengths[index] = lengths[index], longest
    return 2 * lengths[-1] / (len(first) + len(second))
