"""How much of each source word a translation covers: by attention, a reverse model, PAST and FUTURE, or deletion.

Each function returns a `PieceCoverage` for one translation of one piece. `calibrate` in hf_capsule_mt fits the curves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from capsule_mt.coverage.completeness import completeness, gap_of
from capsule_mt.coverage.curves import evidence_of, on_curve, sigmoid
from capsule_mt.coverage.names import METHODS, CoveredBy, Marks
from capsule_mt.coverage.supported import SUPPORT_POINTS, attended, support_doubts, support_share
from capsule_mt.coverage.verified import (
    POINTS,
    Candidate,
    Read,
    Reverse,
    covered_share,
    doubts,
    offsets_of,
    without_tokens,
)
from capsule_mt.engine.search import Decoder, GuidedReading, Hypothesis, Ids, Readings
from capsule_mt.text.lengths import ExpectedLength
from capsule_mt.text.segments import Piece
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import NO_LISTS, WORDS, SourceWord, WordLists, is_mark

CALIBRATED_THRESHOLD = 0.5  # of curves that were fitted before they had one
LEAST_STANDING = 4  # letters of a word
# below these, a word is left out where no curves were fitted
ATTENTION_THRESHOLD, GUIDED_THRESHOLD, DELETION_THRESHOLD = 0.2, 0.8, 0.5
# a word whose FUTURE falls by less has not been seen to be translated
SMALLEST_FALL = 1e-3
# coverage begins to suffer when FUTURE holds more than 1 - 1 / 2.5, which is 0.6, of a word at the end
SHARE_AT_THE_END = 2.5


class PieceCoverage(NamedTuple):
    """What a translation of a piece covers.

    Of each word: how much of it is `covered`, whether it is `marked`, and its shares of `past` and `future` where
    guided routing was read. Of the piece: the mean coverage of the words that count, and the mean share of a source
    word that is `left` out; and what `support` its translation has, where that was read.
    """

    covered: list[float]
    marked: list[bool]
    score: float
    left: float
    past: list[float] | None = None
    future: list[float] | None = None
    support: "PieceSupport | None" = None


class PieceSupport(NamedTuple):
    """How much a source supports the words at these places of its translation, which of them it does not, the mean."""

    places: list[Span]
    supported: list[float]
    marked: list[bool]
    score: float


class Verifier(NamedTuple):
    """What verifies marks: a model of the other direction, and the text of a translation's tokens.

    support: whether words of the translation that the source does not support are wanted, too.
    by_shortlist: whether a hypothesis was scored among a shortlist's tokens, and not by a forced pass.
    """

    reverse: Reverse
    decode: Callable[[Ids], str]
    marks: Marks = "likely"
    support: bool = False
    by_shortlist: bool = False


@dataclass(frozen=True)
class Calibration:
    """`coverage_calibration` of a checkpoint: curves and thresholds by method, and words that count less.

    length: how long a translation should be, where that was learnt.
    """

    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lists: WordLists = NO_LISTS
    support: Mapping[str, Any] = field(default_factory=dict)
    length: ExpectedLength | None = None

    @classmethod
    def of_config(cls, values: Mapping[str, Any] | None) -> "Calibration":
        values = values or {}
        lists = (frozenset(values.get(name, ())) for name in ("optional_words", "function_words"))
        methods = {name: values[name] for name in METHODS if name in values}
        length = ExpectedLength.of_calibration(values["length"]) if "length" in values else None
        return cls(methods, WordLists(*lists), values.get("support", {}), length)

    @property
    def head(self) -> tuple[int, int] | None:
        """The layer and the head of "attention"."""
        found = self.methods.get("attention")
        return None if found is None else (int(found["head"][0]), int(found["head"][1]))

    @property
    def reverse(self) -> str | None:
        """The name of the model of the other direction that the marks were fitted with."""
        return self.methods.get("verified", {}).get("reverse")

    def alarm(self, method: CoveredBy) -> float | None:
        """The score below which a sentence has probably lost something."""
        found = self.methods.get(method, {}).get("alarm")
        return None if found is None else float(found["score"])


def choose_method(
    method: str, calibration: Calibration, *, is_guided: bool, num_heads: int, name: str, has_reverse: bool = False
) -> CoveredBy:
    """Return what "auto" stands for with a model, and refuse a method that the model does not have."""
    if method == "auto" and has_reverse and calibration.head is not None:
        return "verified"
    if method == "auto":
        return "attention" if calibration.head is not None else "guided" if is_guided else "deletion"
    if method == "guided" and not is_guided:
        raise ValueError(f'`method="guided"` needs a model with guided routing, got {name}; "deletion" takes any')
    if method == "verified" and not has_reverse:
        raise ValueError(f'`method="verified"` needs a model of the other direction: give {name} a `reverse`')
    if method in ("attention", "verified") and not num_heads:
        raise ValueError(f'`method="{method}"` needs a decoder built like Marian\'s, got {name}; "deletion" takes any')
    if method in ("attention", "verified") and calibration.head is None:
        raise ValueError(
            f'`method="{method}"` needs a head that aligns words, which `capsule-mt calibrate` chooses; "deletion" '
            "needs none"
        )
    return method  # type: ignore[return-value]  # METHODS were checked


def readings_of(method: CoveredBy | None, calibration: Calibration) -> Readings | None:
    """Return what a search has to read for a method."""
    if method in ("attention", "verified"):
        return Readings(head=calibration.head)
    return Readings(guided=True) if method == "guided" else None


def cover(
    pieces: Sequence[Piece],
    hypotheses: Sequence[Hypothesis],
    method: CoveredBy,
    decoder: Decoder,
    calibration: Calibration,
    end: int,
    verifier: Verifier | None = None,
    decode: Callable[[Ids], str] = lambda ids: "",
) -> list[PieceCoverage]:
    """Return what a hypothesis of each piece covers; what its search has not read is read by a forced pass.

    end: the end token. decode: return the text of a translation, in which copied words stand.
    """
    found: list[PieceCoverage] = []
    reads: list[Read | None] | None = None
    texts = [decode(one.ids) for one in hypotheses]
    if verifier is not None and verifier.support:  # of every translation, which also serves to verify
        reads = verifier.reverse.read(texts, [piece.text for piece in pieces], with_head=True)
    if method == "deletion":
        found = list(_by_deletion(pieces, hypotheses, texts, decoder, calibration))
    else:
        _read(hypotheses, [piece.ids for piece in pieces], method, decoder, calibration, end)
    curves = calibration.methods.get(method)
    if method == "attention":
        found = [
            attention_coverage(piece, one.received or [], curves, text)
            for piece, one, text in zip(pieces, hypotheses, texts, strict=True)
        ]
    elif method == "guided":
        found = [
            guided_coverage(piece, one.guided, curves, text)
            for piece, one, text in zip(pieces, hypotheses, texts, strict=True)
        ]
    elif method == "verified" and verifier is not None:
        found = _verified(pieces, hypotheses, texts, decoder, calibration, verifier, reads)
    if verifier is not None and reads is not None:
        supports = _supports(hypotheses, texts, calibration.support, verifier, reads)
        found = [one._replace(support=support) for one, support in zip(found, supports, strict=True)]
    return found


def _read(
    hypotheses: Sequence[Hypothesis],
    sources: Sequence[Ids],
    method: CoveredBy,
    decoder: Decoder,
    calibration: Calibration,
    end: int,
) -> None:
    """Read by a forced pass what the search of a hypothesis has not read."""
    unread = [
        n for n, found in enumerate(hypotheses) if (found.guided if method == "guided" else found.attention) is None
    ]
    if unread:
        targets, readings = [hypotheses[n].ids for n in unread], readings_of(method, calibration) or Readings()
        forced = decoder.force([sources[n] for n in unread], targets, readings)
        for number, one in zip(unread, forced, strict=True):
            hypotheses[number].read(one, end)


def _attention(piece: Piece, received: Sequence[float]) -> list[float]:
    """Return for each word the most attention that any of its tokens receives; 1 for a mark."""
    return [
        1.0 if word.is_exempt else max((received[token] for token in word.tokens), default=0.0) for word in piece.words
    ]


def attention_coverage(
    piece: Piece, received: Sequence[float], curves: Mapping[str, Any] | None, translation: str = ""
) -> PieceCoverage:
    """Cover a word by the most attention that any of its tokens receives."""
    covered = _attention(piece, received)
    fitted = curves if curves and "words" in curves else None  # there are none while `calibrate` fits them
    marked = [value < ATTENTION_THRESHOLD for value in covered]
    return _finished(piece, covered, marked, _left(piece, covered), fitted, translation)


def guided_coverage(
    piece: Piece, reading: GuidedReading | None, curves: Mapping[str, Any] | None, translation: str = ""
) -> PieceCoverage:
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
    found = _finished(piece, covered, [share >= 0.5 for share in missing], left, curves, translation)
    return found._replace(past=past, future=future)


def _verified(
    pieces: Sequence[Piece],
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    decoder: Decoder,
    calibration: Calibration,
    verifier: Verifier,
    reads: Sequence[Read | None] | None,
) -> list[PieceCoverage]:
    """Cover a word the more, the smaller its doubt (see `verified`), and score a piece by its `completeness`."""
    fitted, length = calibration.methods.get("verified", {}), calibration.length
    curves, threshold = fitted if "words" in fitted else None, POINTS[verifier.marks]
    candidates = [
        Candidate(
            piece,
            text,
            hypothesis.ids,
            _attention(piece, hypothesis.received or []),
            [not (word.is_exempt or word.is_optional or word.is_unknown) for word in piece.words],
            None if verifier.by_shortlist else sum(hypothesis.log_probs),
        )
        for piece, hypothesis, text in zip(pieces, hypotheses, texts, strict=True)
    ]
    found = []
    by_piece = doubts(candidates, decoder, verifier.reverse, min(threshold, POINTS["likely"]), reads)
    for piece, candidate, of_words in zip(pieces, candidates, by_piece, strict=True):
        covered = [
            1.0 if word.is_exempt else covered_share(one) for word, one in zip(piece.words, of_words, strict=True)
        ]
        marked = [is_open and one > threshold for is_open, one in zip(candidate.is_open, of_words, strict=True)]
        left, text = _left(piece, covered), candidate.translation
        result = _finished(piece, covered, marked, left, curves, text, by_curve=False)
        if curves is not None:
            whole = result.score
            if (weight := curves.get("shortness")) is not None:  # else the calibration knows of words alone
                short = 0.0 if length is None else length.shortness(piece.text, candidate.translation)
                counted = [share for word, share in zip(piece.words, candidate.attention, strict=True) if word.counts]
                whole = completeness(whole, short, gap_of(counted), weight)
            result = result._replace(score=on_curve(curves["sentences"], whole))
        found.append(result)
    return found


def _supports(
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    fitted: Mapping[str, Any],
    verifier: Verifier,
    reads: Sequence[Read | None],
) -> Iterator[PieceSupport]:
    """Yield which words of each translation its source supports."""
    optional, threshold = frozenset(fitted.get("optional_words", ())), SUPPORT_POINTS[verifier.marks]
    for hypothesis, text, read in zip(hypotheses, texts, reads, strict=True):
        words = [pair for pair in attended(text, read) if not is_mark(text[pair[0].start : pair[0].end])]
        offsets = offsets_of(text, hypothesis.ids, verifier.decode)
        doubts_of = support_doubts(text, offsets, hypothesis.log_probs, words)
        is_open = [text[span.start : span.end].casefold() not in optional for span, _ in words]
        marked = [may and doubt > threshold for may, doubt in zip(is_open, doubts_of, strict=True)]
        shares = [support_share(doubt) for doubt in doubts_of]
        counted = [share for may, share in zip(is_open, shares, strict=True) if may]
        score = sum(counted) / len(counted) if counted else 1.0
        yield PieceSupport([span for span, _ in words], shares, marked, score)


# tokens that are scored at once
TOKENS_AT_ONCE = 4096


def _by_deletion(
    pieces: Sequence[Piece],
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    decoder: Decoder,
    calibration: Calibration,
) -> Iterator[PieceCoverage]:
    """Cover a word by p / (p + q): p of the translation, and q without the word (Vamvas and Sennrich 2022)."""
    curves = calibration.methods.get("deletion")
    for piece, hypothesis, text in zip(pieces, hypotheses, texts, strict=True):
        words = [word.tokens for word in piece.words if not word.is_exempt]
        whole, *without = _without_each(piece.ids, hypothesis.ids, words, decoder)
        gains = iter([sum(whole) - sum(log_probs) for log_probs in without])
        covered = [1.0 if word.is_exempt else sigmoid(next(gains)) for word in piece.words]
        marked = [value < DELETION_THRESHOLD for value in covered]
        yield _finished(piece, covered, marked, _left(piece, covered), curves, text)


def deletion_gains_by_token(source: Ids, target: Ids, decoder: Decoder) -> list[list[float]]:
    """Return by how many nats each source token helps each token of a translation [T][S]."""
    whole, *without = _without_each(source, target, [[place] for place in range(len(source))], decoder)
    return [[own - log_probs[step] for log_probs in without] for step, own in enumerate(whole)]


def _without_each(source: Ids, target: Ids, words: Sequence[Sequence[int]], decoder: Decoder) -> list[list[float]]:
    """Return the log-probabilities of a translation's tokens: by the whole source, and without each of its words."""
    sources = [source, *(without_tokens(source, tokens) for tokens in words)]
    at_once, found = max(1, TOKENS_AT_ONCE // max(len(source), len(target), 1)), list[list[float]]()
    for first in range(0, len(sources), at_once):
        some = sources[first : first + at_once]
        found += [forced.log_probs for forced in decoder.force(some, [target] * len(some), Readings())]
    return found


def _finished(
    piece: Piece,
    covered: list[float],
    marked: list[bool],
    left: float,
    curves: Mapping[str, Any] | None,
    translation: str = "",
    *,
    by_curve: bool = True,
) -> PieceCoverage:
    """Calibrate, count unknown words as missing, copied ones as covered, and average over the words that count.

    Marks and optional words do not count, and function words only where they are marked. A calibrated score is at most
    the share of these words that is not marked.

    by_curve: the curve calibrates words, which are marked below its threshold and averaged; else `marked` says which
    are, and the score is the mean of the shares as they are.
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
        if word.is_copied or (mark and _stands(piece, word, translation)):
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
    return PieceCoverage(shares, marks, score, left)


def _stands(piece: Piece, word: SourceWord, translation: str) -> bool:
    """Return whether a word stands in a translation as it is, at least as often as in its source.

    Short ones are often a word of the other language, too, such as "a" and "no".
    """
    text = piece.text[slice(*word.place)]
    if text not in translation or (len(text) < LEAST_STANDING and text.isalpha() and text.isascii()):
        return False
    target, source = (WORDS.findall(one).count(text) for one in (translation, piece.text))
    return target >= max(source, 1)


def _left(piece: Piece, covered: Sequence[float]) -> float:
    """The mean share of a word, marks apart, that is left out."""
    shares = [1 - value for word, value in zip(piece.words, covered, strict=True) if not word.is_mark]
    return sum(shares) / max(len(shares), 1)
