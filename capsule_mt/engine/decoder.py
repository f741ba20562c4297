"""`EngineDecoder`: the decoder that runs in the engine."""

from collections.abc import Collection, Sequence
from typing import cast

from capsule_mt.engine.engine import Engine
from capsule_mt.engine.search import Forced, Hypothesis, Ids, Readings, Restriction, SearchOptions
from capsule_mt.options.table import BY_NAME, nearest

FIRST_TOKEN = "forced_bos_token_id"


def with_first_token(options: SearchOptions) -> SearchOptions:
    """Return options whose prefixes begin with the `forced_bos_token_id` of the checkpoint or the call, if any.

    In the scores of beams, it adds to the length but not to the log-probability, as in `generate()`. A prefix that
    begins with it already, as the tokenizer's own may, stays as it is.
    """
    token = options.transformers_only.get(FIRST_TOKEN)
    if token is None:
        return options
    first = [int(cast(int, token))]
    prefixes = [
        prefix if list(prefix[:1]) == first else [*first, *prefix]
        for prefix in options.prefixes or [[]] * len(options.limits)
    ]
    other_options = {name: value for name, value in options.transformers_only.items() if name != FIRST_TOKEN}
    return options._replace(prefixes=prefixes, transformers_only=other_options)


def _hint(name: str) -> str:
    """Return what an error adds to the name of an option that the engine does not support."""
    return " with sequences of several tokens" if name == "bad_words_ids" else nearest(name, BY_NAME, " ({})")


class EngineDecoder:
    """A `Decoder` over an engine and a model's special tokens; `end` is -1 where there is none."""

    def __init__(self, engine: Engine, start: int, end: int, pad: int) -> None:
        self.engine, self.start, self.end, self.pad = engine, start, end, pad

    @property
    def prefers_no_scores(self) -> bool:
        """An int8 search without scores may preview logits, and a forced pass gives the same scores, bit for bit."""
        return self.engine.int8

    def translate(self, sources: Sequence[Ids], options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the best translations of each source, the best first."""
        first_token, size = options.transformers_only.get(FIRST_TOKEN), self.engine.vocabulary
        if first_token is not None and not 0 <= cast(int, first_token) < size:
            raise ValueError(f"`{FIRST_TOKEN}` must be a token id from 0 to {size - 1}, got {first_token}")
        options = with_first_token(options)
        if options.transformers_only:
            names = ", ".join(f"`{name}`{_hint(name)}" for name in options.transformers_only)
            raise ValueError(f"the native engine does not support {names}")
        results = self.engine.search(sources, options, start=self.start, end=self.end, pad=self.pad)
        batch: list[list[Hypothesis]] = []
        for limit, result in zip(options.limits, results, strict=True):
            hypotheses = []
            for index, ids in enumerate(result.tokens):
                attention = None if result.attention is None else result.attention[index]
                was_cut = len(ids) >= limit or (self.end >= 0 and ids[-1] != self.end)
                hypotheses.append(Hypothesis(ids, result.log_probs[index], was_cut, attention))
            batch.append(hypotheses)
        return batch

    def force(
        self,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        readings: Readings,
        positions: Sequence[Collection[int]] | None = None,
        restriction: Restriction | None = None,
    ) -> list[Forced]:
        """Score these translations, from the first token after the start token on."""
        tokens = {"start": self.start, "end": self.end, "pad": self.pad}
        scores = self.engine.force(sources, targets, readings, positions, restriction, **tokens)
        return [Forced(log_probs, attention) for log_probs, attention in scores]
