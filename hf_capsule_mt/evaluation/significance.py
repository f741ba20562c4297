"""Test whether one system is better than another: resampling (Koehn 2004; Riezler and Maxwell 2005), sign test.

The paired bootstrap and approximate randomisation are sacreBLEU's; where few sentences differ, the randomisation is
exact. The sign test comes from Collins, Koehn and Kucerova 2005, which Dou et al. 2019 use.
"""

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from hf_capsule_mt.evaluation.metrics import check_parallel, sacrebleu_metric

# Metrics whose smaller score is better
SMALLER_IS_BETTER = frozenset({"ter"})
# Sentences that differ: their exchanges are at most 4,096. With more, hardly any exchange has the difference itself.
MOST_EXACT = 12


@dataclass(frozen=True)
class SignTest:
    """Sentences that the system won, lost and tied against the baseline, and the two-sided p-value."""

    wins: int
    losses: int
    ties: int
    p_value: float


@dataclass(frozen=True)
class Comparison:
    """A system against a baseline by one metric.

    confidence: half the width of the system's 95 % bootstrap interval, around its `bootstrap_mean`.
    baseline_confidence: the same of the baseline.
    difference_interval: lower and upper end of the difference's 95 % interval, by paired bootstrap.
    """

    metric: str
    score: float
    baseline_score: float
    baseline_confidence: float
    difference: float
    difference_interval: tuple[float, float]
    bootstrap_mean: float
    confidence: float
    p_bootstrap: float
    p_randomisation: float
    sign_test: SignTest
    signature: str


def binomial_two_sided(wins: int, losses: int) -> float:
    """Return the exact two-sided p-value of the sign test, without ties: P(a fair coin is at least as uneven).

    `scipy.stats.binomtest` has it, too; lab/over_seeds.py says why scipy is no requirement.
    """
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
    """Run the sign test for scores of a whole corpus, such as BLEU.

    Replace the baseline's translation by the system's in one sentence at a time. The system wins the sentence if that
    improves the corpus score, and loses it if that worsens the score.
    """
    scorer = sacrebleu_metric(metric)
    system_counts, baseline_counts = (sentence_statistics(scorer, lines, references) for lines in (system, baseline))
    corpus_counts = baseline_counts.sum(axis=0)
    baseline_score = score_statistics(scorer, corpus_counts)
    swaps = zip(baseline_counts, system_counts, strict=True)
    swapped = np.array([score_statistics(scorer, corpus_counts - old + new) for old, new in swaps])
    gains = (baseline_score - swapped) if metric in SMALLER_IS_BETTER else (swapped - baseline_score)
    # sums of the same numbers in another order differ by rounding, which is no gain
    wins, losses = int((gains > 1e-9).sum()), int((gains < -1e-9).sum())
    return SignTest(wins, losses, len(gains) - wins - losses, binomial_two_sided(wins, losses))


def exact_randomisation(
    system: Sequence[str], baseline: Sequence[str], references: Sequence[Sequence[str]], metric: str
) -> float | None:
    """Return the p-value of all exchanges of the sentences that differ; None if these are more than `MOST_EXACT`.

    It counts the exchanges with at least the difference of the systems. sacreBLEU counts those with a larger one: it
    prints its smallest p where no exchange has one, for example where only one sentence differs.
    """
    different = [index for index, lines in enumerate(zip(system, baseline, strict=True)) if len(set(lines)) == 2]
    if len(different) > MOST_EXACT:
        return None
    scorer = sacrebleu_metric(metric)
    ours, theirs = (sentence_statistics(scorer, lines, references) for lines in (system, baseline))
    exchanges = np.array(list(itertools.product((0, 1), repeat=len(different))))
    moved = exchanges @ (theirs - ours)[different]  # [exchanges, counts]
    differences = [
        abs(score_statistics(scorer, ours.sum(axis=0) + move) - score_statistics(scorer, theirs.sum(axis=0) - move))
        for move in moved
    ]  # the first exchanges nothing
    return float(np.mean(np.array(differences) >= differences[0] - 1e-9))


