"""Greedy and beam search for the PyTorch backend, by the rules of transformers' `generate()`.

Each source goes on its own: it ends when no running hypothesis can beat its finished ones. Legend: B sources, K
hypotheses of a source, V vocabulary.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from hf_capsule_mt.fast.requests import Reading, Request

LOWEST = -1e9
MOST = 80.0  # of an exponent
GROUP = 128  # values of which the largest is taken first


class _Hypothesis(NamedTuple):
    """What has been written of a translation.

    score: of a finished one with the length penalty.
    tokens: after the start token.
    rows: the row that the hypothesis had at each step.
    agreements: for coverage, to each token.
    log_prob: for coverage, the sum of the log-probabilities, of a forced end too.
    """

    score: float
    tokens: list[int]
    rows: list[int]
    agreements: list[float]
    log_prob: float


@dataclass
class _Source:
    """The hypotheses of a source, best first."""

    limit: int
    forced: bool
    running: list[_Hypothesis] = field(default_factory=lambda: [_Hypothesis(0.0, [], [], [], 0.0)])
    finished: list[_Hypothesis] = field(default_factory=list)
    active: bool = True
    only_reads: bool = False  # the limit is reached: for coverage the last tokens are read, and nothing follows


class Search:
    """The state of a search. The first step has one hypothesis a source, those that follow have K."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.step = 0
        self.sources = [_Source(*pair) for pair in zip(request.limits, request.forced, strict=True)]
        self.last_tokens = torch.full((len(request), 1), request.start_token)
        self.curves: list[torch.Tensor] = []  # what `advance` was given at each step
        self.suppressed = torch.tensor(list(request.suppressed), dtype=torch.long)

    @property
    def active(self) -> bool:
        steps = self.request.longest + int(self.request.coverage)
        return self.step < steps and any(source.active for source in self.sources)

    def advance(self, logits: torch.Tensor, followed: torch.Tensor) -> torch.Tensor:
        """Choose the next tokens by logits [B, K, V], in place; return the row [B, K] that each hypothesis continues.

        followed: for coverage, the shares of the words [B, K, 2, S] or a head's attention to them [B, K, S].
        """
        request, num_beams = self.request, self.request.num_beams
        if num_beams > 1 or request.scored:
            # in place: the system takes its time to give so much memory, and caches hold half as much
            logits = torch.log_softmax(logits, dim=-1, out=logits)
        free = logits
        two_best = two_tokens = []
        if request.coverage:
            self.curves.append(followed)
            two_best, two_tokens = (values.tolist() for values in largest(logits, 2))
            logits = logits.clone()
        self._forbid(logits)
        best, tokens = largest(logits, 1 if num_beams == 1 else 2 * num_beams)
        all_best, all_tokens = best.tolist(), tokens.tolist()
        parents = torch.zeros(len(request), num_beams, dtype=torch.long)
        next_tokens = torch.full((len(request), num_beams), request.pad_token)
        for number, source in enumerate(self.sources):
            if not source.active:
                continue
            if source.only_reads:
                source.active = False
                continue
            candidates = self._candidates(source, all_best[number], all_tokens[number])
            if request.coverage:
                candidates = [_rated(one, free[number], two_best[number], two_tokens[number]) for one in candidates]
            for beam, hypothesis in enumerate(self._advance(source, candidates)):
                parents[number, beam] = hypothesis.rows[-1]
                next_tokens[number, beam] = hypothesis.tokens[-1]
        self.last_tokens = next_tokens
        self.step += 1
        return parents

    def _forbid(self, logits: torch.Tensor) -> None:
        """Lower the logits [B, K, V] of tokens that may not follow, in place."""
        request = self.request
        if len(self.suppressed):
            logits.index_fill_(-1, self.suppressed, -torch.inf)
        if self.step < request.least_tokens and request.end_token >= 0:
            logits[..., request.end_token] = -torch.inf
        if request.no_repeat_ngram > 0:
            for number, source in enumerate(self.sources):
                for beam, hypothesis in enumerate(source.running if source.active else ()):
                    repeated = _would_repeat([request.start_token, *hypothesis.tokens], request.no_repeat_ngram)
                    logits[number, beam, repeated] = -torch.inf

    def _candidates(self, source: _Source, best: list[list[float]], tokens: list[list[int]]) -> list[_Hypothesis]:
        """The best continuations of one source, best first, at equal scores the lower row and token."""
        is_forced = self.step + 1 == source.limit and source.forced
        candidates = [
            (one.score + more, token, row, one)
            for row, one in enumerate(source.running)
            for more, token in (
                [(0.0, self.request.end_token)] if is_forced else zip(best[row], tokens[row], strict=True)
            )
        ]
        candidates.sort(key=lambda candidate: -candidate[0])  # stable
        count = 1 if self.request.num_beams == 1 else 2 * self.request.num_beams
        return [
            _Hypothesis(score, [*one.tokens, token], [*one.rows, row], one.agreements, one.log_prob)
            for score, token, row, one in candidates[:count]
        ]

    def _advance(self, source: _Source, candidates: list[_Hypothesis]) -> list[_Hypothesis]:
        """Continue one source; return the hypotheses that are read next, none if it has ended."""
        request, num_beams, length = self.request, self.request.num_beams, self.step + 1
        at_limit = length == source.limit
        full = len(source.finished) == num_beams and request.early_stopping == 1
        divisor = length**request.length_penalty
        running: list[_Hypothesis] = []
        for rank, candidate in enumerate(candidates):
            if at_limit or candidate.tokens[-1] == request.end_token:
                if rank < num_beams and not full:
                    source.finished.append(candidate._replace(score=candidate.score / divisor))
            elif len(running) < num_beams:
                running.append(candidate)
        source.finished.sort(key=lambda hypothesis: -hypothesis.score)
        del source.finished[num_beams:]
        source.running = running
        source.active = not at_limit and len(running) == num_beams and self._can_improve(source, length)
        if source.active or not request.coverage:
            return running if source.active else []
        unread = [one for one in source.finished if len(one.tokens) == length and one.tokens[-1] != request.end_token]
        source.active = source.only_reads = bool(unread)
        read = [(one.rows[-1], one.tokens[-1]) for one in unread]
        for beam, one in enumerate(unread):
            one.rows.append(beam)
        return [_Hypothesis(0.0, [token], [row], [], 0.0) for row, token in read]

    def _can_improve(self, source: _Source, length: int) -> bool:
        request = self.request
        if len(source.finished) < request.num_beams:
            return True
        if request.num_beams == 1 or request.early_stopping == 1:
            return False
        hopes = request.early_stopping == 2 and request.length_penalty > 0
        reachable = (request.longest if hopes else length) ** request.length_penalty
        return source.running[0].score / reachable > source.finished[-1].score

    def results(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens [B, returned, longest], padded, and scores [B, returned]."""
        request = self.request
        tokens = torch.full((len(request), request.num_returned, request.longest), request.pad_token)
        scores = torch.full((len(request), request.num_returned), LOWEST)
        for number, source in enumerate(self.sources):
            for rank, hypothesis in enumerate(source.finished[: request.num_returned]):
                tokens[number, rank, : len(hypothesis.tokens)] = torch.tensor(hypothesis.tokens)
                scores[number, rank] = hypothesis.score
        return tokens, scores

    def reading(self) -> Reading | None:
        """Return what was followed of the results, if coverage was asked for."""
        request = self.request
        if not request.coverage:
            return None
        nothing = _Hypothesis(LOWEST, [], [0], [], 0.0)
        values = torch.zeros(len(request), request.num_returned, 4, request.longest_source)
        log_probs = torch.zeros(len(request), request.num_returned)
        for number, source in enumerate(self.sources):
            for rank in range(request.num_returned):
                one = source.finished[rank] if rank < len(source.finished) else nothing
                last = len(one.tokens)
                while last and one.tokens[last - 1] in (request.end_token, request.pad_token):
                    last -= 1
                log_probs[number, rank] = one.log_prob / max(len(one.tokens), 1)
                if request.head is not None:
                    for step in range(len(one.tokens) if last else 0):
                        followed = self.curves[step][number, one.rows[step]]
                        values[number, rank, 0] = values[number, rank, 0].maximum(followed)
                    continue
                curves = torch.stack([self.curves[step][number, one.rows[step]] for step in range(last + 1)])
                falls = (curves[:-1, 1] - curves[1:, 1]).clamp(min=0)  # [last, S]
                agreements = torch.tensor(one.agreements[:last])[:, None]
                values[number, rank] = torch.stack([*curves[-1], falls.sum(dim=0), (falls * agreements).sum(dim=0)])
        return Reading(values, log_probs)


def largest(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `values.topk(count)` does of values [B, K, V], three to ten times faster for a large vocabulary.

    They are in the `count` groups whose largest values are largest, or in the rest that makes no group.
    """
    groups = values.shape[-1] // GROUP
    if groups <= 2 * count:
        best, indices = values.topk(count, dim=-1)
        return best, indices
    grouped = values[..., : groups * GROUP].unflatten(-1, (groups, GROUP))
    chosen = grouped.amax(dim=-1).topk(count, dim=-1).indices  # [B, K, count]
    rows = torch.arange(chosen[..., 0].numel(), device=values.device).view(*chosen.shape[:-1], 1)
    starts = (rows * values.shape[-1] + chosen * GROUP).flatten()
    # windows of the flat values: a group is copied whole, and not number by number
    candidates = values.flatten().unfold(0, GROUP, 1).index_select(0, starts).view(*chosen.shape[:-1], -1)
    rest = values[..., groups * GROUP :]
    best, places = torch.cat([candidates, rest], dim=-1).topk(count, dim=-1)
    # a place among the candidates -> the index in its group; a place in the rest -> what is before it
    within = chosen.take_along_dim((places // GROUP).clamp(max=count - 1), dim=-1) * GROUP + places % GROUP
    return best, torch.where(places < count * GROUP, within, places + (groups - count) * GROUP)


def _rated(
    one: _Hypothesis, logits: torch.Tensor, two_best: list[list[float]], two_tokens: list[list[int]]
) -> _Hypothesis:
    """Add the log-probability of the last token and the agreement to it: its odds against the best other one.

    logits: [K, V], before any was forbidden. two_best, two_tokens: [K, 2].
    """
    row, token = one.rows[-1], one.tokens[-1]
    own = float(logits[row, token])
    rival = two_best[row][int(token == two_tokens[row][0])]
    agreement = 1 / (1 + math.exp(min(rival - own, MOST)))
    return one._replace(agreements=[*one.agreements, agreement], log_prob=one.log_prob + own)


def _would_repeat(tokens: list[int], size: int) -> list[int]:
    """The tokens that would complete an n-gram for the second time."""
    if len(tokens) + 1 < size:
        return []
    last = tokens[len(tokens) - size + 1 :]
    return [tokens[i + size - 1] for i in range(len(tokens) - size + 1) if tokens[i : i + size - 1] == last]
