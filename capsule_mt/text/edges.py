"""Edges of a sentence that lower quality: brackets and quotes around it, a missing full stop, an ellipsis.

The model reads the bare sentence with a full stop; the translation gets the edges of the source back.
"""

import re

from capsule_mt.text.casing import CASED_WORD
from capsule_mt.text.normal import LAST_WITHOUT_JOINERS, QUOTES
from capsule_mt.text.sentences import Span

BRACKETS = {"(": ")", "[": "]"}
ELLIPSIS = "\u2026"
MIN_WORDS = 4  # a shorter text without a full stop may be a label
FULL_STOPS = ".\u3002\uff0e\u0964\u0589\u06d4"
# a final full stop, and none of "..."; tags, marks of emphasis, closing quotes and brackets may follow
FINAL_STOP = re.compile(rf"(?<![{FULL_STOPS}])[{FULL_STOPS}](?=(?:<[^<>]*>|[*_~\s\"'\u201d\u2019\xbb)\]])*\Z)")


def without_brackets(text: str, sentence: Span) -> Span:
    """Return the span inside the brackets that enclose a sentence whole, if it has letters and no inner brackets."""
    start, end = sentence
    while end - start > 2 and text[end - 1] == BRACKETS.get(text[start]):
        inner = text[start + 1 : end - 1]
        if text[start] in inner or text[end - 1] in inner or not any(map(str.isalpha, inner)):
            break
        start, end = start + 1, end - 1
    return Span(start, end)


def is_around(opening: str, closing: str, inner: str) -> bool:
    """Whether two marks are a pair of typographic quotes, and the text between them has neither."""
    return closing != "" and closing in QUOTES.get(opening, "") and not {opening, closing} & set(inner)


def lacks_full_stop(sentence: str) -> bool:
    """Whether a sentence in Latin, Greek or Cyrillic letters ends with a letter or a digit, and is not a label."""
    last = sentence[-1:]
    return last.isalnum() and last <= LAST_WITHOUT_JOINERS and len(CASED_WORD.findall(sentence)) >= MIN_WORDS


def with_ending(translation: str, ending: str) -> str:
    """Return a translation with this ending instead of its full stop, or after its last letter if it lacks one."""
    body = translation.rstrip()
    match = FINAL_STOP.search(body)
    if match is None:
        return body + ending if ending and body[-1:].isalnum() else translation
    return body[: match.start()] + ending + body[match.end() :]
