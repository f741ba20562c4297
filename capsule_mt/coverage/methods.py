"""The share of each source word that a translation covers: by attention, reverse model, or deletion.

Each method gives a `PieceCoverage` for each piece and its translation. `calibration` fits the curves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from capsule_mt.coverage.completeness import completeness, gap_of
from capsule_mt.coverage.curves import on_curve
from capsule_mt.coverage.deletion import coverages_by_deletion
from capsule_mt.coverage.lengths import ExpectedLength
from capsule_mt.coverage.names import DEFAULT_MARKS, METHODS, REMOVED, CoveredBy, Marks, head_of
from capsule_mt.coverage.piece_coverage import PieceCoverage, PieceSupport, piece_coverage
from capsule_mt.coverage.reasons import MIN_PRECISION
from capsule_mt.coverage.supported import DOUBT_THRESHOLDS, attended_words, support_doubts, support_share
from capsule_mt.coverage.verified import (
    MARK_THRESHOLDS,
    Candidate,
    ForcedPair,
    Reverse,
    covered_share,
    doubts,
    offsets_of,
)
from capsule_mt.engine.search import Candidates, Decoder, Hypothesis, Ids, Readings
from capsule_mt.text.reading import Piece
from capsule_mt.text.words import NO_LISTS, WordLists, is_mark

ATTENTION_THRESHOLD = 0.2  # without a calibration, a word below it is left out


class Verifier(NamedTuple):
    """What verifies marks: the reverse model, and the function that decodes a translation.

    support: also find words of the translation that the source does not support.
    shortlist: the tokens among which hypotheses have their log-probabilities; `None` for the whole vocabulary.
    """

    reverse: Reverse
    decode: Callable[[Ids], str]
    marks: Marks = "likely"
    support: bool = False
    shortlist: Candidates | None = None


@dataclass(frozen=True)
class Calibration:
    """`coverage_calibration` of a checkpoint: curves and thresholds by method, and words that count less.

    length: the expected length of a translation, if that was fitted.
    names_removed: whether it has curves of "guided", a method of earlier versions.
    """

    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lists: WordLists = NO_LISTS
    support: Mapping[str, Any] = field(default_factory=dict)
    length: ExpectedLength | None = None
    names_removed: bool = False

    @classmethod
    def of_config(cls, values: Mapping[str, Any] | None) -> "Calibration":
        values = values or {}
        lists = (frozenset(values.get(name, ())) for name in ("optional_words", "function_words"))
        methods = {name: values[name] for name in METHODS if name in values}
        length = ExpectedLength.of_calibration(values["length"]) if "length" in values else None
        return cls(methods, WordLists(*lists), values.get("support", {}), length, REMOVED in values)

    @property
    def head(self) -> tuple[int, int] | None:
        """The layer and the head of "attention", if it is calibrated."""
        return head_of(self.methods)

    @property
    def reverse(self) -> str | None:
        """The name of the reverse model that the marks were fitted with, if there was one."""
        return self.methods.get("verified", {}).get("reverse")

    def alarm(self, method: CoveredBy, *, is_given: bool = False) -> float | None:
        """The score below which a sentence has perhaps lost something; `None` if none was chosen.

        is_given: of a given translation. People translate more freely than the model, so these have an alarm of their
        own; older calibrations lack it.
        """
        curves = self.methods.get(method, {})
        alarm = curves.get("human_alarm" if is_given and "human_alarm" in curves else "alarm")
        return None if alarm is None else float(alarm["score"])

    @property
    def marks_single_words(self) -> bool:
        """Whether words outside alarmed sentences are marked by default: not if readers found most marks wrong."""
        return self.precision.get(DEFAULT_MARKS, 1.0) >= MIN_PRECISION

    @property
    def precision(self) -> dict[str, float]:
        """The share of marks that a reader found right, by `marks` of `CoverageOptions`; of those that one read."""
        counts = self.methods.get("verified", {}).get("right_marks", {})
        return {marks: round(right / num_read, 2) for marks, (right, num_read) in counts.items()}

    @property
    def retries_marks(self) -> bool:
        """Whether a sentence with a mark is translated again: if that improved this model's translations."""
        return bool(self.methods.get("verified", {}).get("retries_marks"))


