"""Words, in languages that put spaces between them, and links between the words of two sentences.

A link is (source position, target position), counted from 0.
"""

import re
from collections.abc import Sequence

Links = frozenset[tuple[int, int]]
SentencePair = tuple[Sequence[str], Sequence[str]]
# splits French and English clitics from the following word
_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|\w+(?:'(?=\w))?|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Split into words, numbers and marks; an elided word keeps its apostrophe: "l'eau, 3,5 l." -> l' eau , 3,5 l ."""
    return _TOKEN.findall(text.replace("\u2019", "'"))


def word_spans(text: str) -> list[tuple[str, tuple[int, int]]]:
    """Return the words of `split_words`, each with its span in the text."""
    return [(match[0], match.span()) for match in _TOKEN.finditer(text.replace("\u2019", "'"))]


def word_pairs(sources: Sequence[str], targets: Sequence[str]) -> list[SentencePair]:
    """Split parallel lines into words."""
    return [(split_words(source), split_words(target)) for source, target in zip(sources, targets, strict=True)]


def word_stem(word: str) -> str:
    """Return a word in lower case, cut to four letters if it has only letters.

    The aligner shares statistics between equal stems.
    """
    lowered = word.lower()
    return lowered[:4] if lowered.isalpha() else lowered
