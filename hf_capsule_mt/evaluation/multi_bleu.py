"""Tokenised BLEU (Papineni et al. 2002) as Moses' multi-bleu.perl computes it, digit by digit.

Like the script, split at ASCII white space, do not smooth, and take the reference length closest to the translation's,
or the shorter of two equally close ones. Lower-casing affects the bytes A-Z only.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

ORDER = 4
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


@dataclass(frozen=True)
class MultiBleu:
    """Score and precisions in percent; `str` gives the line that the script prints."""

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int

    def __str__(self) -> str:
        if self.reference_length == 0:
            return "BLEU = 0, 0/0/0/0 (BP=0, ratio=0, hyp_len=0, ref_len=0)"
        return (
            f"BLEU = {self.score:.2f}, {'/'.join(f'{value:.1f}' for value in self.precisions)} "
            f"(BP={self.brevity_penalty:.3f}, ratio={self.hypothesis_length / self.reference_length:.3f}, "
            f"hyp_len={self.hypothesis_length}, ref_len={self.reference_length})"
        )


def multi_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool = False) -> MultiBleu:
    """Score tokenised translations.

    Args:
        hypotheses: one line for each sentence, its tokens separated by spaces.
        references: one list of lines for each set of references, each as long as the hypotheses.
    """
    correct, total = [0] * ORDER, [0] * ORDER
    hypothesis_length = reference_length = 0
    for hypothesis, *alternatives in zip(hypotheses, *references, strict=True):
        words = _words(hypothesis, lowercase)
        reference_words = [_words(reference, lowercase) for reference in alternatives]
        hypothesis_length += len(words)
        reference_length += min((abs(len(other) - len(words)), len(other)) for other in reference_words)[1]
        for order in range(1, ORDER + 1):
            most: Counter[tuple[str, ...]] = Counter()
            for reference in reference_words:
                most |= _ngrams(reference, order)
            found = _ngrams(words, order)
            correct[order - 1] += sum((found & most).values())
            total[order - 1] += sum(found.values())
    precisions = [matched / of if of else 0.0 for matched, of in zip(correct, total, strict=True)]
    if not reference_length or not hypothesis_length:
        return MultiBleu(0.0, (0.0,) * ORDER, 0.0, hypothesis_length, reference_length)
    brevity_penalty = min(1.0, math.exp(1 - reference_length / hypothesis_length))
    logs = [math.log(precision) if precision else -math.inf for precision in precisions]
    score = brevity_penalty * math.exp(sum(logs) / ORDER)
    percent = tuple(100 * precision for precision in precisions)
    return MultiBleu(100 * score, percent, brevity_penalty, hypothesis_length, reference_length)


def _words(line: str, lowercase: bool) -> list[str]:
    return [word for word in re.split(r"[ \t\n\r\f\v]+", line.translate(_LOWER) if lowercase else line) if word]


def _ngrams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))
