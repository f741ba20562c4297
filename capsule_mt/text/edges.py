"""What surrounds a sentence and costs quality: brackets and quotes around it, no full stop, an ellipsis.

The model reads the sentence alone, with a full stop; the translation gets back what the source has.
"""

import re

from capsule_mt.text.casing import CASED_WORD
from capsule_mt.text.normal import LAST_WITHOUT_JOINERS, QUOTES
from capsule_mt.text.sentences import Span

BRACKETS = {"(": ")", "[": "]"}
ELLIPSIS = "\u2026"
MIN_WORDS = 4  # of a sentence that lacks its full stop; fewer may be a label
FULL_STOPS = ".\u3002\uff0e\u0964\u0589\u06d4"
# a final full stop, also before tags, marks of emphasis and closing quotes
FINAL_STOP = re.compile(rf"(?<![{FULL_STOPS}])[{FULL_STOPS}](?=(?:<[^<>]*>|[*_~\s\"'\u201d\u2019\xbb)\]])*\Z)")


def without_brackets(text: str, sentence: Span) -> Span:
    """Return a sentence without brackets around all of it."""
    start, end = sentence
    while end - start > 2 and text[end - 1] == BRACKETS.get(text[start]):
        inner = text[start + 1 : end - 1]
        if text[start] in inner or text[end - 1] in inner or not any(map(str.isalpha, inner)):
            break
        start, end = start + 1, end - 1
    return Span(start, end)


def is_around(opening: str, closing: str, inner: str) -> bool:
    """Whether two typographic quotes enclose a text and do not appear in it."""
    return closing != "" and closing in QUOTES.get(opening, "") and not {opening, closing} & set(inner)


def lacks_full_stop(sentence: str) -> bool:
    """Whether a sentence of an alphabet that ends sentences with "." ends with a letter or a digit."""
    last = sentence[-1:]
    return last.isalnum() and last <= LAST_WITHOUT_JOINERS and len(CASED_WORD.findall(sentence)) >= MIN_WORDS


def with_ending(translation: str, ending: str) -> str:
    """Return a translation with this ending instead of its full stop."""
    body = translation.rstrip()
    match = FINAL_STOP.search(body)
    if match is None:
        return body + ending if ending and body[-1:].isalnum() else translation
    return body[: match.start()] + ending + body[match.end() :]
