"""`EngineDecoder`: the decoder that runs in the engine."""

from collections.abc import Sequence

from capsule_mt.engine.library import Engine
from capsule_mt.engine.search import Forced, GuidedReading, Hypothesis, Ids, Readings, SearchOptions
from capsule_mt.options.table import BY_NAME, nearest


class EngineDecoder:
    """A `Decoder` over an engine and a model's special tokens; `end` is -1 where there is none."""

    def __init__(self, engine: Engine, start: int, end: int, pad: int) -> None:
        self.engine, self.start, self.end, self.pad = engine, start, end, pad

    def translate(self, sources: Sequence[Ids], options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the best translations of each source, the best first."""
        if options.further:
            names = ", ".join(f"`{name}`" + nearest(name, BY_NAME, " ({})") for name in options.further)
            raise ValueError(f"the native engine does not take {names}")
        answers = self.engine.search(sources, options, start=self.start, end=self.end, pad=self.pad)
        found: list[list[Hypothesis]] = []
        for limit, answer in zip(options.limits, answers, strict=True):
            hypotheses = []
            for place, ids in enumerate(answer.tokens):
                attention = None if answer.received is None else answer.received[place]
                guided = None if answer.guided is None else GuidedReading(*answer.guided[place])
                was_cut = len(ids) >= limit or (self.end >= 0 and ids[-1] != self.end)
                hypotheses.append(Hypothesis(ids, answer.log_probs[place], was_cut, attention, guided))
            found.append(hypotheses)
        return found

    def force(self, sources: Sequence[Ids], targets: Sequence[Ids], readings: Readings) -> list[Forced]:
        """Score given translations, from the first token after the start token on."""
        answers = self.engine.force(sources, targets, readings, start=self.start, end=self.end, pad=self.pad)
        return [
            Forced(log_probs, received, None if guided is None else GuidedReading(*guided))
            for log_probs, received, guided in answers
        ]
