"""sacreBLEU's (Post 2018) BLEU, chrF, chrF++ and TER, each with a signature that makes the number reproducible."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from hf_capsule_mt.evaluation.choices import DEFAULT_METRICS, METRICS


@dataclass(frozen=True)
class Score:
    """A score with its signature as sacreBLEU writes it, and `text` for people to read."""

    name: str
    score: float
    signature: str
    text: str


def sacrebleu_metric(name: str, tokenize: str = "13a") -> Metric:
    """Return sacreBLEU's metric for one of our names, as the significance tests need it."""
    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(f"`tokenize` must be one of {', '.join(BLEU.TOKENIZERS)}, got {tokenize!r}")
    if name in ("bleu", "bleu_uncased"):
        return BLEU(tokenize=tokenize, lowercase=name.endswith("uncased"))
    if name in ("chrf", "chrf++"):
        return CHRF(word_order=2 if name == "chrf++" else 0)
    if name == "ter":
        return TER()
    raise ValueError(f"`name` must be one of {', '.join(METRICS)}, got {name!r}")


def metric_signature(name: str, num_references: int = 1, tokenize: str = "13a") -> str:
    """Return the signature that `score_corpus` gives to a metric's scores, without scoring anything."""
    metric = sacrebleu_metric(name, tokenize)
    metric.num_refs = num_references  # which sacreBLEU learns from the references that it scores
    return str(metric.get_signature())


def score_corpus(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = DEFAULT_METRICS,
    tokenize: str = "13a",
) -> dict[str, Score]:
    """Score a whole test set.

    Args:
        hypotheses: a translation for each sentence.
        references: one list of translations for each set of references, each as long as the hypotheses.
        metrics: some of `METRICS`.
        tokenize: sacreBLEU's tokenizer for BLEU; "none" for text that is tokenised already.
    """
    check_parallel(hypotheses, references)
    return {name: _score(name, hypotheses, references, tokenize) for name in metrics}


def check_parallel(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise an error for text that is not parallel, and for a single string in the place of a list."""
    if isinstance(hypotheses, str) or any(isinstance(lines, str) for lines in references):
        raise TypeError("`hypotheses` must be a list of strings, and `references` a list of such lists")
    if not references or not hypotheses:
        raise ValueError(f"got {len(references)} set(s) of references for {len(hypotheses)} hypotheses: need some")
    for number, lines in enumerate(references):
        if len(lines) != len(hypotheses):
            raise ValueError(
                f"`references[{number}]` must have a line for each of the {len(hypotheses)} hypotheses, "
                f"got {len(lines)}"
            )


def _score(name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenize: str) -> Score:
    metric = sacrebleu_metric(name, tokenize)
    result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
    return Score(name, float(result.score), str(metric.get_signature()), str(result))
