"""The coverage difference ratio of a setting's translations (Kong et al. 2019)."""

from collections.abc import Sequence

from hf_capsule_mt.evaluation.adequacy import coverage_difference_ratio
from hf_capsule_mt.evaluation.word_alignment import fit_aligner
from hf_capsule_mt.evaluation.words import split_words


def coverage_difference(
    training_sources: Sequence[str],
    training_targets: Sequence[str],
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
) -> float | None:
    """Return the CDR of translations by an aligner trained on the training text and on the text that it aligns."""
    aligner = fit_aligner([*training_sources, *sources, *sources], [*training_targets, *hypotheses, *references])
    split = [split_words(source) for source in sources]
    links = [
        aligner.align([(words, split_words(line)) for words, line in zip(split, lines, strict=True)])
        for lines in (hypotheses, references)
    ]
    return coverage_difference_ratio(links[0], links[1:])
