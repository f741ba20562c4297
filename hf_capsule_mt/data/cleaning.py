"""Optional cleaning of parallel text: deterministic rules, and a report of what they dropped and why."""

import hashlib
from dataclasses import dataclass, field

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
        min_words, max_words: limits on the number of words of either side, separated by white space.
        max_characters: limit on the number of characters of either side, for scripts without spaces.
        max_ratio: limit on the longer side's number of words divided by the shorter side's.
        drop_duplicates: drop all but the first of equal pairs.
    """

    drop_empty: bool = False
    drop_identical: bool = False
    min_words: int | None = None
    max_words: int | None = None
    max_characters: int | None = None
    max_ratio: float | int | None = None
    drop_duplicates: bool = False


@dataclass
class CleaningReport:
    """The number of pairs read and, for each reason, the number dropped and the first of them (from 1)."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        return self.read - sum(self.dropped.values())

    def __str__(self) -> str:
        reasons = [f"{count} {reason} (first: pair {self.first[reason]})" for reason, count in self.dropped.items()]
        return f"kept {self.kept} of {self.read} pairs" + (f"; dropped {', '.join(reasons)}" if reasons else "")


class Cleaner:
    """Apply the rules to pairs one by one, and count."""

    def __init__(self, rules: Cleaning) -> None:
        self.rules = rules
        self.report = CleaningReport()
        self._seen: set[bytes] = set()

    def keeps(self, source: str, target: str) -> bool:
        self.report.read += 1
        reason = self._reason(source, target)
        if reason is not None:
            self.report.dropped[reason] = self.report.dropped.get(reason, 0) + 1
            self.report.first.setdefault(reason, self.report.read)
        return reason is None

    def _reason(self, source: str, target: str) -> str | None:
        rules = self.rules
        words = sorted((len(source.split()), len(target.split())))
        if rules.drop_empty and words[0] == 0:
            return "with an empty side"
        if rules.drop_identical and source == target:
            return "with identical sides"
        if rules.min_words is not None and words[0] < rules.min_words:
            return f"with fewer than {rules.min_words} words"
        if rules.max_words is not None and words[1] > rules.max_words:
            return f"with more than {rules.max_words} words"
        if rules.max_characters is not None and max(len(source), len(target)) > rules.max_characters:
            return f"with more than {rules.max_characters} characters"
        if rules.max_ratio is not None and words[1] > rules.max_ratio * words[0]:
            return f"with a ratio of lengths above {rules.max_ratio}"
        if rules.drop_duplicates:
            digest = hashlib.blake2b(f"{len(source)} {source}{target}".encode(), digest_size=16).digest()
            if digest in self._seen:
                return "seen before"
            self._seen.add(digest)
        return None


def clean(
    dataset: Dataset, rules: Cleaning, source_language: str, target_language: str
) -> tuple[Dataset, CleaningReport]:
    """Return the pairs that break no rule, and the report."""
    cleaner = Cleaner(rules)
    indices = []
    with tqdm(total=len(dataset), desc="Cleaning", unit=" pairs") as progress:
        for start in range(0, len(dataset), 1000):
            pairs = dataset[start : start + 1000]["translation"]
            for index, pair in enumerate(pairs, start=start):
                if cleaner.keeps(pair[source_language], pair[target_language]):
                    indices.append(index)
            progress.update(len(pairs))
    return dataset.select(indices), cleaner.report
