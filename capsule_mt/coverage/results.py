"""What coverage is asked and what it answers: frozen dataclasses of plain values."""

from dataclasses import dataclass
from typing import Literal

CoveredBy = Literal["attention", "guided", "deletion"]
CoverageMethod = Literal["auto", "attention", "guided", "deletion"]
METHODS = ("auto", "attention", "guided", "deletion")


@dataclass(frozen=True)
class CoverageOptions:
    """Ask for coverage, and say what to do with it.

    Attributes:
        method: "attention" reads the head that `capsule-mt calibrate` has chosen, "guided" PAST and FUTURE of a model
            with guided routing. "deletion" takes any model: it scores the translation without each source word, one
            pass a word. "auto" is the first of them that the model has.
        threshold: warn of sentences whose coverage is below this.
        retry_beams: translate those sentences again with so many beams, rescored by `weight` (5 by default), and keep
            the translation that leaves less out.
        weight: rank the hypotheses of beam search by their score less `weight` times the mean share of a source word
            that is left out.
    """

    threshold: float | None = None
    retry_beams: int | None = None
    weight: float | None = None
    method: CoverageMethod = "auto"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"`method` must be {', '.join(METHODS[:-1])} or {METHODS[-1]}, got {self.method!r}")
        if self.retry_beams is not None and self.retry_beams < 2:
            raise ValueError(f"`retry_beams` must be at least 2, got {self.retry_beams}")
        if self.retry_beams is not None and self.threshold is None:
            raise ValueError(f"`retry_beams` ({self.retry_beams}) needs a `threshold`, got None")


@dataclass(frozen=True)
class Word:
    """A word of the source, the characters `start` to `end` of the text.

    `covered` is how much of it was translated; a word that mostly was not is `marked`, and so is one that the
    vocabulary does not know, whose `covered` is 0. Optional words, which calibration finds, are never marked. `past`
    and `future` are its shares after the last token where guided routing was read, else `None`.
    """

    text: str
    start: int
    end: int
    covered: float
    marked: bool
    past: float | None = None
    future: float | None = None


@dataclass(frozen=True)
class SentenceCoverage:
    """The coverage of the characters `start` to `end` of the text."""

    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Coverage:
    """How much of a text was translated: one `score` between 0 and 1, its words and its sentences.

    `repetitions` are phrases that the translation says twice in a row and the source does not. A blank text has the
    score 1.
    """

    score: float
    words: tuple[Word, ...]
    sentences: tuple[SentenceCoverage, ...]
    repetitions: tuple[str, ...]

    @property
    def untranslated(self) -> tuple[Word, ...]:
        """The words that were left out."""
        return tuple(word for word in self.words if word.marked)
