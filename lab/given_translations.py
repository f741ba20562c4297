"""Translations: a model's own, and how much of the source given ones cover."""

from collections.abc import Sequence
from typing import Any

from hf_capsule_mt.evaluation.adequacy import coverage_difference_ratio
from hf_capsule_mt.evaluation.word_alignment import fit_aligner
from hf_capsule_mt.pipelines import Translator


def own_translations(model: Any, tokenizer: Any, sources: Sequence[str]) -> list[str]:
    """Return the greedy translations of a model."""
    found = Translator(model, tokenizer)(list(sources), batch_size=32, scores=False, num_beams=1)
    return [translation.text for translation in found]


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
