"""How long a translation should be, by the words of its source: "Sehr geehrte Damen und Herren" becomes short."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from capsule_mt.text.words import WORDS

# of the share of its length that a translation lacks, beside the share of words that it leaves out: by translations of
# other systems that people have labelled
OMISSION_WEIGHT = 2.0
RELIABLE_LENGTH = 40


class ExpectedLength(NamedTuple):
    """How many characters a translation should have: `start`, and `slope` for each of its source's characters.

    Each of the source's words, case-folded, makes expect so many `more`. The default is the length of the source.
    """

    start: float = 0.0
    slope: float = 1.0
    more: Mapping[str, float] = {}

    @classmethod
    def of_calibration(cls, values: Mapping[str, Any]) -> "ExpectedLength":
        """Read what `calibrate` has written, which lists the words by their whole number of characters."""
        more = {word: float(number) for number, words in values["more"].items() for word in words.split()}
        return cls(float(values["start"]), float(values["slope"]), more)

    def of(self, source: str) -> float:
        """Return how many characters the translation of a source should have, at least 2."""
        more = sum(self.more.get(match[0].casefold(), 0.0) for match in WORDS.finditer(source))
        return max(2.0, self.start + self.slope * len(source) + more)

    def shortness(self, source: str, translation: str) -> float:
        """Return the share of the expected characters that a translation lacks, at least 0.

        It is less by the factor x / 40 where x characters are expected: little can be said of a short one.
        """
        expected = self.of(source)
        return max(0.0, 1 - len(translation) / expected) * min(1.0, expected / RELIABLE_LENGTH)
