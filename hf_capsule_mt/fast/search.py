"""Greedy and beam search for the PyTorch backend, by the rules of transformers' `generate()`.

Each source goes on its own: it ends when no running hypothesis can beat its finished ones. Legend: B sources, K
hypotheses of a source, V vocabulary.
"""

from dataclasses import dataclass, field

import torch

from hf_capsule_mt.fast.requests import Request

LOWEST = -1e9


@dataclass
class _Source:
    """The hypotheses of a source: (score, tokens after the start token), best first."""

    limit: int
    forced: bool
    running: list[tuple[float, list[int]]] = field(default_factory=lambda: [(0.0, [])])
    finished: list[tuple[float, list[int]]] = field(default_factory=list)
    active: bool = True


class Search:
    """The state of a search. The first step has one hypothesis a source, those that follow have K."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.step = 0
        self.sources = [_Source(*pair) for pair in zip(request.limits, request.forced, strict=True)]
        self.last_tokens = torch.full((len(request), 1), request.start_token)
        self.suppressed = torch.tensor(list(request.suppressed), dtype=torch.long)

    @property
    def active(self) -> bool:
        return self.step < self.request.longest and any(source.active for source in self.sources)

    def advance(self, logits: torch.Tensor) -> torch.Tensor:
        """Choose the next tokens by logits [B, K, V]; return the row [B, K] that each hypothesis continues."""
        request, num_beams = self.request, self.request.num_beams
        if num_beams > 1 or request.scored:
            logits = logits.log_softmax(dim=-1)
        logits = self._forbid(logits)
        best, tokens = logits.topk(1 if num_beams == 1 else 2 * num_beams, dim=-1)
        all_best, all_tokens = best.tolist(), tokens.tolist()
        parents = torch.zeros(len(request), num_beams, dtype=torch.long)
        next_tokens = torch.full((len(request), num_beams), request.pad_token)
        for number, source in enumerate(self.sources):
            if not source.active:
                continue
            kept = self._advance(source, all_best[number], all_tokens[number])
            for beam, parent in enumerate(kept):
                parents[number, beam] = parent
                next_tokens[number, beam] = source.running[beam][1][-1]
        self.last_tokens = next_tokens
        self.step += 1
        return parents

    def _forbid(self, logits: torch.Tensor) -> torch.Tensor:
        request = self.request
        if len(self.suppressed):
            logits = logits.index_fill(-1, self.suppressed, -torch.inf)
        if self.step < request.least_tokens and request.end_token >= 0:
            logits = logits.index_fill(-1, torch.tensor([request.end_token]), -torch.inf)
        if request.no_repeat_ngram > 0:
            logits = logits.clone()
            for number, source in enumerate(self.sources):
                for beam, (_, tokens) in enumerate(source.running if source.active else ()):
                    repeated = _would_repeat([request.start_token, *tokens], request.no_repeat_ngram)
                    logits[number, beam, repeated] = -torch.inf
        return logits

    def _advance(self, source: _Source, best: list[list[float]], tokens: list[list[int]]) -> list[int]:
        """Continue one source; return the rows that its next hypotheses continue, none if it has ended."""
        request, num_beams, length = self.request, self.request.num_beams, self.step + 1
        at_limit = length == source.limit
        candidates = [
            (score + more, row, token)
            for row, (score, _) in enumerate(source.running)
            for more, token in (
                [(0.0, request.end_token)] if at_limit and source.forced else zip(best[row], tokens[row], strict=True)
            )
        ]
        candidates.sort(key=lambda candidate: -candidate[0])  # stable: the lower row and token first
        full = len(source.finished) == num_beams and request.early_stopping == 1
        divisor = length**request.length_penalty
        running: list[tuple[float, list[int]]] = []
        parents: list[int] = []
        for rank, (score, row, token) in enumerate(candidates[: 1 if num_beams == 1 else 2 * num_beams]):
            hypothesis = [*source.running[row][1], token]
            if at_limit or token == request.end_token:
                if rank < num_beams and not full:
                    source.finished.append((score / divisor, hypothesis))
            elif len(running) < num_beams:
                running.append((score, hypothesis))
                parents.append(row)
        source.finished.sort(key=lambda hypothesis: -hypothesis[0])
        del source.finished[num_beams:]
        source.running = running
        source.active = not at_limit and len(running) == num_beams and self._can_improve(source, length)
        return parents if source.active else []

    def _can_improve(self, source: _Source, length: int) -> bool:
        request = self.request
        if len(source.finished) < request.num_beams:
            return True
        if request.num_beams == 1 or request.early_stopping == 1:
            return False
        hopes = request.early_stopping == 2 and request.length_penalty > 0
        reachable = (request.longest if hopes else length) ** request.length_penalty
        return source.running[0][0] / reachable > source.finished[-1][0]

    def results(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens [B, returned, longest], padded, and scores [B, returned]."""
        request = self.request
        tokens = torch.full((len(request), request.num_returned, request.longest), request.pad_token)
        scores = torch.full((len(request), request.num_returned), LOWEST)
        for number, source in enumerate(self.sources):
            for rank, (score, hypothesis) in enumerate(source.finished[: request.num_returned]):
                tokens[number, rank, : len(hypothesis)] = torch.tensor(hypothesis)
                scores[number, rank] = score
        return tokens, scores


def _would_repeat(tokens: list[int], size: int) -> list[int]:
    """The tokens that would complete an n-gram for the second time."""
    if len(tokens) + 1 < size:
        return []
    last = tokens[len(tokens) - size + 1 :]
    return [tokens[i + size - 1] for i in range(len(tokens) - size + 1) if tokens[i : i + size - 1] == last]
