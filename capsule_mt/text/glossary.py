"""Glossaries: which words of a source must become which words of its translation."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from capsule_mt.text.sentences import Span
from capsule_mt.text.words import is_mark, target_words, with_space

WORD = re.compile(r"\w+")
APART = re.compile(r"[\s\-\u2010\u2011]+")
LEAST_OF_BEST = 0.5  # of the best word's share: a word before it with so much belongs to the same term
STEM = "*"  # at the end of a term: any ending
BETWEEN = r"(?:\s+|\s*[-\u2010\u2011]\s*)"  # the words of a term, which a hyphen may join


class Term(NamedTuple):
    """A term in a text: its characters there, and what the translation must have; of a stem, its beginning."""

    span: Span
    target: str

    @property
    def is_stem(self) -> bool:
        return self.target.endswith(STEM)


class Glossary:
    """Terms by their first word. The longest match counts, and no two overlap.

    Case does not matter, but where a word has capitals after its first letter, such as "IT" or "iOS". A hyphen and a
    space are alike.
    """

    def __init__(self, terms: Mapping[str, str]) -> None:
        # by the first word; stems of one word by their first letter
        self._patterns: dict[str, list[tuple[re.Pattern[str], str]]] = {}
        self.terms = dict(terms)
        for source, target in sorted(self.terms.items(), key=lambda term: -len(term[0])):
            words = WORD.findall(source)
            if not words:
                raise ValueError(f"a term of a glossary needs a word, got {source!r} -> {target!r}")
            is_stem, term = source.endswith(STEM), source[source.index(words[0]) :].removesuffix(STEM).strip()
            flags = 0 if any(map(str.isupper, "".join(word[1:] for word in words))) else re.IGNORECASE
            parts = map(re.escape, APART.split(term))
            pattern = re.compile(BETWEEN.join(parts) + (r"\w*" if is_stem else r"(?!\w)"), flags)
            key = words[0][:1] if is_stem and len(words) == 1 else words[0]
            self._patterns.setdefault(key.casefold(), []).append((pattern, target or source))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "Glossary":
        """Read a file with `term<tab>translation` on each line; a term alone is not to be translated."""
        from capsule_mt.files.reading import iterate_lines  # late: a dictionary does without

        terms: dict[str, str] = {}
        for number, line in enumerate(iterate_lines(path), start=1):
            columns = [column.strip() for column in line.split("\t")]
            if not any(columns) or line.startswith("#"):
                continue
            if len(columns) > 2 or not columns[0]:
                raise ValueError(f"{path}, line {number}: a glossary has TERM<tab>TRANSLATION or TERM, got {line!r}")
            if terms.get(columns[0], columns[-1]) != columns[-1]:
                raise ValueError(
                    f"{path}, line {number}: {columns[0]!r} is {terms[columns[0]]!r} above, and {columns[-1]!r} here"
                )
            terms[columns[0]] = columns[-1]
        return cls(terms)

    def find(self, text: str, span: Span | None = None) -> list[Term]:
        """Return the terms in a text, or in some of its characters, in order."""
        found: list[Term] = []
        start, end = span or (0, len(text))
        for match in WORD.finditer(text, start, end):
            if found and match.start() < found[-1].span.end:
                continue
            word = match[0].casefold()
            for pattern, target in (*self._patterns.get(word, ()), *self._patterns.get(word[:1], ())):
                place = pattern.match(text, match.start(), end)
                if place is not None:
                    found.append(Term(Span(*place.span()), target))
                    break
        return found


def glossary_of(given: Glossary | Mapping[str, str] | str | os.PathLike[str] | None) -> Glossary | None:
    """Return a glossary from itself, a dictionary or the name of a file."""
    if given is None or isinstance(given, Glossary):
        return given
    return Glossary(given) if isinstance(given, Mapping) else Glossary.from_file(given)


def lacking(terms: Sequence[Term], translation: str) -> list[Term]:
    """Return the terms that a translation does not have, each as often as the source; their ends may differ."""
    found = []
    counts: dict[str, int] = {}
    for term in terms:
        target = term.target.removesuffix(STEM)
        counts[target] = counts.get(target, 0) + 1
        if len(_beginning(target).findall(translation)) < counts[target]:
            found.append(term)
    return found


@cache
def _beginning(target: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){BETWEEN.join(map(re.escape, APART.split(target)))}", re.IGNORECASE)


def prefixes_with_term(
    terms: Sequence[tuple[Sequence[int], Term]],
    ids: Sequence[int],
    decode: Callable[[Sequence[int]], str],
    rows: Sequence[Sequence[float]],
    least: int,
) -> tuple[str, str]:
    """Return what a translation should begin with to have the first of the terms that it lacks.

    The term goes in the place of the words in a row that are most of it. The second result also has the next word; it
    is empty for a stem, after which the model may go on in the word.

    Args:
        terms: with the tokens of the source that each is.
        ids: the tokens of the translation.
        rows: how much each token of it is of each of the source [T][S].
        least: the first character that may be changed.
    """
    text, words = decode(ids), target_words(decode, ids)
    words = [(place, tokens) for place, tokens in words if place.start >= least and not is_mark(text[slice(*place)])]
    place, term = min((_place(words, of_term, rows) or _end(text, least), term) for of_term, term in terms)
    prefix = with_term(text[: place.start], term.target)
    return prefix, "" if term.is_stem else prefix + next_word(text[place.end :])


def _place(
    words: Sequence[tuple[Span, Sequence[int]]], of_term: Sequence[int], rows: Sequence[Sequence[float]]
) -> Span | None:
    """Return the characters of the words in a row that are most of some tokens; `None` if there is no word."""
    if not words:
        return None
    shares = [sum(rows[t][s] for t in tokens for s in of_term) / max(len(tokens), 1) for _, tokens in words]
    first = last = max(range(len(words)), key=lambda number: shares[number])
    enough = LEAST_OF_BEST * shares[first]
    while first and shares[first - 1] > enough:
        first -= 1
    while last + 1 < len(words) and shares[last + 1] > enough:
        last += 1
    return Span(words[first][0].start, words[last][0].end)


def _end(text: str, least: int) -> Span:
    """Return the place before the marks at the end of a text."""
    end = max(least, len(text.rstrip(" .!?")))
    return Span(end, end)


def next_word(text: str) -> str:
    """Return what a rest of a translation begins with, up to the end of a word."""
    found = re.match(r"\W*\w+", text)
    return found[0] if found else text


def with_term(before: str, term: str) -> str:
    """Return the beginning of a translation with a term after it, with a capital at the beginning of the sentence.

    A stem goes on in the word that it begins, if the model wants it.
    """
    term = term.removesuffix(STEM)
    if not before.strip():
        return term[:1].upper() + term[1:]
    return with_space(before.rstrip() + " ", term) if before[-1:].isspace() or before[-1:].isalnum() else before + term