def choose_method(
    method: str, calibration: Calibration, *, num_heads: int, name: str, has_reverse: bool = False
) -> CoveredBy:
    """Resolve "auto" for a model, and refuse a method that the model does not have."""
    if method == "auto" and has_reverse and calibration.head is not None:
        return "verified"
    if method == "auto":
        if calibration.head is None and calibration.names_removed:  # its alarm and its scores were those of "guided"
            raise ValueError(
                f'the calibration of {name} is of "{REMOVED}", a method that this version does not have: calibrate it '
                'again by `capsule-mt calibrate`, or choose `method="deletion"`'
            )
        return "attention" if calibration.head is not None else "deletion"
    if method == "verified" and not has_reverse:
        raise ValueError(f'`method="verified"` needs a reverse model: give {name} a `reverse` (`--reverse MODEL`)')
    if method in ("attention", "verified") and not num_heads:
        raise ValueError(
            f'`method="{method}"` needs a decoder built like Marian\'s, got {name}; "deletion" works with any model'
        )
    if method in ("attention", "verified") and calibration.head is None:
        raise ValueError(
            f'`method="{method}"` needs a head that aligns words, which `capsule-mt calibrate` chooses; "deletion" '
            "works without one"
        )
    return method  # type: ignore[return-value]  # METHODS were checked


def readings_of(method: CoveredBy | None, calibration: Calibration) -> Readings | None:
    """Return the readings that a method needs from a search, if any."""
    return Readings(head=calibration.head) if method in ("attention", "verified") else None


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
    """Return the coverage of each piece by its hypothesis; a forced pass adds what the search did not return.

    end: the end token.
    decode: return the text of a translation, in which unchanged source words are looked up.
    """
    coverages: list[PieceCoverage] = []
    forced_pairs: list[ForcedPair | None] | None = None
    texts, curves = [decode(hypothesis.ids) for hypothesis in hypotheses], calibration.methods.get(method)
    if verifier is not None and verifier.support:  # forces every translation; "verified" uses these passes
        forced_pairs = verifier.reverse.force(texts, [piece.text for piece in pieces], with_head=True)
    if method == "deletion":
        coverages = list(coverages_by_deletion(pieces, hypotheses, texts, decoder, curves))
    else:
        _complete(hypotheses, [piece.ids for piece in pieces], method, decoder, calibration, end)
    rows = zip(pieces, hypotheses, texts, strict=True)
    if method == "attention":
        coverages = [
            attention_coverage(piece, hypothesis.received or [], curves, text) for piece, hypothesis, text in rows
        ]
    elif method == "verified" and verifier is not None:
        coverages = _by_verification(pieces, hypotheses, texts, decoder, calibration, verifier, forced_pairs)
    if verifier is not None and forced_pairs is not None:
        supports = _piece_supports(hypotheses, texts, calibration.support, verifier, forced_pairs)
        coverages = [coverage._replace(support=support) for coverage, support in zip(coverages, supports, strict=True)]
    return coverages


def _complete(
    hypotheses: Sequence[Hypothesis],
    sources: Sequence[Ids],
    method: CoveredBy,
    decoder: Decoder,
    calibration: Calibration,
    end: int,
) -> None:
    """Add the attention that the method needs to hypotheses of searches that did not return it, by a forced pass."""
    incomplete = [index for index, hypothesis in enumerate(hypotheses) if hypothesis.attention is None]
    if incomplete:
        targets = [hypotheses[index].ids for index in incomplete]
        readings = readings_of(method, calibration) or Readings()
        results = decoder.force([sources[index] for index in incomplete], targets, readings)
        for index, forced in zip(incomplete, results, strict=True):
            hypotheses[index].rescore(forced, end)


def word_attention(piece: Piece, received: Sequence[float]) -> list[float]:
    """Return for each word the most attention that any of its tokens receives; 1 for a mark or a copied word."""
    return [
        1.0 if word.is_exempt else max((received[token] for token in word.tokens), default=0.0) for word in piece.words
    ]


