"""What coverage is asked and what it answers: frozen dataclasses of plain values."""

from dataclasses import dataclass
from typing import Literal

CoveredBy = Literal["verified", "attention", "guided", "deletion"]
CoverageMethod = Literal["auto", "verified", "attention", "guided", "deletion"]
METHODS = ("auto", "verified", "attention", "guided", "deletion")
Marks = Literal["sure", "likely", "all"]
MARKS = ("sure", "likely", "all")


@dataclass(frozen=True)
class CoverageOptions:
    """Ask for coverage, and say what to do with it.

    Attributes:
        method: "attention" reads the head that `capsule-mt calibrate` has chosen, and "verified" has its doubts
            checked by a model of the other direction (`reverse` of a `Translator`). "guided" reads PAST and FUTURE of
            a model with guided routing. "deletion" takes any model: it scores the translation without each source
            word, one pass a word. "auto" is the first of "verified", "attention", "guided" and "deletion" that there
            is.
        marks: which words "verified" marks: those that are "sure" to be left out, "likely", or "all" that may be. The
            calibration has the precision that was measured for each.
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
    marks: Marks = "likely"
    support: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"`method` must be {', '.join(METHODS[:-1])} or {METHODS[-1]}, got {self.method!r}")
        if self.marks not in MARKS:
            raise ValueError(f"`marks` must be {', '.join(MARKS[:-1])} or {MARKS[-1]}, got {self.marks!r}")
        if self.retry_beams is not None and self.retry_beams < 2:
            raise ValueError(f"`retry_beams` must be at least 2, got {self.retry_beams}")


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
class TargetWord:
    """A word of the translation, the characters `start` to `end` of its text.

    `supported` is how much the source supports it; one that it hardly does is `marked`. Marks of punctuation and the
    optional words that calibration finds never are.
    """

    text: str
    start: int
    end: int
    supported: float
    marked: bool


@dataclass(frozen=True)
class SentenceCoverage:
    """The coverage of the characters `start` to `end` of the text."""

    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Adequacy:
    """How inadequate a given translation is, by two numbers that rank: 0 is adequate, and 1 is not at all.

    `omission` is how much it left out: the share of words that is not covered and, counted twice, the share of its
    expected length that it lacks. `hallucination` is how little it has to do with its source: the share
    of what each text says that the other does not make probable, for both directions.
    """

    omission: float
    hallucination: float


@dataclass(frozen=True)
class Coverage:
    """What of a text was translated: a `score` between 0 and 1 of how complete it seems, its words and its sentences.

    `repetitions` are phrases that the translation says twice in a row and the source does not. A blank text has the
    score 1. `threshold` is the score below which a sentence is an alarm, if there is one. `support` is how much of the
    translation its source supports, and `target_words` are the words of it, where that was asked for.
    """

    score: float
    words: tuple[Word, ...]
    sentences: tuple[SentenceCoverage, ...]
    repetitions: tuple[str, ...]
    threshold: float | None = None
    support: float | None = None
    target_words: tuple[TargetWord, ...] = ()

    @property
    def untranslated(self) -> tuple[Word, ...]:
        """The words that were left out."""
        return tuple(word for word in self.words if word.marked)

    @property
    def unsupported(self) -> tuple[TargetWord, ...]:
        """The words of the translation that were made up."""
        return tuple(word for word in self.target_words if word.marked)

    @property
    def alarms(self) -> tuple[SentenceCoverage, ...]:
        """The sentences that have probably lost something."""
        threshold = self.threshold
        return () if threshold is None else tuple(one for one in self.sentences if one.score < threshold)
