"""Glossaries: source terms and their required translations."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from capsule_mt.messages import check_path
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import CJK, is_mark, runs_on, target_words

WORD = re.compile(rf"(?=\w){CJK}|(?:(?!{CJK})\w)+")  # Chinese and Japanese have no spaces between words
INSIDE_WORD = re.compile(rf"(?<!{CJK})(?<=\w)(?!{CJK})(?=\w)")
SEPARATORS = re.compile(r"[\s\-\u2010\u2011]+")
# a word next to the one that attends most to a term belongs to the term, too, if it has this share of its attention
MIN_SHARE_OF_BEST = 0.5
STEM = "*"  # at the end of a term: any ending
SEPARATOR = r"(?:\s+|\s*[-\u2010\u2011]\s*)"  # between the words of a term, which a hyphen may join


class Term(NamedTuple):
    """A term in a source text."""

    span: Span
    target: str  # its required translation; ends in `STEM` if the model may choose the ending

    @property
    def is_stem(self) -> bool:
        return self.target.endswith(STEM)


class Glossary:
    """Terms and their translations. Matches do not overlap: the leftmost counts, and from one start the longest.

    Case matters only in terms with capitals after a first letter, such as "IT" or "iOS". A hyphen matches a space.
    """

    def __init__(self, terms: Mapping[str, str]) -> None:
        # keyed by the first word of a term; stems of a single word by their first letter
        self._patterns: dict[str, list[tuple[re.Pattern[str], str]]] = {}
        self.terms = dict(terms)
        for source, target in sorted(self.terms.items(), key=lambda term: -len(str(term[0]))):
            if not isinstance(source, str) or not isinstance(target, str):
                raise TypeError(f"a glossary maps strings to strings, got {source!r}: {target!r}")
            words = WORD.findall(source)
            if not words:
                raise ValueError(f"a term of a glossary needs a word, got {source!r} -> {target!r}")
            is_stem, term = source.endswith(STEM), source[source.index(words[0]) :].removesuffix(STEM).strip()
            flags = 0 if any(map(str.isupper, "".join(word[1:] for word in words))) else re.IGNORECASE
            parts = map(re.escape, SEPARATORS.split(term))
            pattern = re.compile(SEPARATOR.join(parts) + r"\w*" * is_stem, flags)
            key = words[0][:1] if is_stem and len(words) == 1 else words[0]
            self._patterns.setdefault(key.casefold(), []).append((pattern, target or source))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "Glossary":
        """Read lines of `term<tab>translation`, without blank and `#` ones; a term without a translation stays."""
        from capsule_mt.files.reading import iterate_lines  # late: only for files

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
                if term is not None and not INSIDE_WORD.match(text, term.end(), end):
                    terms.append(Term(Span(*term.span()), target))
                    break
        return terms


def glossary_of(glossary: Glossary | Mapping[str, str] | str | os.PathLike[str] | None) -> Glossary | None:
    """Return a glossary, or `None`, as it is, or one made from a dictionary or a file."""
    if glossary is None or isinstance(glossary, Glossary):
        return glossary
    if isinstance(glossary, Mapping):
        return Glossary(glossary)
    check_path(glossary, "glossary", "a dictionary or a file")
    return Glossary.from_file(glossary)


def missing_terms(terms: Sequence[Term], translation: str) -> list[Term]:
    """Return the terms that occur less often in a translation than in its source. Endings may differ."""
    missing = []
    counts: dict[str, int] = {}
    for term in terms:
        target = term.target.removesuffix(STEM)
        counts[target] = counts.get(target, 0) + 1
        if len(_pattern_of(target).findall(translation)) < counts[target]:
            missing.append(term)
    return missing


@cache
def _pattern_of(target: str) -> re.Pattern[str]:
    """Return a pattern for a term in a translation, with any ending."""
    start = "" if re.match(CJK, target) else r"(?<!\w)"
    return re.compile(f"{start}{SEPARATOR.join(map(re.escape, SEPARATORS.split(target)))}", re.IGNORECASE)


def prefixes_with_term(
    terms: Sequence[tuple[Sequence[int], Term]],
    ids: Sequence[int],
    decode: Callable[[Sequence[int]], str],
    rows: Sequence[Sequence[float]],
    start: int,
) -> tuple[str, str]:
    """Return two prefixes to force, so that a translation gets the first of its missing terms.

    The term replaces the words of the translation that attend most to it. The second prefix also has the word after
    it; it is empty for a stem, whose ending the model writes.

    Args:
        terms: the missing terms, each with its tokens in the source.
        ids: the tokens of the translation.
        rows: how much each token of the translation attends to each token of the source [T][S].
        start: the first offset in the translation that may change.
    """
    text, words = decode(ids), target_words(decode, ids)
    words = [(span, tokens) for span, tokens in words if span.start >= start and not is_mark(text[slice(*span)])]
    # take the leftmost term: later passes keep this prefix and add the other terms after it
    span, term = min((_aligned_span(words, tokens, rows) or _end(text, start), term) for tokens, term in terms)
    prefix = with_term(text[: span.start], term.target, is_capitalized=not text[:1].islower())
    return prefix, "" if term.is_stem else prefix + next_word(text[span.end :])


def _aligned_span(
    words: Sequence[tuple[Span, Sequence[int]]], term_tokens: Sequence[int], rows: Sequence[Sequence[float]]
) -> Span | None:
    """Return the span of the adjacent words that attend most to a term's tokens; `None` without words."""
    if not words:
        return None
    # for each word, the attention of a token to the term, on average
    shares = [
        sum(rows[token][term_token] for token in tokens for term_token in term_tokens) / max(len(tokens), 1)
        for _, tokens in words
    ]
    first = last = max(range(len(words)), key=lambda index: shares[index])
    threshold = MIN_SHARE_OF_BEST * shares[first]
    while first and shares[first - 1] > threshold:
        first -= 1
    while last + 1 < len(words) and shares[last + 1] > threshold:
        last += 1
    return Span(words[first][0].start, words[last][0].end)


def _end(text: str, start: int) -> Span:
    """Return the empty span before a text's final punctuation, but at least at `start`."""
    end = max(start, len(text.rstrip(" .!?")))
    return Span(end, end)


def next_word(text: str) -> str:
    """Return a text up to the end of its first word."""
    match = re.match(r"\W*\w+", text)
    return match[0] if match else text


def with_term(prefix: str, term: str, *, is_capitalized: bool = True) -> str:
    """Append a term to a prefix of a translation. A stem is appended without its mark, as the model writes the ending.

    Args:
        is_capitalized: whether a term that starts the translation gets a capital.
    """
    term = term.removesuffix(STEM)
    if not prefix.strip():
        return term[:1].upper() + term[1:] if is_capitalized else term
    ends_in_word = prefix[-1:].isspace() or prefix[-1:].isalnum()
    return f"{prefix.rstrip()} {term}" if ends_in_word and not runs_on(prefix, term) else prefix + term
