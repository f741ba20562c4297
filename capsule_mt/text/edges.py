"""Edges of a sentence that lower quality: list marks, brackets and quotes around it, a missing full stop, "!!!".

The model reads the bare sentence, mostly with one mark; the translation gets the edges of the source back. A label,
a word alone on its line, is read without its edges, and also with a colon.
"""

import re

from capsule_mt.text.casing import NO_WORDS
from capsule_mt.text.finishing import mark_of
from capsule_mt.text.reading import Part
from capsule_mt.text.rewriting import end_of_marks, has_pair
from capsule_mt.text.rules import CASED_WORD, ENCLOSING, rows_of
from capsule_mt.text.sentences import Span, stripped

LAST_WITH_FULL_STOP = "\u052f"  # Latin, Greek and Cyrillic letters end here
MIN_WORDS = 6  # a shorter text without a full stop may be a label
LABEL = rf"({CASED_WORD})(?:\.\.\.|\u2026|[,;]|[ \xa0\u202f]?:)?"
MAX_LABEL = 64  # characters
MAX_BESIDE_LABEL = 500  # characters of signs and items on the line of a label


def edges_of(text: str, sentence: Span, has_ordinals: bool = True) -> Span:
    """Return a sentence without what is copied around it; empty if nothing remains to translate."""
    return without_enclosing(text, without_copied_edges(text, sentence, has_ordinals))


def without_copied_edges(text: str, sentence: Span, has_ordinals: bool = True) -> Span:
    """Return a sentence without list marks before it and signs around it.

    The span is empty if nothing remains to translate.

    has_ordinals: the language writes ordinal numbers with a full stop, so "3." may belong to the sentence.
    """
    start, end = sentence
    if not any(map(str.isalpha, NO_WORDS.sub("", text[start:end]))):
        return Span(start, start)
    start = end_of_marks(text, sentence, has_ordinals)
    for row in rows_of("after") if end - start > 1 and not text[end - 1].isalnum() else ():
        match = re.search(row.match, text[start:end])
        if match is not None and not has_pair(match[0], text[start:end]):
            end -= len(match[0])
    return stripped(text, Span(start, end))


def without_enclosing(text: str, sentence: Span) -> Span:
    """Return the span inside the brackets and quotes that enclose a sentence whole, if it has letters.

    A full stop may follow the closing mark; inside are no further marks of the same kind.
    """
    start, end = sentence.start, sentence.end - text.endswith(".", *sentence)
    while end - start > 2 and text[end - 1] == ENCLOSING.get(text[start]):
        inner = text[start + 1 : end - 1]
        if text[start] in inner or text[end - 1] in inner or not any(map(str.isalpha, inner)):
            break
        start, end = stripped(text, Span(start + 1, end - 1))
    return Span(start, end) if start > sentence.start else sentence


def ending_of(text: str, sentence: Span) -> Part | None:
    """Return what the model reads at a sentence's end instead; `None` if it reads the same."""
    last = text[sentence.end - 1]
    if last.isalnum():
        is_short = last > LAST_WITH_FULL_STOP or len(re.findall(CASED_WORD, text[slice(*sentence)])) < MIN_WORDS
        return None if is_short else Part(".", sentence.end, sentence.end)
    content = text[slice(*sentence)]
    for row in rows_of("ending"):
        match = re.search(row.needs, content) and re.search(row.match, content)
        if match is not None:
            start = sentence.start + match.start()
            return Part(mark_of(match[0]), start, start + len(match[0]))
    return None


def label_in(text: str, sentence: Span) -> Span | None:
    """Return the span of a label: the only word of a line, as in a menu.

    A colon, a semicolon, a comma or an ellipsis may follow it.
    """
    start, content = sentence.start, text[sentence.start : sentence.end]
    # most sentences have a space inside; one may stand before a colon
    if " " in content[:-2] or (content.endswith(".") and not content.endswith("...")):
        return None
    match = re.compile(LABEL).match(text, start, min(sentence.end, start + MAX_LABEL))
    if match is None or match.end() < sentence.end:
        return None
    prefix = text[max(start - MAX_BESIDE_LABEL, 0) : start].rpartition("\n")[2]
    suffix = text[sentence.end : sentence.end + MAX_BESIDE_LABEL].partition("\n")[0]
    if len(prefix) + len(suffix) >= MAX_BESIDE_LABEL:
        return None
    is_alone = not any(map(str.isalpha, NO_WORDS.sub("", prefix) + suffix))
    return Span(start, match.end(1)) if is_alone else None
