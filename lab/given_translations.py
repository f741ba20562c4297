"""What a model thinks of translations that are given to it, its own or others'."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from hf_capsule_mt.analysis.routing_statistics import encoded_batches
from hf_capsule_mt.evaluation.adequacy import coverage_difference_ratio
from hf_capsule_mt.evaluation.word_alignment import fit_aligner
from hf_capsule_mt.modeling.losses import IGNORE_INDEX, token_log_probs


class Coverage(NamedTuple):
    """`CoverageScore.score` and `balance` of each translation: the higher, the more of the source is covered."""

    score: list[float]
    balance: list[float]


class Likelihood(NamedTuple):
    """Of each translation: the mean log-probability of its tokens, and the log-probability of ending where it ends."""

    tokens: list[float]
    end: list[float]


def coverage_scores(
    model: Any, tokenizer: Any, sources: Sequence[str], translations: Sequence[str], batch_size: int = 32
) -> Coverage:
    """How much of its source each translation covers, by a model with PAST and FUTURE.

    What is longer than the model can read, such as a translation that repeats itself without end, is cut.
    """
    if not hasattr(model, "score_coverage"):
        raise ValueError(f"coverage needs a model with PAST and FUTURE, got a {type(model).__name__}")
    found = Coverage([], [])
    for batch in _batches(model, tokenizer, sources, translations, batch_size):
        coverage = model.score_coverage(**batch)
        found.score.extend(coverage.score.tolist())
        found.balance.extend(coverage.balance.tolist())
    return found


@torch.no_grad()
def likelihoods(
    model: Any, tokenizer: Any, sources: Sequence[str], translations: Sequence[str], batch_size: int = 32
) -> Likelihood:
    """How likely given translations are, by any sequence-to-sequence model; cut as for `coverage_scores`."""
    found = Likelihood([], [])
    for batch in _batches(model.eval(), tokenizer, sources, translations, batch_size):
        labels = batch["labels"]
        counts = labels != IGNORE_INDEX
        logits = model(**batch).logits.float()
        of_labels = token_log_probs(logits, labels.clamp(min=0)) * counts  # [B, T]
        last = counts.sum(dim=-1, keepdim=True) - 1  # where the end token is
        end = of_labels.gather(-1, last).squeeze(-1)
        found.tokens.extend(((of_labels.sum(dim=-1) - end) / last.squeeze(-1).clamp(min=1)).tolist())
        found.end.extend(end.tolist())
    return found


def _batches(
    model: Any, tokenizer: Any, sources: Sequence[str], translations: Sequence[str], batch_size: int
) -> Iterator[dict[str, torch.Tensor]]:
    longest = getattr(model.config, "max_position_embeddings", None)
    return encoded_batches(tokenizer, list(sources), list(translations), batch_size, str(model.device), longest)


def coverage_difference(
    training_sources: Sequence[str],
    training_targets: Sequence[str],
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
) -> float | None:
    """Return the CDR of translations by an aligner trained on the training text and on the text that it aligns."""
    aligner = fit_aligner([*training_sources, *sources, *sources], [*training_targets, *hypotheses, *references])
    links = [aligner.align_lines(sources, lines) for lines in (hypotheses, references)]
    return coverage_difference_ratio(links[0], links[1:])
