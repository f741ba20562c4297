"""The results of coverage: frozen dataclasses of plain values."""

from dataclasses import dataclass, replace

from capsule_mt.checks.results import Check
from capsule_mt.coverage.judgement import Judgement
from capsule_mt.coverage.names import CoveredBy


@dataclass(frozen=True)
class Word:
    """A word of the source, the characters `start` to `end` of the text.

    `covered` is the share of it that was translated. A word is `marked` if it was probably left out. A word that the
    vocabulary lacks counts as left out, unless the translation has it. A calibrated method does not mark optional
    words, which complete translations often leave out.
    """

    text: str
    start: int
    end: int
    covered: float
    marked: bool


@dataclass(frozen=True)
class TargetWord:
    """A word of the translation, the characters `start` to `end` of its text.

    `supported` is how far the source supports it; a word with little support is `marked` where `CoverageOptions` shows
    marks. Punctuation and the optional words that calibration finds are never marked.
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
class Coverage:
    """How completely a text was translated: a `score` from 0 to 1, and the text's words and sentences.

    `repetitions` are phrases that the translation says twice in a row, if its source has fewer. A blank text has the
    score 1. `threshold` is the score below which a sentence is an alarm, `None` without one. If `CoverageOptions` ask
    for it, `support` is the share of the translation that the source supports, and `target_words` are its words.
    `checks` are faults that rules find, such as a number that the translation lacks. `method` is what marked the
    words: marks are unverified unless it is "verified". `precision` is the share of this model's marks, in its own
    translations, that a reader found right; `None` if nobody read them, and for given ones.
    `judgement` is what a judge says, if one was given.
    """

    score: float
    words: tuple[Word, ...]
    sentences: tuple[SentenceCoverage, ...]
    repetitions: tuple[str, ...]
    threshold: float | None = None
    support: float | None = None
    target_words: tuple[TargetWord, ...] = ()
    checks: tuple[Check, ...] = ()
    method: CoveredBy | None = None
    precision: float | None = None
    judgement: Judgement | None = None

    @property
    def untranslated(self) -> tuple[Word, ...]:
        """The words that are marked as left out."""
        return tuple(word for word in self.words if word.marked)

    def judged(self, judgement: Judgement | None) -> "Coverage":
        """Return this coverage with what a judge says."""
        return self if judgement is None else replace(self, judgement=judgement)

    @property
    def unsupported(self) -> tuple[TargetWord, ...]:
        """The words of the translation that are marked as made up."""
        return tuple(word for word in self.target_words if word.marked)
