"""How much of the source given translations cover."""

from collections.abc import Sequence

from hf_capsule_mt.evaluation.adequacy import coverage_difference_ratio
from hf_capsule_mt.evaluation.word_alignment import fit_aligner


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
