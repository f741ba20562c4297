"""How much shorter a translation is than the words of its source make expect."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from capsule_mt.calibration.fitting import rank_auc, ranks
from capsule_mt.calibration.words import split_words
from hf_capsule_mt.evaluation.results import markdown_table

RIDGE = 0.3  # of 0.1, 0.3, 1 and 3, the one that predicts held-out lengths best
STEPS = 30  # of conjugate gradients
POWERS = (0.3, 0.5, 0.7, 1.0)  # the forms of `shortness` among which labels choose


def expected_lengths(
    training_sources: Sequence[str], training_targets: Sequence[str], sources: Sequence[str]
) -> np.ndarray:
    """Return how many characters the translation of each source should have, at least 2.

    A source of x characters makes expect a + b x, and each of its words some more or less: ridge regression on the
    training text, weighted by 1 / (x + 10). "Sehr geehrte Damen und Herren" becomes "Ladies and gentlemen". Pairs of
    which one side is empty or too long for the other are left out.
    """
    pairs = [
        (source, len(target))
        for source, target in zip(training_sources, training_targets, strict=True)
        if 0 < len(source) < 3 * len(target) + 10 and 0 < len(target) < 3 * len(source) + 10
    ]
    if not pairs:
        raise ValueError(f"none of the {len(training_sources)} pairs can be learnt from")
    numbers: dict[str, int] = {}
    lines = [[numbers.setdefault(word.lower(), len(numbers)) for word in split_words(source)] for source, _ in pairs]
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
    known = [[numbers[word] for word in split_words(line.lower()) if word in numbers] for line in sources]
    return np.array(
        [max(2.0, start + slope * len(line) + more[ids].sum()) for line, ids in zip(sources, known, strict=True)]
    )


def shortness(expected: np.ndarray, translations: Sequence[str], power: float = 0.5) -> np.ndarray:
    """Return (expected - actual characters) / expected^power of each translation."""
    return (expected - [len(line) for line in translations]) / expected**power


def cross_validated(candidates: np.ndarray, labels: np.ndarray, baseline: np.ndarray, samples: int) -> dict[str, Any]:
    """Return the area under the ROC curve of a measure that is chosen on other sentences than it judges.

    In each of ten random foldings, each tenth is scored by the candidate [K, N] with the largest area on the rest. The
    result is the mean over the foldings, and its difference to a baseline [N], with 95 % bootstrap intervals.
    """
    candidates = np.stack([ranks(values) for values in candidates])  # of one scale
    sides, scores = (np.flatnonzero(labels), np.flatnonzero(~labels)), []
    for seed in range(10):
        chance, fold = np.random.default_rng(seed), np.empty(len(labels), dtype=int)
        for side in sides:
            fold[chance.permutation(side)] = np.arange(len(side)) % 10
        judged = np.empty(len(labels))
        for own in (fold == number for number in range(10)):
            best = np.argmax([rank_auc(values[~own], labels[~own]) for values in candidates])
            judged[own] = candidates[best, own]
        scores.append(judged)

    def areas(drawn: np.ndarray) -> tuple[float, float]:
        mean = float(np.mean([rank_auc(judged[drawn], labels[drawn]) for judged in scores]))
        return mean, mean - rank_auc(baseline[drawn], labels[drawn])

    chance = np.random.default_rng(1)
    draws = [areas(np.concatenate([chance.choice(side, len(side)) for side in sides])) for _ in range(samples)]
    low, high = np.quantile(draws, [0.025, 0.975], axis=0).tolist()
    rows = zip(areas(np.arange(len(labels))), low, high, strict=True)
    auc, difference = (dict(zip(("value", "low", "high"), row, strict=True)) for row in rows)
    foldings = [rank_auc(judged, labels) for judged in scores]
    return {"forms": len(candidates), "auc": auc, "difference": difference, "foldings": foldings}


def cross_validated_markdown(record: dict[str, Any]) -> str:
    """Format the results of `cross_validated` for a label, with the length ratio as baseline, as Markdown."""
    rows = []
    for name, found in record["measures"].items():
        areas = ["{value:.3f} ({low:.3f} to {high:.3f})".format(**found[kind]) for kind in ("auc", "difference")]
        foldings = f"{min(found['foldings']):.3f} to {max(found['foldings']):.3f}"
        rows.append([name, str(found["forms"]), *areas, foldings])
    header = [record["label"], "forms", "cross-validated", "above the length ratio", "over ten foldings"]
    return markdown_table(header, rows) + "\n"
