"""What a translation of a whole text left out, word by word of the user's string."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from capsule_mt.coverage.methods import PieceCoverage, PieceSupport
from capsule_mt.coverage.results import Coverage, SentenceCoverage, TargetWord, Word
from capsule_mt.text.segments import Document
from capsule_mt.text.words import WORDS, is_mark

LONGEST_REPEATED_PHRASE = 6


def coverage_of(
    document: Document,
    found: Sequence[PieceCoverage],
    translations: Sequence[tuple[str, int]],
    written: Sequence[str],
    threshold: float | None = None,
) -> Coverage:
    """Join the coverages of a text's pieces.

    Args:
        translations: of each piece, and where it begins in the translation of the text.
        written: what the model wrote for each piece, in which the words of `PieceSupport` are.
        threshold: the score below which a sentence is an alarm.
    """
    parts, weights = [], []
    pieces = zip(document.pieces, found, translations, written, strict=True)
    for piece, coverage, (translation, begins), text in pieces:
        words, weight = [], 0
        for number, word in enumerate(piece.words):
            is_marked = coverage.marked[number] and not word.is_mark
            weight += is_marked or not (word.is_mark or word.is_optional or word.is_function)
            shares = (None if values is None else values[number] for values in (coverage.past, coverage.future))
            start, end = word.span
            words.append(Word(document.text[start:end], start, end, coverage.covered[number], is_marked, *shares))
        part = Coverage(
            coverage.score,
            tuple(words),
            (SentenceCoverage(*piece.span, score=coverage.score),),
            tuple(repeated_phrases(translation, document.text[piece.span.start : piece.span.end])),
        )
        if coverage.support is not None:
            target_words = tuple(_target_words(coverage.support, text, translation, begins))
            part = replace(part, support=coverage.support.score, target_words=target_words)
        parts.append(part)
        weights.append(weight)
    for start, end in document.foreign:
        matches = [match for match in WORDS.finditer(document.text, start, end) if not is_mark(match[0])]
        copied = tuple(Word(match[0], *match.span(), covered=1.0, marked=False) for match in matches)
        parts.append(Coverage(1.0, copied, (SentenceCoverage(start, end, score=1.0),), ()))
        weights.append(len(copied))
    return joined(parts, weights, threshold)


def joined(parts: Sequence[Coverage], weights: Sequence[int], threshold: float | None) -> Coverage:
    """Join the coverages of a text's sentences; the scores of heavier ones count for more."""
    total = sum(weights)
    weighted = sum(weight * part.score for weight, part in zip(weights, parts, strict=True))
    supports = [part.support for part in parts if part.support is not None]
    return Coverage(
        weighted / total if total else 1.0,
        tuple(sorted((word for part in parts for word in part.words), key=lambda word: word.start)),
        tuple(sentence for part in parts for sentence in part.sentences),
        tuple(phrase for part in parts for phrase in part.repetitions),
        threshold,
        sum(supports) / len(supports) if supports else None,
        tuple(word for part in parts for word in part.target_words),
    )


def _target_words(support: PieceSupport, written: str, translation: str, begins: int) -> list[TargetWord]:
    """Return the words that the model wrote, where they are in a translation in which something was put back."""
    found, place = [], 0
    for (start, end), supported, marked in zip(support.places, support.supported, support.marked, strict=True):
        word = written[start:end]
        at = translation.find(word, place)
        if at < 0 and not start and translation.startswith(word[:1].upper() + word[1:]):
            at = 0  # the first letter is the source's
        if at < 0:  # another word took its place
            continue
        place = at + end - start
        found.append(TargetWord(written[start:end], begins + at, begins + place, supported, marked))
    return found


def repeated_phrases(translation: str, source: str) -> list[str]:
    """Return the phrases that a translation says twice in a row, unless its source repeats itself as often."""
    found = _doubled(translation)
    return list(found) if found and sum(found.values()) > sum(_doubled(source).values()) else []


def _doubled(text: str) -> Counter[str]:
    """Count the phrases that are followed by themselves."""
    words = [match[0].casefold() for match in WORDS.finditer(text)]
    found: Counter[str] = Counter()
    if len(set(words)) == len(words):
        return found
    place = 0
    while place < len(words):
        for length in range(LONGEST_REPEATED_PHRASE, 0, -1):
            phrase = words[place : place + length]
            follows = words[place + length : place + 2 * length] == phrase
            if follows and any(character.isalnum() for word in phrase for character in word):
                found[" ".join(phrase)] += 1
                place += length
                break
        else:
            place += 1
    return found
