"""What coverage answers: frozen dataclasses of plain values."""

from dataclasses import dataclass


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
