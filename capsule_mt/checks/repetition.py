"""Phrases that a text says twice in a row."""

from collections import Counter
from collections.abc import Sequence
from operator import eq

from capsule_mt.text.words import WORDS

LONGEST_REPEATED_PHRASE = 6
REFLEXIVES = ("nous", "vous")  # French "nous nous voyons" is right


def repeated_phrases(translation: str, source: str) -> list[str]:
    """Return the phrases of up to six words that a translation doubles, unless its source doubles as many."""
    phrases = doubled_phrases(translation)
    return list(phrases) if phrases and phrases.total() > doubled_phrases(source).total() else []


def doubled_phrases(text: str) -> Counter[str]:
    """Count the phrases of up to six words that are followed by themselves, except "nous nous" and "vous vous"."""
    return doubled_among(WORDS.findall(text))


def doubled_among(words: Sequence[str]) -> Counter[str]:
    """Count the phrases of these words that are followed by themselves, as `doubled_phrases` does."""
    words = [word.casefold() for word in words]
    counts: Counter[str] = Counter()
    lengths = range(1, LONGEST_REPEATED_PHRASE + 1)
    # nearly all texts end here: of a doubled phrase of n words, each word stands again n words further on
    if not any(sum(map(eq, words, words[length:])) >= length for length in lengths):
        return counts
    index = 0
    while index < len(words):
        for length in range(LONGEST_REPEATED_PHRASE, 0, -1):
            phrase = words[index : index + length]
            is_doubled = words[index + length : index + 2 * length] == phrase and " ".join(phrase) not in REFLEXIVES
            if is_doubled and any(character.isalnum() for word in phrase for character in word):
                counts[" ".join(phrase)] += 1
                index += length
                break
        else:
            index += 1
    return counts
