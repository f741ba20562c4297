"""Measure how much of the source a translation covers: word alignment, repetitions, length.

The coverage difference ratio is Kong et al.'s (2019), which Zheng et al. 2019 report in Table 3.
"""

from collections.abc import Sequence

import numpy as np

from capsule_mt.coverage.calibration.word_alignment import WordAligner
from capsule_mt.coverage.calibration.words import Links, word_pairs


def coverage_difference_ratio(
    hypothesis_links: Sequence[Links], reference_links: Sequence[Sequence[Links]]
) -> float | None:
    """Return the share of the source words translated by the reference that the hypothesis translates, too.

        CDR = 1 - |C_ref \\ C_gen| / |C_ref|,    C the source positions that have a link

    Average over sentences, and over the references of each. Skip references without links; return None if all are.

    Args:
        hypothesis_links: the links between source and hypothesis, for each sentence.
        reference_links: the links between source and reference, one list for each set of references.
    """
    by_sentence = []
    for generated, *references in zip(hypothesis_links, *reference_links, strict=True):
        covered, *by_reference = ({source for source, _ in links} for links in (generated, *references))
        ratios = [len(positions & covered) / len(positions) for positions in by_reference if positions]
        if ratios:
            by_sentence.append(sum(ratios) / len(ratios))
    return sum(by_sentence) / len(by_sentence) if by_sentence else None


def adequacy_measures(
    sources: Sequence[str], hypotheses: Sequence[str], aligner: WordAligner | None = None
) -> dict[str, list[float]]:
    """Measure each translation without a reference: {measure: one value a sentence}; higher means worse.

    | measure | value |
    |---|---|
    | short in words, in characters | minus the length ratio to the source |
    | repeated words | share of the translation's words that occurred before |

    An aligner adds the following. A word's coverage is the probability of its best link, the geometric mean of both
    directions. An omission leaves source words uncovered, a hallucination words of both sides.

    | measure | value |
    |---|---|
    | uncovered source | mean of 1 - coverage over the source's words |
    | uncovered translation | mean of 1 - coverage over the translation's words |
    """
    pairs = word_pairs(sources, hypotheses)
    characters = [-len(line) / max(len(source), 1) for source, line in zip(sources, hypotheses, strict=True)]
    measures = {
        "short in words": [-len(words) / max(len(source), 1) for source, words in pairs],
        "short in characters": characters,
        "repeated words": [
            1 - len({word.lower() for word in words}) / len(words) if words else 0.0 for _, words in pairs
        ],
    }
    if aligner is None:
        return measures
    links = [np.sqrt(forward * backward) for forward, backward in aligner.posteriors(pairs)]  # [T, S] each
    return measures | {
        "uncovered source": [_uncovered(probabilities.T) for probabilities in links],
        "uncovered translation": [_uncovered(probabilities) for probabilities in links],
    }


def _uncovered(probabilities: np.ndarray) -> float:
    """Return the mean over words of 1 - the best link's probability [words, other words]; 1 if a side is empty."""
    return float(1 - probabilities.max(axis=1).mean()) if probabilities.size else 1.0
