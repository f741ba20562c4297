"""The requests and results of a decoder, as plain values. Legend: S source tokens, T target tokens."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

from capsule_mt.options.table import Candidates, Ids, Readings, SearchOptions

__all__ = ["Candidates", "Decoder", "Forced", "Hypothesis", "Ids", "Readings", "Restriction", "SearchOptions"]


class Hypothesis:
    """A translation that a search returns.

    ids: the tokens after the start token, with the end token where it came.
    log_probs: of each token, among those of the shortlist where there is one; `score` is their mean.
    was_cut: whether it has as many tokens as it may have, or lacks an end token that the model has.
    attention: how much each token attends to each source token [T][S], by the head that was read; `None` without one.
    covered: what `coverage` finds that it covers, if requested.
    """

    covered: Any = None

    def __init__(
        self, ids: list[int], log_probs: list[float], was_cut: bool, attention: list[list[float]] | None = None
    ) -> None:
        self.ids, self.log_probs, self.was_cut, self.attention = ids, log_probs, was_cut, attention

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hypothesis) and vars(self) == vars(other)

    @property
    def score(self) -> float:
        return sum(self.log_probs) / max(len(self.log_probs), 1)

    @property
    def received(self) -> list[float] | None:
        """The most attention that each source token [S] receives from any token, also the end; `None` if unread."""
        return None if self.attention is None else [*map(max, zip(*self.attention, strict=True))]

    def rescore(self, forced: "Forced", end: int) -> None:
        """Take the results of a forced pass over these tokens; a translation of an end token alone covers nothing."""
        self.log_probs = forced.log_probs
        if forced.attention is not None:
            is_empty = self.ids[:1] == [end]
            self.attention = [[0.0] * len(row) for row in forced.attention] if is_empty else forced.attention


class Forced(NamedTuple):
    """A given translation, scored.

    log_probs: of each of its tokens [T].
    attention: of each step to each source token [T][S]; `None` if no head was read.
    """

    log_probs: list[float]
    attention: list[list[float]] | None = None


class Restriction(NamedTuple):
    """A shortlist, and for each translation the source whose list restricts it."""

    shortlist: Candidates
    sources: Sequence[Ids]


class Decoder(Protocol):
    """Anything that translates token ids: the engine, or `generate()` of transformers.

    prefers_no_scores: whether a greedy search is faster without scores, and a forced pass gives the same ones.
    """

    @property
    def prefers_no_scores(self) -> bool: ...
    def translate(self, sources: Sequence[Ids], options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the best translations of each source, the best first."""
        ...

    def force(
        self,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        readings: Readings,
        positions: Sequence[Collection[int]] | None = None,
        restriction: Restriction | None = None,
    ) -> list[Forced]:
        """Score these translations, from the first token after the start token on.

        positions: for each translation, the tokens whose log-probabilities are needed; those of others may be NaN.
        restriction: probabilities are among the listed tokens and those of the translation; by default among all.
        """
        ...
