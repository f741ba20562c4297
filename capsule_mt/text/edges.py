"""Edges of a sentence that lower quality: brackets and quotes around it, a missing full stop, an ellipsis, "!!!".

The model reads the bare sentence with one mark; the translation gets the edges of the source back. A label, a word
alone on its line, is read without its edges, and also with a colon.
"""

import re

from capsule_mt.text.capitals import capital
from capsule_mt.text.casing import CASED_WORD, LANGUAGE_TOKEN
from capsule_mt.text.copying import lacks_words
from capsule_mt.text.normal import LAST_WITHOUT_JOINERS
from capsule_mt.text.sentences import Span, stripped

ENCLOSING = {"(": ")", "[": "]", '"': '"', "'": "'"}  # quotes are straight in the normal form
APOSTROPHE = r"(?<=[^\W\d_])'(?=[^\W\d_])"
_DOTS = ".\u2026"  # an ellipsis is \u2026, or two or more of these
_CLOSING = "\"'\u201d\u2019\xbb)\\]"
_CLOSING_MARKS, _FINAL_MARKS = _CLOSING.replace("\\", ""), f"{_DOTS}!?"
# several marks at the end of a sentence, in quotes or brackets, too; the lookbehinds find the beginning of the run
MARKS_AT_END = (
    rf"(?:(?<=[^\W_]|[}}@])(?:\u2026|[{_DOTS}]{{2,}})|(?<=[\w%{_CLOSING}])(?=[{_DOTS}]*[!?])[{_DOTS}!?]{{2,}})"
    rf"(?=[{_CLOSING}]*\Z)"
)
MIN_WORDS = 6  # a shorter text without a full stop may be a label
LABEL = rf"({CASED_WORD})(?:\.\.\.|\u2026|[,;]|[ \xa0\u202f]?:)?"  # compiled at its first use
MAX_LABEL = 64  # characters
MAX_BESIDE_LABEL = 500  # characters of signs and items on the line of a label
LABEL_END = r"(?<=[^\W_])\s?[.:\u3002\uff1a](?=(?:<[^<>]*>|[*_~])*\s*\Z)"
# the lookbehind keeps a search from starting again inside a row of marks
FIRST_LETTER = r"((?:(?<![*_~>])(?:<[^<>]*>|[*_~])+)?)([^\W_])"
FULL_STOPS = ".\u3002\uff0e\u0964\u0589\u06d4"
# a final mark, but not one of "..." or "?!"; tags, marks of emphasis, closing quotes and brackets may follow
FINAL_MARK = rf"(?<![{FULL_STOPS}!?])[{FULL_STOPS}!?](?=(?:<[^<>]*>|[*_~\s{_CLOSING}])*\Z)"


def marks_at_end(text: str) -> re.Match[str] | None:
    """Return the match of `MARKS_AT_END`; a fast answer for most sentences, which end with a single mark."""
    body = text.rstrip(_CLOSING_MARKS)
    may_match = body[-1:] in _FINAL_MARKS and (body[-2:-1] in _FINAL_MARKS or body[-1:] == "\u2026")
    return re.search(MARKS_AT_END, text) if may_match else None


def without_enclosing(text: str, sentence: Span) -> Span:
    """Return the span inside the brackets and quotes that enclose a sentence whole, if it has letters.

    A full stop may follow the closing mark; inside are no further marks of the same kind. An opening quote that only
    another sentence closes is left out, too.
    """
    if text[sentence.start : sentence.start + 1] not in ENCLOSING:  # a fast answer for most sentences
        return sentence
    is_open = text.rfind('"', *sentence) == sentence.start
    first = stripped(text, Span(sentence.start + is_open, sentence.end)).start
    start, end = first, sentence.end - text.endswith(".", *sentence)
    while end - start > 2 and text[end - 1] == ENCLOSING.get(text[start]):
        inner = re.sub(APOSTROPHE, "", text[start + 1 : end - 1])
        if text[start] in inner or text[end - 1] in inner or not any(map(str.isalpha, inner)):
            break
        start, end = stripped(text, Span(start + 1, end - 1))
    return Span(start, end if start > first else sentence.end)


def lacks_full_stop(sentence: str) -> bool:
    """Whether a sentence in Latin, Greek or Cyrillic letters ends with a letter or a digit, and is not a label."""
    last = sentence[-1:]
    return last.isalnum() and last <= LAST_WITHOUT_JOINERS and len(re.findall(CASED_WORD, sentence)) >= MIN_WORDS


def label_in(text: str, sentence: Span) -> Span | None:
    """Return the span of a label: the only word of a line, as in a menu.

    A colon, a semicolon, a comma or an ellipsis may follow it.
    """
    start, content = sentence.start, text[sentence.start : sentence.end]
    # fast answers for most sentences; a space may stand before a colon
    if " " in content[:-2] or (content.endswith(".") and not content.endswith("...")):
        return None
    match = re.compile(LABEL).match(text, start, min(sentence.end, start + MAX_LABEL))
    if match is None or match.end() < sentence.end:
        return None
    prefix = text[max(start - MAX_BESIDE_LABEL, 0) : start].rpartition("\n")[2]
    suffix = text[sentence.end : sentence.end + MAX_BESIDE_LABEL].partition("\n")[0]
    if len(prefix) + len(suffix) >= MAX_BESIDE_LABEL:
        return None
    is_alone = lacks_words(LANGUAGE_TOKEN.sub("", prefix) + suffix)
    return Span(start, match.end(1)) if is_alone else None


def as_label(translation: str, source: str = "", dotless_i: bool = False) -> str:
    """Return the translation of a label without a colon or a full stop, and with a capital if its source has one.

    dotless_i: the language of the translation has the letter \u0131.
    """
    label = re.sub(LABEL_END, "", translation)
    if not source[:1].isupper():
        return label
    return re.sub(FIRST_LETTER, lambda match: match[1] + capital(match[2], dotless_i), label, count=1)


def mark_of(ending: str) -> str:
    """Return the mark that a model reads instead of the marks at a sentence's end, or instead of none."""
    return next((mark for mark in "?!" if mark in ending), ".")


def with_ending(translation: str, ending: str) -> str:
    """Return a translation with this ending instead of its final mark, or after its last letter if it lacks one.

    It stays as it is if its final mark is another than `mark_of(ending)`.
    """
    body = translation.rstrip()
    match = re.search(FINAL_MARK, body)
    if match is None:
        return body + ending if ending and body[-1:].isalnum() else translation
    if mark_of(match[0]) != mark_of(ending):
        return translation
    return body[: match.start()] + ending + body[match.end() :]
