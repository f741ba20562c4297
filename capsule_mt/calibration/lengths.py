"""Learn from parallel text how long a translation should be, by the words of its source."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from capsule_mt.text.lengths import ExpectedLength
from capsule_mt.text.words import WORDS

RIDGE = 0.3  # of 0.1, 0.3, 1 and 3, the one that predicts held-out lengths best
STEPS = 30  # of conjugate gradients
CALIBRATED_WORDS = 2000  # more of them change little


def fit_length(sources: Sequence[str], targets: Sequence[str]) -> ExpectedLength:
    """Return how many characters a translation should have, learnt from parallel text.

    A source of x characters makes expect a + b x, and each of its words some more or less: ridge regression, weighted
    by 1 / (x + 10). Pairs of which one side is empty or too long for the other are left out.
    """
    pairs = [
        (source, len(target))
        for source, target in zip(sources, targets, strict=True)
        if 0 < len(source) < 3 * len(target) + 10 and 0 < len(target) < 3 * len(source) + 10
    ]
    if not pairs:
        raise ValueError(f"none of the {len(sources)} pairs can be learnt from")
    numbers: dict[str, int] = {}
    lines = [[numbers.setdefault(word, len(numbers)) for word in _words(source)] for source, _ in pairs]
    rows, words = np.repeat(np.arange(len(lines)), [len(line) for line in lines]), np.concatenate(lines).astype(int)
    characters = np.array([len(source) for source, _ in pairs])
    weights = 1 / np.sqrt(characters + 10)
    plain = np.stack([weights, characters * weights], axis=1)
    lengths = np.array([length for _, length in pairs]) * weights
    start, slope = np.linalg.lstsq(plain, lengths, rcond=None)[0]

    def by_word(by_line: np.ndarray) -> np.ndarray:
        return np.bincount(words, (by_line * weights)[rows], minlength=len(numbers))

    more = np.zeros(len(numbers))
    left = direction = by_word(lengths - plain @ (start, slope))
    for _ in range(STEPS):
        if (size := left @ left) < 1e-9:
            break
        moved = by_word(np.bincount(rows, direction[words], minlength=len(lines)) * weights) + RIDGE * direction
        step = size / (direction @ moved)
        more, left = more + step * direction, left - step * moved
        direction = left + (left @ left) / size * direction
    return ExpectedLength(float(start), float(slope), dict(zip(numbers, more.tolist(), strict=True)))


def calibrated(length: ExpectedLength, sources: Sequence[str]) -> dict[str, Any]:
    """Return what a calibration keeps: of the words of these sources those that matter most, in whole characters."""
    counts = Counter(word for source in sources for word in _words(source))
    by_weight = sorted(length.more, key=lambda word: (-abs(length.more[word]) * counts[word] ** 0.5, word))
    more: dict[int, list[str]] = {}
    for word in sorted(by_weight[:CALIBRATED_WORDS]):
        if number := round(length.more[word]):
            more.setdefault(number, []).append(word)
    return {
        "start": round(length.start, 2),
        "slope": round(length.slope, 3),
        "more": {str(number): " ".join(more[number]) for number in sorted(more)},
    }


def _words(source: str) -> list[str]:
    return [word.casefold() for word in WORDS.findall(source)]
