"""Count how often a model writes one sentence whatever its source is: neither loss nor a BLEU of 0.4 says so."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

MIN_REFERENCES = 10
# share of the distinct references that got the most frequent translation
MIN_SHARE = 0.5


@dataclass(frozen=True)
class Repeats:
    """The most frequent of the translations of a text.

    has_collapsed: whether most of the distinct references, at least `MIN_REFERENCES`, got this one.
    """

    translation: Any
    count: int
    total: int
    has_collapsed: bool

    def __str__(self) -> str:
        if self.count == 1:
            return f"all {self.total} translations differ" if self.total > 1 else "1 translation"
        return f"{self.count} of {self.total} translations are the same sentence"


def count_repeats(translations: Sequence[Hashable], references: Sequence[Hashable]) -> Repeats:
    """Count the most frequent translation; both sequences have an entry for each sentence, and at least one."""
    (translation, count), *_ = Counter(translations).most_common(1)
    num_references = len(set(references))
    answered = {reference for row, reference in zip(translations, references, strict=True) if row == translation}
    has_collapsed = num_references >= MIN_REFERENCES and len(answered) > MIN_SHARE * num_references
    return Repeats(translation, count, len(translations), has_collapsed)
