"""What coverage is asked."""

from dataclasses import dataclass

from capsule_mt.coverage.names import MARKS, METHODS, CoverageMethod, Marks


@dataclass(frozen=True)
class CoverageOptions:
    """Ask for coverage, and say what to do with it.

    Attributes:
        method: "attention" reads the head that `capsule-mt calibrate` has chosen, and "verified" has its doubts
            checked by a model of the other direction (`reverse` of a `Translator`). "guided" reads PAST and FUTURE of
            a model with guided routing. "deletion" takes any model: it scores the translation without each source
            word, one pass a word. "auto" is the first of "verified", "attention", "guided" and "deletion" that there
            is.
        marks: which words "verified" marks: those "sure" to be left out, "likely" (the default), or "all" that
            may be. `Translator.precision` is the share that a reader found right, where somebody read them. Any other
            method has one set of marks, which are not verified: it ignores this, with a warning.
        support: also find the words of the translation that the source does not support, which takes a `reverse` and
            a forced pass of both models for each sentence.
        threshold: warn of sentences whose coverage is below this; by default the alarm of the calibration, if it has
            one. 0 warns of none.
        retry_beams: translate those sentences again with so many beams, rescored by `weight` (5 by default), and keep
            the translation that leaves less out.
        weight: rank the hypotheses of beam search by their score less `weight` times the mean share of a source word
            that is left out.
    """

    threshold: float | None = None
    retry_beams: int | None = None
    weight: float | None = None
    method: CoverageMethod = "auto"
    marks: Marks | None = None
    support: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"`method` must be {', '.join(METHODS[:-1])} or {METHODS[-1]}, got {self.method!r}")
        if self.marks is not None and self.marks not in MARKS:
            raise ValueError(f"`marks` must be {', '.join(MARKS[:-1])} or {MARKS[-1]}, got {self.marks!r}")
        if self.retry_beams is not None and self.retry_beams < 2:
            raise ValueError(f"`retry_beams` must be at least 2, got {self.retry_beams}")
