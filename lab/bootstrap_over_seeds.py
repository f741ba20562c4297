"""The paired bootstrap over sentences for systems that were trained with several seeds."""

import os
from collections.abc import Sequence

import numpy as np

from hf_capsule_mt.evaluation.metrics import check_parallel, sacrebleu_metric
from hf_capsule_mt.evaluation.significance import score_statistics, sentence_statistics


def bootstrap_over_seeds(
    systems: Sequence[Sequence[str]],
    baselines: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    metric: str = "bleu",
    samples: int = 1000,
) -> tuple[float, float]:
    """Compare a system with a baseline, both trained with several seeds: return the mean difference and its p-value.

    Draw each sample of sentences for all seeds at once, because a sentence that is hard for one seed is hard for the
    others. The p-value asks whether these models differ on other sentences, not whether further seeds would.

    Args:
        systems: for each seed the system's translations.
        baselines: for each seed, in the same order, those of the baseline.

    Relations: with one seed it is the paired bootstrap of `compare_systems`, whose seed of the resampling it shares.
    """
    if not systems or len(systems) != len(baselines):
        raise ValueError(f"as many systems as baselines are needed, got {len(systems)} and {len(baselines)}")
    for lines in (*systems, *baselines):
        check_parallel(lines, references)
    scorer = sacrebleu_metric(metric)
    size = len(references[0])
    seed = int(os.environ.get("SACREBLEU_SEED", "12345"))
    chosen = np.random.default_rng(seed).choice(size, size=(samples, size), replace=True)
    times = np.stack([np.bincount(row, minlength=size) for row in chosen])  # [samples, sentences]

    def scores(lines: Sequence[str]) -> np.ndarray:
        """Score the whole text, then each sample."""
        counts = sentence_statistics(scorer, lines, references)
        return np.array([score_statistics(scorer, row) for row in (counts.sum(axis=0), *(times @ counts))])

    pairs = zip(systems, baselines, strict=True)
    difference, *resampled = np.mean([scores(ours) - scores(theirs) for ours, theirs in pairs], axis=0)
    if difference == 0:
        return 0.0, 1.0
    distances = np.abs(resampled)  # centred and counted as sacreBLEU does
    beyond = int((distances - distances.mean() > abs(difference)).sum())
    return float(difference), (beyond + 1) / (samples + 1)
