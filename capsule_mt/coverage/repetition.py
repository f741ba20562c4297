"""Phrases that a text says twice in a row."""

from collections import Counter

from capsule_mt.text.words import WORDS

LONGEST_REPEATED_PHRASE = 6


def repeated_phrases(translation: str, source: str) -> list[str]:
    """Return the phrases that a translation says twice in a row, unless its source repeats as many."""
    phrases = doubled_phrases(translation)
    return list(phrases) if phrases and phrases.total() > doubled_phrases(source).total() else []


def doubled_phrases(text: str) -> Counter[str]:
    """Count the phrases that are followed by themselves, longest phrases first."""
    words = [match[0].casefold() for match in WORDS.finditer(text)]
    counts: Counter[str] = Counter()
    if len(set(words)) == len(words):
        return counts
    index = 0
    while index < len(words):
        for length in range(LONGEST_REPEATED_PHRASE, 0, -1):
            phrase = words[index : index + length]
            is_doubled = words[index + length : index + 2 * length] == phrase
            if is_doubled and any(character.isalnum() for word in phrase for character in word):
                counts[" ".join(phrase)] += 1
                index += length
                break
        else:
            index += 1
    return counts
