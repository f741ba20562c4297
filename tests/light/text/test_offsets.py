"""Offsets are of the user's string, whatever changes of typography a text has: a property of generated texts."""

import random
import re
import unicodedata
from itertools import pairwise

import pytest

from capsule_mt import CoverageOptions
from capsule_mt.text.rules import INVISIBLE
from tests.light.decoders import Echo, translator
from tests.light.text.fakes import WordTokenizer

WORDS = [
    *("fine", "coffee", "caf\xe9", "water", "houses", "mountain", "garden", "windows", "reading", "morning"),
    *("evening", "yellow", "silver", "running", "golden", "winter", "summer", "r\xe9sum\xe9", "office"),
    *("flowers", "river", "bridge"),
]
WORD_CHANGES = {
    "soft hyphen": lambda word: f"{word[:2]}\xad{word[2:]}",
    "zero-width space": lambda word: f"{word[:3]}\u200b{word[3:]}",
    "word joiner": lambda word: f"\u2060{word}\ufeff",
    "decomposed": lambda word: unicodedata.normalize("NFD", word),
    "ligature": lambda word: word.replace("fi", "\ufb01").replace("ff", "\ufb00"),
    "full width": lambda word: "".join(chr(ord(letter) + 0xFEE0) if letter < "\x7f" else letter for letter in word),
    "quotes": lambda word: f"\u201c{word}\u201d",
    "guillemets": lambda word: f"\xab{word}\xbb",
    "brackets": lambda word: f"({word})",
    "bold": lambda word: f"**{word}**",
    "tags": lambda word: f"<i>{word}</i>",
    "sign": lambda word: f"{word}\u2122",
    "comma": lambda word: f"{word},",
}
SENTENCE_CHANGES = {
    "brackets": lambda text: f"({text})",
    "quotes": lambda text: f"\u201c{text}\u201d",
    "guillemets": lambda text: f"\xab{text}\xbb",
    "ellipsis": lambda text: text.removesuffix(".") + "\u2026",
    "dots": lambda text: text.removesuffix(".") + "...",
    "no full stop": lambda text: text.removesuffix("."),
    "capitals": str.upper,
    "small letters": str.lower,
    "dash": lambda text: f"\u2013 {text}",
    "bullet": lambda text: f"\u2022 {text}",
    "emoji": lambda text: f"{text} \U0001f600",
}
SPACES = (" ", " ", " ", "\xa0", "\u2009", "  ", "\u202f")


class PlainTokenizer(WordTokenizer):
    """Knows words of ASCII and \xe9."""

    def id(self, word):
        return 0 if re.search("[^\x20-\x7f\xe9\xc9]", word) else super().id(word)


class Copying(Echo):
    """Attends to the token that it has just copied, as the head that aligns words does."""

    def hypothesis(self, source, lost, limit):
        hypothesis = super().hypothesis(source, lost, limit)
        hypothesis.attention = [hypothesis.attention[0], *hypothesis.attention[:-1]]
        return hypothesis


def letters(text):
    return "".join(filter(str.isalpha, unicodedata.normalize("NFKC", re.sub(r"</?i>|\u2122", "", text)))).casefold()


def generated(rng):
    """Return the words of a text, and the text with changes."""
    words, lines = [], []
    for _ in range(rng.randint(1, 3)):
        sentence = rng.sample(WORDS, rng.randint(4, 7))
        words += sentence
        changed = [rng.choice([*WORD_CHANGES.values()])(word) if rng.random() < 0.4 else word for word in sentence]
        if rng.random() < 0.8:
            changed[0] = changed[0][0].upper() + changed[0][1:]
        line = "".join(word + rng.choice(SPACES) for word in changed).strip() + "."
        lines.append(rng.choice([*SENTENCE_CHANGES.values()])(line) if rng.random() < 0.6 else line)
    return words, "\n".join(lines)


@pytest.mark.parametrize("seed", range(200))
def test_offsets_are_of_the_users_string(seed):
    words, text = generated(random.Random(seed))
    translation = translator(Copying(), PlainTokenizer())(text, coverage=CoverageOptions(), alignment=True)
    spans = [(word.start, word.end) for word in translation.coverage.words]
    assert all(text[word.start : word.end] == word.text for word in translation.coverage.words)
    assert all(0 <= previous[1] <= right[0] <= len(text) for previous, right in pairwise(spans))
    assert [letters(text[start:end]) for start, end in spans if letters(text[start:end])] == words
    assert not any(text[end : end + 1] in INVISIBLE - {"\ufeff", "\u2060"} for _, end in spans if end < len(text))
    for segment in translation.segments:
        assert 0 <= segment.start < segment.end <= len(text)
    source_words, target_words = text.split(), translation.text.split()
    for source, target in translation.alignment:
        assert letters(source_words[source]) == letters(target_words[target]), (source, target)
    linked = {source for source, _ in translation.alignment}
    assert linked >= {index for index, word in enumerate(source_words) if letters(word)}
