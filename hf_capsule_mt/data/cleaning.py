"""Optional cleaning of parallel text: deterministic rules, and how many pairs each of them dropped."""

import hashlib
from collections import Counter
from dataclasses import dataclass

from datasets import Dataset
from huggingface_hub.dataclasses import strict
from tqdm.auto import tqdm


@strict
@dataclass
class Cleaning:
    """The rules of cleaning, in the order of their checks; the first broken rule drops a pair.

    Args:
        drop_empty: drop pairs with an empty side.
        drop_identical: drop pairs whose sides are the same.
        max_words: limit on the number of words of either side, separated by white space.
        max_ratio: limit on the longer side's number of words divided by the shorter side's.
        drop_duplicates: drop all but the first of equal pairs.
    """

    drop_empty: bool = False
    drop_identical: bool = False
    max_words: int | None = None
    max_ratio: float | int | None = None
    drop_duplicates: bool = False

    def broken_by(self, source: str, target: str) -> str | None:
        """Return in words which rule a pair breaks on its own, or None."""
        shorter, longer = sorted((len(source.split()), len(target.split())))
        if self.drop_empty and shorter == 0:
            return "with an empty side"
        if self.drop_identical and source == target:
            return "with identical sides"
        if self.max_words is not None and longer > self.max_words:
            return f"with more than {self.max_words} words"
        if self.max_ratio is not None and longer > self.max_ratio * shorter:
            return f"with a ratio of lengths above {self.max_ratio}"
        return None


def clean(
    dataset: Dataset, rules: Cleaning, source_language: str, target_language: str
) -> tuple[Dataset, Counter[str]]:
    """Return the pairs that break no rule, and how many were dropped for each reason."""
    indices: list[int] = []
    dropped: Counter[str] = Counter()
    digests: set[bytes] = set()
    for index, row in enumerate(tqdm(dataset, desc="Cleaning", unit=" pairs")):
        pair = (row["translation"][source_language], row["translation"][target_language])
        reason = rules.broken_by(*pair)
        if reason is None and rules.drop_duplicates:
            digest = hashlib.blake2b("\n".join(pair).encode(), digest_size=16).digest()
            reason = "seen before" if digest in digests else None
            digests.add(digest)
        if reason is None:
            indices.append(index)
        else:
            dropped[reason] += 1
    return dataset.select(indices), dropped
