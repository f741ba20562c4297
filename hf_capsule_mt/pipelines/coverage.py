"""What a translation left out, word by word of the user's string."""

from collections import Counter

from capsule_mt.text.segments import Document
from capsule_mt.text.words import WORDS
from hf_capsule_mt.pipelines.decoding import Hypotheses
from hf_capsule_mt.pipelines.results import Coverage, SentenceCoverage, Word

LONGEST_REPEATED_PHRASE = 6


def coverage_of(document: Document, found: list[Hypotheses], rank: int, translations: list[str]) -> Coverage:
    """Return the coverage of a text by its translation of some rank, whose text is given for each piece."""
    words: list[Word] = []
    sentences, weights, repetitions = [], [], []
    for piece, hypotheses, translation in zip(document.pieces, found, translations, strict=True):
        coverage = hypotheses.coverage
        if coverage is None:
            raise RuntimeError("the piece was translated without coverage")
        sentences.append(SentenceCoverage(*piece.span, score=float(coverage.score[rank])))
        repetitions += repeated_phrases(translation, document.text[piece.span.start : piece.span.end])
        of_words = (coverage.past, coverage.future, coverage.covered, coverage.untranslated)
        values = (tensor[rank].tolist() for tensor in of_words)
        weights.append(0)
        for word, past, future, covered, untranslated in zip(piece.words, *values, strict=False):
            text = document.text[word.span.start : word.span.end]
            is_missing = untranslated and not word.is_mark
            weights[-1] += is_missing or not (word.is_mark or word.is_optional or word.is_function)
            words.append(Word(text, word.span.start, word.span.end, past, future, covered, is_missing))
    weighted = sum(weight * sentence.score for weight, sentence in zip(weights, sentences, strict=True))
    score = weighted / sum(weights) if sum(weights) else 1.0
    return Coverage(score, tuple(words), tuple(sentences), tuple(repetitions))


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
