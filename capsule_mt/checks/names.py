"""The rule about names: one of them became another one."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from capsule_mt.checks.results import Check
from capsule_mt.checks.texts import CheckedText
from capsule_mt.text.words import WORDS

MIN_NAME = 3  # letters
MAX_NAME = 40  # letters: comparing two words takes the product of their lengths
STEM = 4  # letters at the start of a word that account for a name: "Russia" for "Russian"
MAX_UNMATCHED = 5  # names without a word that begins alike; more of them are not compared with all words
MIN_SIMILAR = 0.5  # the share of letters, in order, that "Mosca" and "Moscou" have in common
BEFORE_NAME = ",;)"
CELL_END = re.compile(r"[ \t]*\n[ \t]*|[ \t]{3,}")  # a line's end, or the spaces that align columns


def name_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield a name and the other name that the translation has in its place, if all other names are the same.

    A name is a capitalised word of 3 to 40 letters after another word or one of ",;)", in a line or a column of one
    that also has a word in lower case. It may be written otherwise, so a similar word accounts for it. Names that have
    a translation, such as "Germany", and words such as "Court" in "Supreme Court" are in the lists `translated_names`;
    only languages with such a list are checked.
    """
    names, target_names = _names(source), _names(translation)
    if len(names) != len(target_names):
        return
    missing, added = _unmatched(names, translation), _unmatched(target_names, source)
    if len(missing) == len(added) == 1 and names.index(missing[0]) == target_names.index(added[0]):
        yield Check("names", missing[0], added[0])


def _names(text: CheckedText) -> list[str]:
    """Return the words with a capital within a sentence, without abbreviations and titles such as "Find All".

    Words with a translation are left out, and so are their neighbours, such as "Weather" in "Weather Service".
    """
    pattern = text.vocabulary.translated_names
    if pattern is None:
        return []
    cells = [WORDS.findall(cell) for cell in CELL_END.split(text.prose)]
    return [
        word
        for words in cells
        if any(len(word) > 1 and word.islower() for word in words)
        for previous, word, following in zip(words, words[1:], [*words[2:], ""], strict=False)
        if MIN_NAME <= len(word) <= MAX_NAME
        and word[0].isupper()
        and word[1].islower()
        and (previous in BEFORE_NAME or previous[:1].isalnum())
        and not any(_is_translated(neighbour, pattern) for neighbour in (previous, word, following))
    ]


def _is_translated(word: str, pattern: str) -> bool:
    """Return whether a word has a capital, and a part of it is in a list of translated names."""
    parts = _stem(word).split("-") if word[:1].isupper() else []
    return any(re.fullmatch(pattern, part, re.IGNORECASE) for part in parts)


def _stem(name: str) -> str:
    return re.sub(r"['\u2019]s?\Z", "", name).casefold()


def _unmatched(names: Sequence[str], text: CheckedText) -> list[str]:
    """Return the names that neither begin like a word of the other text nor are similar to one with a capital.

    Of more than `MAX_UNMATCHED`, similar ones stay, too.
    """
    stems = {word.casefold()[:STEM] for word in text.words}
    unmatched = [name for name in names if _stem(name)[:STEM] not in stems]
    if not 0 < len(unmatched) <= MAX_UNMATCHED:
        return unmatched
    words = {_letters(word) for word in text.words if word[0].isupper() and len(word) <= MAX_NAME}
    return [name for name in unmatched if all(_similarity(_letters(name), word) < MIN_SIMILAR for word in words)]


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
