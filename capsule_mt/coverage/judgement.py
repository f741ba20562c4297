"""The result of a judge: probabilities of words, and the reasons to look at a line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from capsule_mt.checks.results import Check


@dataclass(frozen=True)
class JudgedWord:
    """The characters `start` to `end` of a text, and the probability that they have no counterpart in the other text.

    A word is `marked` if that is likelier than not.
    """

    text: str
    start: int
    end: int
    probability: float
    marked: bool


@dataclass(frozen=True)
class Reason:
    """Why a person should look at a line.

    name: what is wrong, such as "left out", "another text" or "numbers".
    is_fault: whether a rule has found it; else an estimate is above the threshold of its kind.
    source, target: what it is about in each text, as far as that is known.
    share: how often words that are marked as surely as its own are right, if that was measured.
    """

    name: str
    is_fault: bool
    source: str = ""
    target: str = ""
    share: float | None = None


@dataclass(frozen=True)
class Judgement:
    """What a judge says about a translation, whose texts are not blank.

    source_words: the words of the source, which may be left out. target_words: those of the translation, which may be
    made up. similarity: the cosine of both texts, as the encoder represents them.
    reasons: those to look at it, rules first; empty where nothing speaks against it.
    checks: what the rules have found.
    """

    source_words: tuple[JudgedWord, ...]
    target_words: tuple[JudgedWord, ...]
    similarity: float
    reasons: tuple[Reason, ...]
    checks: tuple[Check, ...] = ()

    @property
    def left_out(self) -> tuple[JudgedWord, ...]:
        """The words of the source that were probably left out."""
        return tuple(word for word in self.source_words if word.marked)

    @property
    def made_up(self) -> tuple[JudgedWord, ...]:
        """The words of the translation that were probably made up."""
        return tuple(word for word in self.target_words if word.marked)


class TranslationJudge(Protocol):
    """What judges translations: `capsule_mt.Judge`."""

    def score(
        self,
        sources: Sequence[str],
        translations: Sequence[str],
        *,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> list[Judgement | None]:
        """Judge translations; `None` where a text is blank."""
        ...
