"""Text into words, for word alignment and for counting: languages that put spaces between words."""

import re

# French and English clitics that other tokenizations write as words of their own
_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|\w+(?:'(?=\w))?|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Words, numbers and marks; an elided word keeps its apostrophe: "l'eau, 3,5 l." -> l' eau , 3,5 l ."""
    return _TOKEN.findall(text.replace("\u2019", "'"))


def word_stem(word: str, length: int = 4) -> str:
    """A word without its case and its ending: its first letters. Words that share them share their statistics."""
    lowered = word.lower()
    return lowered[:length] if lowered.isalpha() else lowered
