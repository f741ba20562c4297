"""Score by source length: Figure 5 of Dou et al. 2019 and of Zheng et al. 2019."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hf_capsule_mt.evaluation.metrics import score_corpus


@dataclass(frozen=True)
class Bucket:
    """Sentences whose source has `low` to `high` words, both included; `high` is None in the last bucket."""

    low: int
    high: int | None
    sentences: int
    score: float | None
    hypothesis_words: float | None
    reference_words: float | None

    @property
    def label(self) -> str:
        return f"{self.low}-{self.high}" if self.high is not None else f"{self.low}+"

    def as_dict(self) -> dict[str, Any]:
        return {"label": self.label, **asdict(self)}


def score_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metric: str = "bleu",
    edges: Sequence[int] = (10, 20, 30, 40, 50),
    tokenize: str = "13a",
) -> list[Bucket]:
    """Return the corpus score and the mean lengths of each bucket of sentences; None for an empty bucket.

    Args:
        edges: the most words of each bucket but the last, increasing. Words are separated by white space.
        tokenize: sacreBLEU's tokenizer for BLEU.
    """
    if len(sources) != len(hypotheses):
        raise ValueError(f"`sources` must have a line for each of the {len(hypotheses)} hypotheses: {len(sources)}")
    if list(edges) != sorted(set(edges)) or (edges and edges[0] < 1):
        raise ValueError(f"`edges` must be positive and rise, got {list(edges)}")
    lengths = [len(source.split()) for source in sources]
    buckets, low = [], 0
    for high in (*edges, None):
        chosen = [n for n, length in enumerate(lengths) if length >= low and (high is None or length <= high)]
        if chosen:
            lines = [hypotheses[n] for n in chosen]
            sets = [[reference[n] for n in chosen] for reference in references]
            score = score_corpus(lines, sets, [metric], tokenize)[metric].score
            words = [sum(len(line.split()) for line in part) / len(chosen) for part in (lines, sets[0])]
            buckets.append(Bucket(low, high, len(chosen), score, words[0], words[1]))
        else:
            buckets.append(Bucket(low, high, 0, None, None, None))
        low = (high or 0) + 1
    return buckets
