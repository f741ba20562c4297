"""How much of the source a translation says: coverage by word alignment, repetitions, length, and how to judge them.

The coverage difference ratio is that of Kong et al. 2019, which Zheng et al. 2019 report in Table 3.
"""

from collections.abc import Sequence

import numpy as np

from hf_capsule_mt.evaluation.links import Links
from hf_capsule_mt.evaluation.word_alignment import WordAligner
from hf_capsule_mt.evaluation.words import split_words


def coverage_difference_ratio(
    hypothesis_links: Sequence[Links], reference_links: Sequence[Sequence[Links]]
) -> float | None:
    """CDR: the part of the source words that the reference translates which the translation translates as well.

        CDR = 1 - |C_ref \\ C_gen| / |C_ref|

    C are the source positions that have a link. The mean is over sentences, and over the references of each; where a
    reference translates nothing there is nothing to compare. None if that is so everywhere.

    Args:
        hypothesis_links: the links of source and translation, for each sentence.
        reference_links: the same of source and reference, one list for each set of references.
    """
    by_sentence = []
    for generated, *references in zip(hypothesis_links, *reference_links, strict=True):
        covered = source_coverage(generated)
        wanted = [source_coverage(links) for links in references]
        ratios = [len(positions & covered) / len(positions) for positions in wanted if positions]
        if ratios:
            by_sentence.append(sum(ratios) / len(ratios))
    return sum(by_sentence) / len(by_sentence) if by_sentence else None


def source_coverage(links: Links) -> set[int]:
    """The source positions that have a link."""
    return {source for source, _ in links}


def repeated_ngrams(words: Sequence[str], order: int = 4) -> float:
    """The part of the n-grams that have been there before in the same sentence; 0 for a sentence shorter than n."""
    ngrams = [tuple(words[start : start + order]) for start in range(len(words) - order + 1)]
    return 1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def most_repeated_ngram(words: Sequence[str], source: Sequence[str], order: int = 2) -> float:
    """How much more often the most frequent n-gram comes in the translation than any n-gram does in the source."""
    most = [_highest_count(side, order) for side in (words, source)]
    return float(most[0] - most[1])


def length_ratio(hypothesis: Sequence[str], other: Sequence[str]) -> float:
    """The translation's words for each word of the other side."""
    return len(hypothesis) / max(len(other), 1)


def _highest_count(words: Sequence[str], order: int) -> int:
    counts: dict[tuple[str, ...], int] = {}
    for start in range(len(words) - order + 1):
        ngram = tuple(words[start : start + order])
        counts[ngram] = counts.get(ngram, 0) + 1
    return max(counts.values(), default=0)


def adequacy_measures(
    sources: Sequence[str], hypotheses: Sequence[str], aligner: WordAligner | None = None
) -> dict[str, list[float]]:
    """What can be said of each translation without a reference; the higher, the worse it should be.

    - short in words, in characters: minus the length ratio to the source.
    - repeated words: the part of the translation's words that have been there before, as `repeated_ngrams`.
    - excess bigrams: `most_repeated_ngram`.

    And by an aligner, where a word is as covered as its best link is certain (the geometric mean of both directions):

    - uncovered source: the mean of 1 - coverage over the source's words.
    - uncovered translation: the same of the translation's words, which is what was made up.
    - unbalanced coverage: the first minus 0.75 times the second. Where something is left out, the source alone is
      uncovered; in a hallucination both sides are.
    - short and unbalanced: minus the length ratio in characters, plus half of uncovered source minus half of uncovered
      translation.
    """
    pairs = [(split_words(source), split_words(line)) for source, line in zip(sources, hypotheses, strict=True)]
    characters = [-len(line) / max(len(source), 1) for source, line in zip(sources, hypotheses, strict=True)]
    measures = {
        "short in words": [-length_ratio(words, source) for source, words in pairs],
        "short in characters": characters,
        "repeated words": [repeated_ngrams([word.lower() for word in words], 1) for _, words in pairs],
        "excess bigrams": [most_repeated_ngram(words, source) for source, words in pairs],
    }
    if aligner is None:
        return measures
    certainties = [np.sqrt(ahead * back) for ahead, back in aligner.posteriors(pairs)]  # [T, S] each
    source_side = [_uncovered(certainty.T) for certainty in certainties]
    target_side = [_uncovered(certainty) for certainty in certainties]
    both = list(zip(characters, source_side, target_side, strict=True))
    return measures | {
        "uncovered source": source_side,
        "uncovered translation": target_side,
        "unbalanced coverage": [source - 0.75 * target for _, source, target in both],
        "short and unbalanced": [short + 0.5 * (source - 0.5 * target) for short, source, target in both],
    }


def _uncovered(certainty: np.ndarray) -> float:
    """The mean of 1 - the best certainty [words, other words] over the words; 1 if one side is empty."""
    return float(1 - certainty.max(axis=1).mean()) if certainty.size else 1.0
