"""What a translation of a whole text left out, word by word of the user's string."""

from collections import Counter
from collections.abc import Sequence

from capsule_mt.coverage.methods import PieceCoverage
from capsule_mt.coverage.results import Coverage, SentenceCoverage, Word
from capsule_mt.text.segments import Document
from capsule_mt.text.words import WORDS, is_mark

LONGEST_REPEATED_PHRASE = 6


def coverage_of(document: Document, found: Sequence[PieceCoverage], translations: Sequence[str]) -> Coverage:
    """Return the coverage of a text from that of its pieces, whose translations are given."""
    words: list[Word] = []
    sentences: list[SentenceCoverage] = []
    repetitions: list[str] = []
    weights: list[int] = []
    for piece, coverage, translation in zip(document.pieces, found, translations, strict=True):
        sentences.append(SentenceCoverage(*piece.span, score=coverage.score))
        repetitions += repeated_phrases(translation, document.text[piece.span.start : piece.span.end])
        weights.append(0)
        for number, word in enumerate(piece.words):
            is_marked = coverage.marked[number] and not word.is_mark
            weights[-1] += is_marked or not (word.is_mark or word.is_optional or word.is_function)
            shares = (None if values is None else values[number] for values in (coverage.past, coverage.future))
            start, end = word.span
            words.append(Word(document.text[start:end], start, end, coverage.covered[number], is_marked, *shares))
    for start, end in document.foreign:
        sentences.append(SentenceCoverage(start, end, score=0.0))
        found_words = [match for match in WORDS.finditer(document.text, start, end) if not is_mark(match[0])]
        weights.append(len(found_words))
        words += [Word(match[0], *match.span(), covered=0.0, marked=True) for match in found_words]
    words.sort(key=lambda word: word.start)
    total = sum(weights)
    weighted = sum(weight * sentence.score for weight, sentence in zip(weights, sentences, strict=True))
    return Coverage(weighted / total if total else 1.0, tuple(words), tuple(sentences), tuple(repetitions))


def repeated_phrases(translation: str, source: str) -> list[str]:
    """Return the phrases that a translation says twice in a row, unless its source repeats itself as often."""
    allowed = sum(_doubled(source).values())
    found = _doubled(translation)
    return [] if sum(found.values()) <= allowed else list(found)


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
            is_phrase = len(phrase) == length and any(character.isalnum() for word in phrase for character in word)
            if is_phrase and words[place + length : place + 2 * length] == phrase:
                found[" ".join(phrase)] += 1
                place += length
                break
        else:
            place += 1
    return found
