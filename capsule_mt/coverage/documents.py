"""Join the coverages of a text's pieces, with words at the offsets of the user's string."""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from capsule_mt.checks.repetition import repeated_phrases
from capsule_mt.checks.rules import checks_of
from capsule_mt.coverage.names import CoveredBy
from capsule_mt.coverage.piece_coverage import PieceCoverage, PieceSupport
from capsule_mt.coverage.problems import made_up_indices
from capsule_mt.coverage.results import Coverage, SentenceCoverage, TargetWord, Word
from capsule_mt.text.segments import Document
from capsule_mt.text.vocabulary import folded
from capsule_mt.text.words import WORDS, is_mark


def coverage_of(
    document: Document,
    pieces: Sequence[PieceCoverage],
    translations: Sequence[tuple[str, int]],
    written: Sequence[str],
    threshold: float | None = None,
    method: CoveredBy | None = None,
    marks_single_words: bool = True,
    precision: float | None = None,
) -> Coverage:
    """Join the coverages of a text's pieces.

    Args:
        pieces: the coverage of each piece of the document.
        translations: the translation of each piece, and its offset in the translation of the text.
        written: the model's output for each piece, before anything was put back; `PieceSupport` refers to it.
        threshold: the score below which a sentence is an alarm.
        method: what marked the words.
        marks_single_words: whether words are also marked in sentences that do not raise the alarm. Words of the
            translation are, if some in a row are probably made up.
        precision: the share of such marks that a reader found right.
    """
    parts, weights = [], []
    rows = zip(document.pieces, pieces, translations, written, strict=True)
    for piece, coverage, (translation, offset), output in rows:
        words, weight, text = [], 0, document.text
        shows_marks = marks_single_words or (threshold is not None and coverage.score < threshold)
        for word, covered, marked in zip(piece.words, coverage.covered, coverage.marked, strict=True):
            is_marked = marked and not word.is_mark
            weight += is_marked or not (word.is_mark or word.is_optional or word.is_function)
            start, end = word.span
            words.append(Word(text[start:end], start, end, covered, is_marked and shows_marks))
        part = Coverage(
            coverage.score,
            tuple(words),
            (SentenceCoverage(*piece.span, score=coverage.score),),
            tuple(repeated_phrases(translation, text[piece.span.start : piece.span.end])),
        )
        if coverage.support is not None:
            target_words = tuple(_target_words(coverage.support, output, translation, offset))
            if not shows_marks and not made_up_indices([word.supported for word in target_words]):
                target_words = tuple(replace(word, marked=False) for word in target_words)
            part = replace(part, support=coverage.support.score, target_words=target_words)
        parts.append(part)
        weights.append(weight)
    for start, end in document.foreign:  # copied as it is, so none of it is left out
        matches = [match for match in WORDS.finditer(document.text, start, end) if not is_mark(match[0])]
        copied = tuple(Word(match[0], *match.span(), covered=1.0, marked=False) for match in matches)
        parts.append(Coverage(1.0, copied, (SentenceCoverage(start, end, score=1.0),), ()))
        weights.append(len(copied))
    return replace(joined(parts, weights, threshold, method), precision=precision)


def with_checks(coverage: Coverage, text: str, translation: str, languages: tuple[str | None, str | None]) -> Coverage:
    """Return a coverage with the faults that rules find in the translation of a text."""
    checks = checks_of(text, translation, *languages)
    return replace(coverage, checks=checks) if checks else coverage


def joined(
    parts: Sequence[Coverage], weights: Sequence[int], threshold: float | None, method: CoveredBy | None
) -> Coverage:
    """Join the coverages of a text's sentences; the score is their weighted mean."""
    total = sum(weights)
    weighted = sum(weight * part.score for weight, part in zip(weights, parts, strict=True))
    supports = [part.support for part in parts if part.support is not None]
    return Coverage(
        weighted / total if total else 1.0,
        tuple(sorted((word for part in parts for word in part.words), key=attrgetter("start"))),
        tuple(sentence for part in parts for sentence in part.sentences),
        tuple(phrase for part in parts for phrase in part.repetitions),
        threshold,
        sum(supports) / len(supports) if supports else None,
        tuple(word for part in parts for word in part.target_words),
        method=method,
    )


def _target_words(support: PieceSupport, output: str, translation: str, offset: int) -> list[TargetWord]:
    """Return the words of the model's output at their offsets in the text's translation.

    offset: of `translation`, which is the output with the case and the quotes of its source, tags and other kept text.
    """
    words, position = [], 0
    folded_output, folded_translation = folded(output), folded(translation)
    for (start, end), supported, marked in zip(support.spans, support.supported, support.marked, strict=True):
        word_start = folded_translation.find(folded_output[start:end], position)
        if word_start < 0:  # kept text replaced the word
            continue
        position = word_start + end - start
        word = translation[word_start:position]
        words.append(TargetWord(word, offset + word_start, offset + position, supported, marked))
    return words
