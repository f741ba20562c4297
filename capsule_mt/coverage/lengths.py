"""The expected length of a translation, by the words of its source."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from capsule_mt.text.words import WORDS

RELIABLE_LENGTH = 40  # characters; the length of a shorter translation says less


class ExpectedLength(NamedTuple):
    """The expected number of characters of a translation, by its source; by default, the length of the source.

    It is `start`, plus `slope` for each character, plus the `extra_by_word` of each word (case-folded).
    """

    start: float = 0.0
    slope: float = 1.0
    extra_by_word: Mapping[str, float] = {}

    @classmethod
    def of_calibration(cls, values: Mapping[str, Any]) -> "ExpectedLength":
        """Read what `calibrate` has written: the words, grouped by their extra characters as a whole number."""
        extra_by_word = {word: float(extra) for extra, words in values["more"].items() for word in words.split()}
        return cls(float(values["start"]), float(values["slope"]), extra_by_word)

    def predict(self, source: str) -> float:
        """Return the expected number of characters of a source's translation, at least 2."""
        extra = sum(self.extra_by_word.get(match[0].casefold(), 0.0) for match in WORDS.finditer(source))
        return max(2.0, self.start + self.slope * len(source) + extra)

    def shortness(self, source: str, translation: str) -> float:
        """Return the share of the expected characters that a translation lacks, at least 0.

        Below 40 expected characters the share is scaled down in proportion, since a short text varies more.
        """
        expected_length = self.predict(source)
        return max(0.0, 1 - len(translation) / expected_length) * min(1.0, expected_length / RELIABLE_LENGTH)
