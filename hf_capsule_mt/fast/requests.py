"""What the engine is asked: sources, and how to search."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class Request:
    """Sources and the settings of a search.

    sources: the token ids of each source, without padding.
    limits: how many tokens may follow the start token, for each source.
    forced: for each source, whether the end token is forced at its limit.
    suppressed: tokens that are never written.
    early_stopping: 0 (False), 1 (True) or 2 ("never"), as in transformers.
    scored: compute scores, which beam search does anyway.
    shortlists: for each source the tokens that may be written, int32, ascending; `None` for all.
    coverage: follow PAST and FUTURE; needs `scored` and a program that `has_coverage`.
    head: for coverage, follow the attention to the source of this layer and head instead.
    """

    sources: Sequence[Sequence[int]]
    limits: Sequence[int]
    forced: Sequence[bool]
    suppressed: Sequence[int]
    num_beams: int
    num_returned: int
    least_tokens: int
    no_repeat_ngram: int
    start_token: int
    end_token: int
    pad_token: int
    length_penalty: float
    early_stopping: int
    scored: bool
    coverage: bool
    shortlists: Sequence[torch.Tensor] | None = None
    head: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def longest(self) -> int:
        return max(self.limits)

    @property
    def longest_source(self) -> int:
        return max(map(len, self.sources))

    @property
    def candidates(self) -> torch.Tensor:
        """The tokens of all shortlists, ascending."""
        return torch.cat(list(self.shortlists or ())).unique()

    def part(self, rows: Sequence[int]) -> "Request":
        """Return the request for some of the sources."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("sources", "limits", "forced", "shortlists"):
            if fields[name] is not None:
                fields[name] = [fields[name][row] for row in rows]
        return Request(**fields)


class Reading(NamedTuple):
    """What PAST and FUTURE tell of each hypothesis, as native/engine.h defines it.

    values: [sources, returned, 4, words of the longest source]: PAST and FUTURE at the end, the fall of FUTURE, how
        much of it was agreed to; 0 for padding. With a head: the most that it attends to the word, and no others.
    log_probs: [sources, returned], the mean log-probability of a token.
    """

    values: torch.Tensor
    log_probs: torch.Tensor


@dataclass(frozen=True)
class Answer:
    """The result of a search.

    tokens: [sources, returned, longest] after the start token, padded.
    scores: [sources, returned], the log-probability over the length to the power of the length penalty; undefined
        unless asked for or with beams.
    reading: with `Request.coverage`.
    first_logits: [sources, vocabulary] of the first position, if they were asked for.
    """

    tokens: torch.Tensor
    scores: torch.Tensor
    first_logits: torch.Tensor | None = None
    reading: Reading | None = None