def attention_coverage(
    piece: Piece, received: Sequence[float], curves: Mapping[str, Any] | None, translation: str = ""
) -> PieceCoverage:
    """Cover a word by the most attention that any of its tokens receives."""
    covered = word_attention(piece, received)
    marked = [share < ATTENTION_THRESHOLD for share in covered]
    if curves is not None and "words" not in curves:  # `calibrate` has chosen the head, and not fitted the curves yet
        curves = None
    return piece_coverage(piece, covered, marked, curves, translation)


def _by_verification(
    pieces: Sequence[Piece],
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    decoder: Decoder,
    calibration: Calibration,
    verifier: Verifier,
    forced_pairs: Sequence[ForcedPair | None] | None,
) -> list[PieceCoverage]:
    """Cover words by their doubt (see `verified`), and score a piece by its `completeness`."""
    fitted, length = calibration.methods.get("verified", {}), calibration.length
    curves, threshold = fitted if "words" in fitted else None, MARK_THRESHOLDS[verifier.marks]
    candidates, coverages = list(map(_candidate, pieces, hypotheses, texts)), []
    # "sure" marks fewer words than "likely", but must give the same scores: compute the doubts as exactly
    exact_above = min(threshold, MARK_THRESHOLDS["likely"])
    doubts_by_piece = doubts(candidates, decoder, verifier.reverse, exact_above, forced_pairs, verifier.shortlist)
    for piece, candidate, word_doubts in zip(pieces, candidates, doubts_by_piece, strict=True):
        covered = [
            1.0 if word.is_exempt else covered_share(doubt)
            for word, doubt in zip(piece.words, word_doubts, strict=True)
        ]
        marked = [
            is_markable and doubt > threshold
            for is_markable, doubt in zip(candidate.markable, word_doubts, strict=True)
        ]
        coverage = piece_coverage(piece, covered, marked, curves, candidate.translation, by_curve=False)
        if curves is not None:
            score = coverage.score
            if (weight := curves.get("shortness")) is not None:  # older calibrations score by words alone
                short = 0.0 if length is None else length.shortness(piece.text, candidate.translation)
                counted = [share for word, share in zip(piece.words, candidate.attention, strict=True) if word.counts]
                score = completeness(score, short, gap_of(counted), weight)
            coverage = coverage._replace(score=on_curve(curves["sentences"], score))
        coverages.append(coverage)
    return coverages


def _candidate(piece: Piece, hypothesis: Hypothesis, translation: str) -> Candidate:
    """Return a translation to verify."""
    markable = [not (word.is_exempt or word.is_optional or word.is_unknown) for word in piece.words]
    attention = word_attention(piece, hypothesis.received or [])
    return Candidate(piece, translation, hypothesis.ids, attention, markable, sum(hypothesis.log_probs))


def _piece_supports(
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    fitted: Mapping[str, Any],
    verifier: Verifier,
    forced_pairs: Sequence[ForcedPair | None],
) -> Iterator[PieceSupport]:
    """Yield the support of each translation's words by its source."""
    optional, threshold = frozenset(fitted.get("optional_words", ())), DOUBT_THRESHOLDS[verifier.marks]
    for hypothesis, text, forced_pair in zip(hypotheses, texts, forced_pairs, strict=True):
        words = [(span, share) for span, share in attended_words(text, forced_pair) if not is_mark(text[slice(*span)])]
        offsets = offsets_of(text, hypothesis.ids, verifier.decode)
        word_doubts = support_doubts(text, offsets, hypothesis.log_probs, words)
        markable = [text[span.start : span.end].casefold() not in optional for span, _ in words]
        marked = [is_markable and doubt > threshold for is_markable, doubt in zip(markable, word_doubts, strict=True)]
        shares = [support_share(doubt) for doubt in word_doubts]
        counted = [share for is_markable, share in zip(markable, shares, strict=True) if is_markable]
        score = sum(counted) / len(counted) if counted else 1.0
        yield PieceSupport([span for span, _ in words], shares, marked, score)
