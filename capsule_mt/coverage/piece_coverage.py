"""The coverage of one piece by its translation, from the shares of its words."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from capsule_mt.coverage.curves import evidence_of, on_curve
from capsule_mt.text.reading import Piece
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import WORDS, SourceWord

CALIBRATED_THRESHOLD = 0.5  # for older calibrations, which do not store one
MIN_COPIED_LETTERS = 4  # shorter words often belong to both languages


class PieceCoverage(NamedTuple):
    """The coverage of one piece by one translation.

    covered, marked: for each word, the share that is translated, and whether the word is marked as left out.
    score: of the piece: the mean over the words that count, or its `completeness`, calibrated if there are curves.
    omitted_share: the mean share of a source word that is left out, before calibration.
    support: of the words of the translation, if that was requested.
    """

    covered: list[float]
    marked: list[bool]
    score: float
    omitted_share: float
    support: "PieceSupport | None" = None


class PieceSupport(NamedTuple):
    """How far a source supports each word of its translation, which words are marked, and the mean support."""

    spans: list[Span]
    supported: list[float]
    marked: list[bool]
    score: float


def piece_coverage(
    piece: Piece,
    covered: list[float],
    marked: list[bool],
    curves: Mapping[str, Any] | None,
    translation: str = "",
    *,
    by_curve: bool = True,
) -> PieceCoverage:
    """Calibrate, count unknown words as missing, copied ones as covered, and average over the words that count.

    Punctuation and optional words do not count, and function words only where they are marked. A calibrated score is
    at most the share of counted words that are not marked.

    by_curve: mark words whose calibrated share is below the threshold, and average calibrated shares. Otherwise, or
    without `curves`, keep `marked`, and average the shares before calibration.
    """
    shares, marks, counted = list[float](), list[bool](), list[tuple[float, bool]]()
    for word, value, mark in zip(piece.words, covered, marked, strict=True):
        share = value
        if curves is not None:
            share = 1.0 if word.is_exempt else on_curve(curves["words"], evidence_of(value))
            if by_curve:
                mark = share < curves.get("threshold", CALIBRATED_THRESHOLD) and not word.is_optional
        if word.is_unknown:
            value, share, mark = 0.0, 0.0, True
        if word.is_copied or (mark and _is_in_translation(piece, word, translation)):
            value, share, mark = 1.0, 1.0, False
        shares.append(share)
        marks.append(mark)
        if word.counts and (mark or not word.is_function):
            counted.append((share if by_curve else value, mark))
    score = 1.0
    if counted:
        score = sum(value for value, _ in counted) / len(counted)
        if curves is not None and by_curve:
            missing = sum(mark for _, mark in counted) / len(counted)
            score = min(on_curve(curves["sentences"], score), 1 - missing)
    return PieceCoverage(shares, marks, score, _omitted_share(piece, covered))


def _is_in_translation(piece: Piece, word: SourceWord, translation: str) -> bool:
    """Return whether a translation has a source word unchanged, at least as often as the source.

    Short words do not count: "a" and "no", say, are words of several languages.
    """
    text = piece.text[slice(*word.model_span)]
    if text not in translation or (len(text) < MIN_COPIED_LETTERS and text.isalpha() and text.isascii()):
        return False
    target_count, source_count = WORDS.findall(translation).count(text), WORDS.findall(piece.text).count(text)
    return target_count >= max(source_count, 1)


def _omitted_share(piece: Piece, covered: Sequence[float]) -> float:
    """Return the mean share of a word, punctuation excluded, that is left out."""
    shares = [1 - value for word, value in zip(piece.words, covered, strict=True) if not word.is_mark]
    return sum(shares) / max(len(shares), 1)
