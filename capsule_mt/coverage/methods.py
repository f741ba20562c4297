"""How much of each source word a translation covers: by attention, by PAST and FUTURE, or by deleting the word.

Each function returns a `PieceCoverage` for one translation of one piece. `calibrate` in hf_capsule_mt fits the curves.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from capsule_mt.coverage.results import METHODS, CoveredBy
from capsule_mt.engine.search import Decoder, GuidedReading, Hypothesis, Ids, Readings
from capsule_mt.text.words import NO_LISTS, SourceWord, WordLists

# the logit of a share that float32 cannot tell from 0 or 1
LARGEST_EVIDENCE = 16.0
CALIBRATED_THRESHOLD = 0.5  # of curves that were fitted before they had one
# below these, a word is left out where no curves were fitted
ATTENTION_THRESHOLD, GUIDED_THRESHOLD, DELETION_THRESHOLD = 0.2, 0.8, 0.5
# a word whose FUTURE falls by less has not been seen to be translated
SMALLEST_FALL = 1e-3
# coverage begins to suffer when FUTURE holds more than 1 - 1 / 2.5, which is 0.6, of a word at the end
SHARE_AT_THE_END = 2.5

Curve = Sequence[Sequence[float]]


class PieceCoverage(NamedTuple):
    """What a translation of a piece covers.

    Of each word: how much of it is `covered`, whether it is `marked`, and its shares of `past` and `future` where
    guided routing was read. Of the piece: the mean coverage of the words that count, and the mean share of a source
    word that is `left` out.
    """

    covered: list[float]
    marked: list[bool]
    score: float
    left: float
    past: list[float] | None = None
    future: list[float] | None = None


class Covers(NamedTuple):
    """What is covered of a piece: its tokens and its words."""

    ids: Ids
    words: Sequence[SourceWord]


@dataclass(frozen=True)
class Calibration:
    """`coverage_calibration` of a checkpoint: curves and thresholds by method, and words that count less."""

    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lists: WordLists = NO_LISTS

    @classmethod
    def of_config(cls, values: Mapping[str, Any] | None) -> "Calibration":
        values = values or {}
        lists = (frozenset(values.get(name, ())) for name in ("optional_words", "function_words"))
        return cls({name: values[name] for name in METHODS if name in values}, WordLists(*lists))

    @property
    def head(self) -> tuple[int, int] | None:
        """The layer and the head of "attention"."""
        found = self.methods.get("attention")
        return None if found is None else (int(found["head"][0]), int(found["head"][1]))


def choose_method(method: str, calibration: Calibration, *, is_guided: bool, num_heads: int, name: str) -> CoveredBy:
    """Return what "auto" stands for with a model, and refuse a method that the model does not have."""
    if method == "auto":
        return "attention" if calibration.head is not None else "guided" if is_guided else "deletion"
    if method == "guided" and not is_guided:
        raise ValueError(f'`method="guided"` needs a model with guided routing, got {name}; "deletion" takes any')
    if method == "attention" and not num_heads:
        raise ValueError(
            f'`method="attention"` needs a decoder built like Marian\'s, got {name}; "deletion" takes any'
        )
    if method == "attention" and calibration.head is None:
        raise ValueError(
            '`method="attention"` needs a head that aligns words, which `capsule-mt calibrate` chooses; "deletion" '
            "needs none"
        )
    return method  # type: ignore[return-value]  # METHODS were checked


def readings_of(method: CoveredBy | None, calibration: Calibration) -> Readings | None:
    """Return what a search has to read for a method."""
    if method == "attention":
        return Readings(head=calibration.head)
    return Readings(guided=True) if method == "guided" else None


def cover(
    pieces: Sequence[Covers],
    hypotheses: Sequence[Hypothesis],
    method: CoveredBy,
    decoder: Decoder,
    calibration: Calibration,
    end: int,
) -> list[PieceCoverage]:
    """Return what a hypothesis of each piece covers; what its search has not read is read by a forced pass.

    end: the end token.
    """
    if method == "deletion":
        return list(_by_deletion(pieces, hypotheses, decoder, calibration))
    unread = [
        n for n, found in enumerate(hypotheses) if (found.received if method == "attention" else found.guided) is None
    ]
    if unread:
        sources, targets = ([pieces[n].ids for n in unread], [hypotheses[n].ids for n in unread])
        readings = readings_of(method, calibration) or Readings()
        for number, forced in zip(unread, decoder.force(sources, targets, readings), strict=True):
            hypotheses[number].read(forced, end)
    curves = calibration.methods.get(method)
    found = []
    for piece, hypothesis in zip(pieces, hypotheses, strict=True):
        if method == "attention":
            found.append(attention_coverage(piece, hypothesis.received or [], curves))
        else:
            found.append(guided_coverage(piece, hypothesis.guided, curves))
    return found


def attention_coverage(piece: Covers, received: Sequence[float], curves: Mapping[str, Any] | None) -> PieceCoverage:
    """Cover a word by the most attention that any of its tokens receives."""
    covered = [
        1.0 if word.is_mark else max((received[token] for token in word.tokens), default=0.0) for word in piece.words
    ]
    fitted = curves if curves and "words" in curves else None  # there are none while `calibrate` fits them
    return _finished(piece, covered, [value < ATTENTION_THRESHOLD for value in covered], _left(piece, covered), fitted)


def guided_coverage(piece: Covers, reading: GuidedReading | None, curves: Mapping[str, Any] | None) -> PieceCoverage:
    """Cover a word by how much of what left FUTURE left it with tokens that the model agreed to (SPEC, section 3).

    A word that never was in FUTURE is covered; one that is mostly FUTURE at the end is covered the less for it.
    """
    if reading is None:
        raise RuntimeError("PAST and FUTURE were not read")
    by_token = [
        (agreed / fall if fall > SMALLEST_FALL else 1.0) * min(1.0, SHARE_AT_THE_END * (1.0 - future))
        for future, fall, agreed in zip(reading.future, reading.fall, reading.agreed, strict=True)
    ]
    past, future, covered, missing = (
        [sum(values[token] for token in word.tokens) / max(len(word.tokens), 1) for word in piece.words]
        for values in (
            reading.past,
            reading.future,
            by_token,
            [float(value < GUIDED_THRESHOLD) for value in by_token],
        )
    )
    tokens = sorted({token for word in piece.words for token in word.tokens})
    left = sum(reading.future[token] for token in tokens) / max(len(tokens), 1)
    found = _finished(piece, covered, [share >= 0.5 for share in missing], left, curves)
    return found._replace(past=past, future=future)


# tokens that are scored at once
TOKENS_AT_ONCE = 4096


def _by_deletion(
    pieces: Sequence[Covers], hypotheses: Sequence[Hypothesis], decoder: Decoder, calibration: Calibration
) -> Iterator[PieceCoverage]:
    """Cover a word by p / (p + q): p of the translation, and q without the word (Vamvas and Sennrich 2022)."""
    curves = calibration.methods.get("deletion")
    for piece, hypothesis in zip(pieces, hypotheses, strict=True):
        words = [word.tokens for word in piece.words if not word.is_mark]
        whole, *without = _without_each(piece.ids, hypothesis.ids, words, decoder)
        gains = iter([sum(whole) - sum(log_probs) for log_probs in without])
        covered = [1.0 if word.is_mark else _sigmoid(next(gains)) for word in piece.words]
        marked = [value < DELETION_THRESHOLD for value in covered]
        yield _finished(piece, covered, marked, _left(piece, covered), curves)


def deletion_gains_by_token(source: Ids, target: Ids, decoder: Decoder) -> list[list[float]]:
    """Return by how many nats each source token helps each token of a translation [T][S]."""
    whole, *without = _without_each(source, target, [[place] for place in range(len(source))], decoder)
    return [[own - log_probs[step] for log_probs in without] for step, own in enumerate(whole)]


def _without_each(source: Ids, target: Ids, words: Sequence[Sequence[int]], decoder: Decoder) -> list[list[float]]:
    """Return the log-probabilities of a translation's tokens: by the whole source, and without each of its words."""
    sources: list[Ids] = [source]
    for tokens in words:
        left_out = frozenset(tokens)
        sources.append([token for place, token in enumerate(source) if place not in left_out] or [source[-1]])
    at_once, found = max(1, TOKENS_AT_ONCE // max(len(source), len(target), 1)), list[list[float]]()
    for first in range(0, len(sources), at_once):
        some = sources[first : first + at_once]
        found += [forced.log_probs for forced in decoder.force(some, [target] * len(some), Readings())]
    return found


def _finished(
    piece: Covers,
    covered: list[float],
    marked: list[bool],
    left: float,
    curves: Mapping[str, Any] | None,
) -> PieceCoverage:
    """Calibrate, count unknown words as missing, and average over the words that count.

    Marks and optional words do not count, and function words only where they are marked. A calibrated score is at most
    the share of these words that is not marked.
    """
    words = piece.words
    if curves is not None:
        threshold = curves.get("threshold", CALIBRATED_THRESHOLD)
        covered = [
            1.0 if word.is_mark else on_curve(curves["words"], evidence_of(value))
            for word, value in zip(words, covered, strict=True)
        ]
        marked = [value < threshold and not word.is_optional for word, value in zip(words, covered, strict=True)]
    covered = [0.0 if word.is_unknown else value for word, value in zip(words, covered, strict=True)]
    marked = [mark or word.is_unknown for word, mark in zip(words, marked, strict=True)]
    counted = [
        (value, mark)
        for word, value, mark in zip(words, covered, marked, strict=True)
        if not word.is_mark and not word.is_optional and (mark or not word.is_function)
    ]
    score = 1.0
    if counted:
        score = sum(value for value, _ in counted) / len(counted)
        if curves is not None:
            missing = sum(mark for _, mark in counted) / len(counted)
            score = min(on_curve(curves["sentences"], score), 1 - missing)
    return PieceCoverage(covered, marked, score, left)


def _left(piece: Covers, covered: Sequence[float]) -> float:
    """The mean share of a word, marks apart, that is left out."""
    shares = [1 - value for word, value in zip(piece.words, covered, strict=True) if not word.is_mark]
    return sum(shares) / max(len(shares), 1)


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0


def evidence_of(covered: float) -> float:
    """Return the logit of a share, within bounds: by deletion, how much a word helps the translation, in nats."""
    if not 0.0 < covered < 1.0:
        return math.copysign(LARGEST_EVIDENCE, covered - 0.5)
    return min(max(math.log(covered / (1 - covered)), -LARGEST_EVIDENCE), LARGEST_EVIDENCE)


def on_curve(points: Curve, value: float) -> float:
    """Read a curve of points (x, y), by linear interpolation; constant beyond its ends."""
    if len(points) == 1:
        return points[0][1]
    right = 1
    while right < len(points) - 1 and points[right][0] < value:
        right += 1
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    return y0 + min(max((value - x0) / (x1 - x0), 0.0), 1.0) * (y1 - y0)
