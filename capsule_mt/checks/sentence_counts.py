"""The rule about the numbers of sentences."""

import re
from collections.abc import Iterator

from capsule_mt.checks.results import Check
from capsule_mt.checks.texts import CheckedText

# one text is much longer if it exceeds this multiple of the other one's length, and some characters more
MAX_LENGTH_RATIO, EXTRA_CHARACTERS = 1.3, 20
MIN_CASED_SHARE = 0.9
# the end of a sentence, and the first character of the next one
NEXT_SENTENCE = re.compile(r"(?<=[^\W_][.!?…])[^\w\s]*\s+[^\w\s]*(\w)")


def sentence_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield the numbers of sentences, if one text has more and is much longer, so that some are made up or lost.

    Both need letters with case. The ratio was chosen on FLORES, Tatoeba and newstest 2014.
    """
    shorter, longer = sorted((source.text, translation.text), key=len)
    if len(longer) <= MAX_LENGTH_RATIO * len(shorter) + EXTRA_CHARACTERS:
        return
    source_count, target_count = _num_sentences(source.text), _num_sentences(translation.text)
    has_more = source_count < target_count if longer is translation.text else source_count > target_count
    if has_more and _is_cased(source.text) and _is_cased(translation.text):
        yield Check("sentences", str(source_count), str(target_count))


def _num_sentences(text: str) -> int:
    """Count the sentences of a text that has capital letters; abbreviations may count, too."""
    return 1 + sum(match[1].isupper() for match in NEXT_SENTENCE.finditer(text))


def _is_cased(text: str) -> bool:
    """Return whether nearly all letters have a lower and an upper case, unlike those of Chinese, Arabic or Thai."""
    letters = [character for character in text if character.isalpha()]
    return sum(letter.lower() != letter.upper() for letter in letters) > MIN_CASED_SHARE * len(letters)
