"""A decoder without a model, for tests of what is around one."""

from capsule_mt import Translator
from capsule_mt.engine.search import Forced, Hypothesis
from capsule_mt.models.model import LoadedModel
from tests.light.text.fakes import WordTokenizer

END = 1


class Echo:
    """Answers with the tokens of the source; `calls` are its sources and options.

    With one beam, each translation lacks the last `lost` words. The hypothesis of rank r lacks r more words. Each
    token attends to its own word.
    """

    prefers_no_scores = False

    def __init__(self, lost=0):
        self.lost, self.calls, self.forced = lost, [], []

    def translate(self, sources, options):
        self.calls.append((list(sources), options))
        results = []
        for source, limit in zip(sources, options.limits, strict=True):
            first = self.lost if options.num_beams == 1 else 0
            ranks = range(first, first + options.num_return_sequences)
            results.append([self.hypothesis(source, rank, limit) for rank in ranks])
        return results

    def hypothesis(self, source, lost, limit):
        num_covered = len(source) - 1 - lost
        ids = [*source[:num_covered], END][:limit]
        attention = [
            [float(column == at and at < num_covered) for column in range(len(source))] for at in range(len(ids))
        ]
        return Hypothesis(ids, [-1.0 - lost] * len(ids), len(ids) >= limit, attention)

    def force(self, sources, targets, readings, positions=None):
        """A token has the probability e^-1 if the source has it, and e^-3 otherwise."""
        self.forced.append((list(sources), [list(target) for target in targets]))
        forced = []
        for source, target in zip(sources, targets, strict=True):
            attention = [[float(token == source_token) for source_token in source] for token in target]
            log_probs = [-1.0 if token in source else -3.0 for token in target]
            forced.append(Forced(log_probs, attention if readings.head is not None else None))
        return forced


def translator(decoder=None, tokenizer=None, **facts):
    """A light translator without a model, which attends by head (0, 0)."""
    facts = {"calibration": {"attention": {"head": [0, 0]}}, "head_shape": (1, 1), "start": 0, "end": END} | facts
    return Translator(LoadedModel(decoder or Echo(), tokenizer or WordTokenizer(), name="an echo", pad=END, **facts))
