"""Whether one system is better than another: resampling (Koehn 2004; Riezler and Maxwell 2005) and the sign test.

The paired bootstrap and approximate randomisation are sacreBLEU's. The sign test is that of Collins, Koehn and
Kucerova 2005, which Dou et al. 2019 use.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from hf_capsule_mt.evaluation.metrics import check_parallel, sacrebleu_metric

# Of these a smaller score is the better one
SMALLER_IS_BETTER = frozenset({"ter"})


@dataclass(frozen=True)
class SignTest:
    """wins, losses and ties of the system against the baseline, sentence by sentence, and the two-sided p-value."""

    wins: int
    losses: int
    ties: int
    p_value: float


@dataclass(frozen=True)
class Comparison:
    """One system against a baseline by one metric.

    confidence: half the width of the 95 % interval of the bootstrap around `bootstrap_mean`, both of the system.
    """

    metric: str
    score: float
    baseline_score: float
    difference: float
    bootstrap_mean: float
    confidence: float
    p_bootstrap: float
    p_randomisation: float
    sign_test: SignTest
    signature: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def binomial_two_sided(wins: int, losses: int) -> float:
    """The exact two-sided p-value of the sign test: how often a fair coin is at least this one-sided. Ties are out."""
    if wins < 0 or losses < 0:
        raise ValueError(f"`wins` and `losses` must not be negative, got {wins} and {losses}")
    trials = wins + losses
    log_half = trials * math.log(2)
    tail = math.fsum(
        math.exp(math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1) - log_half)
        for k in range(min(wins, losses) + 1)
    )
    return min(1.0, 2 * tail)


def sign_test_collins(
    system: Sequence[str], baseline: Sequence[str], references: Sequence[Sequence[str]], metric: str = "bleu"
) -> SignTest:
    """The sign test for scores of a whole corpus, such as BLEU.

    Sentence by sentence, the baseline's translation is replaced by the system's, that one sentence alone. The system
    wins the sentence if the score of the corpus becomes better by it, and loses it if worse.
    """
    scorer = sacrebleu_metric(metric)
    system_counts, baseline_counts = (sentence_statistics(scorer, lines, references) for lines in (system, baseline))
    whole = baseline_counts.sum(axis=0)
    before = score_statistics(scorer, whole)
    swaps = zip(baseline_counts, system_counts, strict=True)
    swapped = np.array([score_statistics(scorer, whole - old + new) for old, new in swaps])
    gains = (before - swapped) if metric in SMALLER_IS_BETTER else (swapped - before)
    # sums of the same numbers in another order differ by rounding, which is no gain
    wins, losses = int((gains > 1e-9).sum()), int((gains < -1e-9).sum())
    return SignTest(wins, losses, len(gains) - wins - losses, binomial_two_sided(wins, losses))


def compare_systems(
    systems: dict[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
    bootstrap_samples: int = 1000,
    randomisation_trials: int = 10_000,
) -> dict[str, dict[str, Comparison]]:
    """Every system but the first against the first, the baseline: {system: {metric: Comparison}}.

    The seed of the resampling is sacreBLEU's: 12345, or what SACREBLEU_SEED says.
    """
    if len(systems) < 2:
        raise ValueError(f"`systems` needs a baseline and at least one more, got {list(systems)}")
    for lines in systems.values():
        check_parallel(lines, references)
    (baseline, baseline_lines), *others = systems.items()
    result: dict[str, dict[str, Comparison]] = {name: {} for name, _ in others}
    for metric in metrics:
        bootstrap, signature = _paired(systems, references, metric, "bs", bootstrap_samples)
        randomisation, _ = _paired(systems, references, metric, "ar", randomisation_trials)
        for name, lines in others:
            score, base = bootstrap[name].score, bootstrap[baseline].score
            # sacreBLEU counts samples that differ more than the systems do, which for no difference at all are few
            same = score == base
            result[name][metric] = Comparison(
                metric=metric,
                score=float(score),
                baseline_score=float(base),
                difference=float(score - base),
                bootstrap_mean=float(bootstrap[name].mean),
                confidence=float(bootstrap[name].ci),
                p_bootstrap=1.0 if same else float(bootstrap[name].p_value),
                p_randomisation=1.0 if same else float(randomisation[name].p_value),
                sign_test=sign_test_collins(lines, baseline_lines, references, metric),
                signature=signature,
            )
    return result


def confidence_interval(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], metric: str = "bleu", samples: int = 1000
) -> tuple[float, float]:
    """The mean of the bootstrap and half the width of its 95 % interval, by sacreBLEU, with its seed."""
    scorer = sacrebleu_metric(metric)
    score = scorer.corpus_score(list(hypotheses), [list(lines) for lines in references], n_bootstrap=samples)
    return float(score._mean), float(score._ci)


def sentence_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], metric: str = "chrf"
) -> list[float]:
    """The score of each sentence on its own. BLEU of a sentence is smoothed and of the orders that it has."""
    scorer = sacrebleu_metric(metric)
    if isinstance(scorer, BLEU):
        scorer = BLEU(lowercase=scorer.lowercase, effective_order=True)
    return [
        float(scorer.sentence_score(hypothesis, list(alternatives)).score)
        for hypothesis, *alternatives in zip(hypotheses, *references, strict=True)
    ]


def sentence_statistics(metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Return what a metric counts in each sentence, [sentences, counts]; their sum gives the corpus score."""
    return np.array(metric._extract_corpus_statistics(list(hypotheses), [list(lines) for lines in references]), float)


def score_statistics(metric: Metric, counts: np.ndarray) -> float:
    return float(metric._compute_score_from_stats(counts.tolist()).score)


def _paired(
    systems: dict[str, Sequence[str]], references: Sequence[Sequence[str]], metric: str, kind: str, samples: int
) -> tuple[dict[str, Any], str]:
    test = PairedTest(
        [(name, list(lines)) for name, lines in systems.items()],
        {metric: sacrebleu_metric(metric)},
        [list(lines) for lines in references],
        test_type=kind,
        n_samples=samples,
    )
    signatures, scores = test()
    key = next(name for name in scores if name != "System")
    by_name: dict[Any, Any] = dict(zip(scores["System"], scores[key], strict=True))
    return by_name, str(signatures[key])
