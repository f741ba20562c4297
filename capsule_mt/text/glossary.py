"""Glossaries: terms of a source, and the translation that each must get."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from capsule_mt.text.sentences import Span
from capsule_mt.text.words import is_mark, target_words, with_space

WORD = re.compile(r"\w+")
SEPARATORS = re.compile(r"[\s\-\u2010\u2011]+")
MIN_SHARE_OF_BEST = 0.5  # a word beside the best one belongs to the same term from this part of its share
STEM = "*"  # at the end of a term: any ending
SEPARATOR = r"(?:\s+|\s*[-\u2010\u2011]\s*)"  # between the words of a term, which a hyphen may join


class Term(NamedTuple):
    """A term in a text: its characters there, and the words that the translation must have; a stem ends in `STEM`."""

    span: Span
    target: str

    @property
    def is_stem(self) -> bool:
        return self.target.endswith(STEM)


class Glossary:
    """Terms by their first word. The longest match counts, and matches do not overlap.

    Case matters only in terms with capitals after a first letter, such as "IT" or "iOS". A hyphen matches a space.
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
            parts = map(re.escape, SEPARATORS.split(term))
            pattern = re.compile(SEPARATOR.join(parts) + (r"\w*" if is_stem else r"(?!\w)"), flags)
            key = words[0][:1] if is_stem and len(words) == 1 else words[0]
            self._patterns.setdefault(key.casefold(), []).append((pattern, target or source))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "Glossary":
        """Read a file with `term<tab>translation` on each line; a term alone stays as it is."""
        from capsule_mt.files.reading import iterate_lines  # late: a dictionary does without

        terms: dict[str, str] = {}
        for line_number, line in enumerate(iterate_lines(path), start=1):
            columns = [column.strip() for column in line.split("\t")]
            if not any(columns) or line.startswith("#"):
                continue
            if len(columns) > 2 or not columns[0]:
                raise ValueError(
                    f"{path}, line {line_number}: a glossary has TERM<tab>TRANSLATION or TERM, got {line!r}"
                )
            if terms.get(columns[0], columns[-1]) != columns[-1]:
                raise ValueError(
                    f"{path}, line {line_number}: {columns[0]!r} is {terms[columns[0]]!r} above, and {columns[-1]!r} "
                    "here"
                )
            terms[columns[0]] = columns[-1]
        return cls(terms)

    def find(self, text: str, span: Span | None = None) -> list[Term]:
        """Return the terms in a text, or in a span of it, in order."""
        terms: list[Term] = []
        start, end = span or (0, len(text))
        for match in WORD.finditer(text, start, end):
            if terms and match.start() < terms[-1].span.end:
                continue
            word = match[0].casefold()
            for pattern, target in (*self._patterns.get(word, ()), *self._patterns.get(word[:1], ())):
                term = pattern.match(text, match.start(), end)
                if term is not None:
                    terms.append(Term(Span(*term.span()), target))
                    break
        return terms


def glossary_of(glossary: Glossary | Mapping[str, str] | str | os.PathLike[str] | None) -> Glossary | None:
    """Return a glossary, or make one from a dictionary or a file."""
    if glossary is None or isinstance(glossary, Glossary):
        return glossary
    return Glossary(glossary) if isinstance(glossary, Mapping) else Glossary.from_file(glossary)


def lacking(terms: Sequence[Term], translation: str) -> list[Term]:
    """Return the terms that a translation has less often than its source; their endings may differ."""
    missing = []
    counts: dict[str, int] = {}
    for term in terms:
        target = term.target.removesuffix(STEM)
        counts[target] = counts.get(target, 0) + 1
        if len(_beginning(target).findall(translation)) < counts[target]:
            missing.append(term)
    return missing


@cache
def _beginning(target: str) -> re.Pattern[str]:
    """Return a pattern for the beginning of a term in a translation, whatever its ending."""
    return re.compile(rf"(?<!\w){SEPARATOR.join(map(re.escape, SEPARATORS.split(target)))}", re.IGNORECASE)


def prefixes_with_term(
    terms: Sequence[tuple[Sequence[int], Term]],
    ids: Sequence[int],
    decode: Callable[[Sequence[int]], str],
    rows: Sequence[Sequence[float]],
    start: int,
) -> tuple[str, str]:
    """Return the prefix to force, so that a translation has the first of its missing terms.

    The term replaces the run of words that attends most to it in the source. The second result also has the next
    word; it is empty for a stem, since the model writes its ending.

    Args:
        terms: each with its tokens of the source.
        ids: the tokens of the translation.
        rows: how much each token of the translation attends to each token of the source [T][S].
        start: the offset in the translation from which it may change.
    """
    text, words = decode(ids), target_words(decode, ids)
    words = [(span, tokens) for span, tokens in words if span.start >= start and not is_mark(text[slice(*span)])]
    # with the leftmost term first, later passes keep what this prefix has and add the others after it
    span, term = min((_aligned_span(words, tokens, rows) or _end(text, start), term) for tokens, term in terms)
    prefix = with_term(text[: span.start], term.target)
    return prefix, "" if term.is_stem else prefix + next_word(text[span.end :])


def _aligned_span(
    words: Sequence[tuple[Span, Sequence[int]]], term_tokens: Sequence[int], rows: Sequence[Sequence[float]]
) -> Span | None:
    """Return the characters of the run of words that attends most to a term's tokens; `None` without words."""
    if not words:
        return None
    shares = [sum(rows[t][s] for t in tokens for s in term_tokens) / max(len(tokens), 1) for _, tokens in words]
    first = last = max(range(len(words)), key=lambda index: shares[index])
    threshold = MIN_SHARE_OF_BEST * shares[first]
    while first and shares[first - 1] > threshold:
        first -= 1
    while last + 1 < len(words) and shares[last + 1] > threshold:
        last += 1
    return Span(words[first][0].start, words[last][0].end)


def _end(text: str, start: int) -> Span:
    """Return the empty span before the marks at the end of a text, not before `start`."""
    end = max(start, len(text.rstrip(" .!?")))
    return Span(end, end)


def next_word(text: str) -> str:
    """Return the beginning of a text up to the end of its first word."""
    match = re.match(r"\W*\w+", text)
    return match[0] if match else text


def with_term(prefix: str, term: str) -> str:
    """Append a term to the beginning of a translation, with a capital at the beginning of the sentence.

    Of a stem, the model may write the ending.
    """
    term = term.removesuffix(STEM)
    if not prefix.strip():
        return term[:1].upper() + term[1:]
    return with_space(prefix.rstrip() + " ", term) if prefix[-1:].isspace() or prefix[-1:].isalnum() else prefix + term
