"""Learn from parallel text how long a translation should be, given the words of its source."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from capsule_mt.coverage.lengths import ExpectedLength
from capsule_mt.text.words import WORDS

RIDGE = 0.3  # of 0.1, 0.3, 1 and 3, the one that predicts held-out lengths best
STEPS = 30  # of conjugate gradients
CALIBRATED_WORDS = 2000  # further ones change little


def fit_length(sources: Sequence[str], targets: Sequence[str]) -> ExpectedLength:
    """Fit the expected number of characters of a translation on parallel text.

    The expectation for a source of x characters is a + b x plus an offset for each of its words: ridge regression,
    weighted by 1 / (x + 10). Pairs with an empty side, or one some three times as long, are left out.
    """
    pairs = [
        (source, len(target))
        for source, target in zip(sources, targets, strict=True)
        if 0 < len(source) < 3 * len(target) + 10 and 0 < len(target) < 3 * len(source) + 10
    ]
    if not pairs:
        raise ValueError(
            f"none of the {len(sources)} pairs of `sources` and `targets` is usable: both sides need text, "
            "and neither may be more than about three times as long as the other"
        )
    word_ids: dict[str, int] = {}
    lines = [[word_ids.setdefault(word, len(word_ids)) for word in _words(source)] for source, _ in pairs]
    rows, words = np.repeat(np.arange(len(lines)), [len(line) for line in lines]), np.concatenate(lines).astype(int)
    characters = np.array([len(source) for source, _ in pairs])
    weights = 1 / np.sqrt(characters + 10)
    design = np.stack([weights, characters * weights], axis=1)
    lengths = np.array([length for _, length in pairs]) * weights
    start, slope = np.linalg.lstsq(design, lengths, rcond=None)[0]

    def by_word(by_line: np.ndarray) -> np.ndarray:
        return np.bincount(words, (by_line * weights)[rows], minlength=len(word_ids))

    offsets = np.zeros(len(word_ids))
    residual = direction = by_word(lengths - design @ (start, slope))
    for _ in range(STEPS):
        if (norm := residual @ residual) < 1e-9:
            break
        image = by_word(np.bincount(rows, direction[words], minlength=len(lines)) * weights) + RIDGE * direction
        step = norm / (direction @ image)
        offsets, residual = offsets + step * direction, residual - step * image
        direction = residual + (residual @ residual) / norm * direction
    return ExpectedLength(float(start), float(slope), dict(zip(word_ids, offsets.tolist(), strict=True)))


def calibrated(length: ExpectedLength, sources: Sequence[str]) -> dict[str, Any]:
    """Return the form that a calibration stores: whole offsets of the words that weigh most in `sources`."""
    counts = Counter(word for source in sources for word in _words(source))
    offsets = length.extra_by_word
    by_weight = sorted(offsets, key=lambda word: (-abs(offsets[word]) * counts[word] ** 0.5, word))
    words_by_offset: dict[int, list[str]] = {}
    for word in sorted(by_weight[:CALIBRATED_WORDS]):
        if offset := round(offsets[word]):
            words_by_offset.setdefault(offset, []).append(word)
    return {
        "start": round(length.start, 2),
        "slope": round(length.slope, 3),
        "more": {str(offset): " ".join(words_by_offset[offset]) for offset in sorted(words_by_offset)},
    }


def _words(source: str) -> list[str]:
    return [word.casefold() for word in WORDS.findall(source)]