def bootstrap_difference(
    system: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[Sequence[str]],
    metric: str = "bleu",
    samples: int = 1000,
) -> tuple[float, float]:
    """Return the ends of the 95 % interval of system minus baseline: each sample scores the same sentences of both.

    Samples and quantiles are those of sacreBLEU's intervals of one system.
    """
    scorer = sacrebleu_metric(metric)
    ours, theirs = (sentence_statistics(scorer, lines, references) for lines in (system, baseline))
    chosen = _sacrebleu_generator().choice(len(ours), size=(samples, len(ours)), replace=True)
    differences = sorted(
        score_statistics(scorer, ours[indices].sum(axis=0)) - score_statistics(scorer, theirs[indices].sum(axis=0))
        for indices in chosen
    )
    return differences[samples // 40], differences[samples - samples // 40 - 1]


def compare_systems(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
    bootstrap_samples: int = 1000,
    randomisation_trials: int = 10_000,
) -> dict[str, dict[str, Comparison]]:
    """Compare every other system with the first, the baseline: {system: {metric: Comparison}}.

    The seed of the resampling is sacreBLEU's: 12345, or the environment variable SACREBLEU_SEED.
    """
    if len(systems) < 2:
        raise ValueError(f"`systems` needs a baseline and at least one more, got {list(systems)}")
    for lines in systems.values():
        check_parallel(lines, references)
    (baseline, baseline_lines), *compared = systems.items()
    result: dict[str, dict[str, Comparison]] = {name: {} for name, _ in compared}
    for metric in metrics:
        bootstrap, signature = _paired(systems, references, metric, "bs", bootstrap_samples)
        randomisation, _ = _paired(systems, references, metric, "ar", randomisation_trials)
        for name, lines in compared:
            score, base = bootstrap[name].score, bootstrap[baseline].score
            # sacreBLEU counts samples that differ more than the systems do: equal scores would get a small p
            is_tie = score == base
            exact = exact_randomisation(lines, baseline_lines, references, metric)
            result[name][metric] = Comparison(
                metric=metric,
                score=float(score),
                baseline_score=float(base),
                baseline_confidence=float(bootstrap[baseline].ci),
                difference=float(score - base),
                difference_interval=bootstrap_difference(lines, baseline_lines, references, metric, bootstrap_samples),
                bootstrap_mean=float(bootstrap[name].mean),
                confidence=float(bootstrap[name].ci),
                p_bootstrap=1.0 if is_tie else float(bootstrap[name].p_value),
                p_randomisation=exact or (1.0 if is_tie else float(randomisation[name].p_value)),
                sign_test=sign_test_collins(lines, baseline_lines, references, metric),
                signature=signature,
            )
    return result


def confidence_interval(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], scorer: Metric, samples: int = 1000
) -> tuple[float, float]:
    """Return the bootstrap mean and half the width of its 95 % interval, by sacreBLEU with its seed."""
    score = scorer.corpus_score(list(hypotheses), [list(lines) for lines in references], n_bootstrap=samples)
    return float(score._mean), float(score._ci)


def sentence_statistics(metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Return what a metric counts in each sentence, [sentences, counts]; their sum gives the corpus score."""
    return np.array(metric._extract_corpus_statistics(list(hypotheses), [list(lines) for lines in references]), float)


def score_statistics(metric: Metric, counts: np.ndarray) -> float:
    return float(metric._compute_score_from_stats(counts.tolist()).score)


def _sacrebleu_generator() -> np.random.Generator:
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    return np.random.default_rng(None if seed.lower() == "none" else int(seed))


def _paired(
    systems: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]], metric: str, kind: str, samples: int
) -> tuple[dict[str, Any], str]:
    test = PairedTest(
        [(name, list(lines)) for name, lines in systems.items()],
        {"metric": sacrebleu_metric(metric)},
        [list(lines) for lines in references],
        test_type=kind,
        n_samples=samples,
    )
    signatures, scores = test()
    key = next(name for name in scores if name != "System")
    by_name: dict[Any, Any] = dict(zip(scores["System"], scores[key], strict=True))
    return by_name, str(signatures[key])
