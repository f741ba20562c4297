"""The options of coverage."""

import math
from dataclasses import dataclass

from capsule_mt.coverage.names import MARKS, METHODS, REMOVED, CoverageMethod, Marks


@dataclass(frozen=True)
class CoverageOptions:
    """Choose how coverage is measured, and what follows from it.

    Attributes:
        method: "attention" reads the head that `capsule-mt calibrate` has chosen; "verified" checks its result by a
            reverse model (`reverse` of a `Translator`). "deletion" works with any model: it scores the translation
            without each source word, one pass a word. "auto" is the first available of "verified", "attention" and
            "deletion".
        marks: the words that "verified" marks: only those "sure" to be left out, the "likely" ones (the default), or
            "all" that may be. `Translator.precision` is the share of marks that a reader, a language model, confirmed,
            if one checked them. Other methods mark the same words of the source for each.
            By default, a given translation has marks only in sentences that raise the alarm. The same holds for the
            model's own translations, if a reader found fewer than half of their marks right. Naming `method` or
            `marks` shows the other marks, too.
        support: also find the words of the translation that the source does not support. Needs a `reverse` with
            a calibrated head, and its forced pass over each sentence.
        threshold: sentences with a lower coverage raise the alarm, and translating warns of them; by default the
            alarm of the calibration, if it has one, which is another one for given translations. 0 never warns.
        retry_beams: translate those sentences again with this many beams (or `num_beams`, if that is more), rescored
            by `weight` (5 by default), and keep the translation that leaves out less. It is also the number of beams
            for certain faults: changed numbers or brackets, invented quotes, doubled phrases. For these, sentences
            are translated again with 4 beams or more also without `retry_beams`, unless `copy=False`; the translation
            with the fewest is kept.
        weight: rank the hypotheses of beam search by their score minus `weight` times the mean share of the source
            words that is left out.
    """

    threshold: float | None = None
    retry_beams: int | None = None
    weight: float | None = None
    method: CoverageMethod = "auto"
    marks: Marks | None = None
    support: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            hint = "; `capsule-mt analyze` shows PAST and FUTURE" if self.method == REMOVED else ""
            raise ValueError(f"`method` must be {', '.join(METHODS[:-1])} or {METHODS[-1]}, got {self.method!r}{hint}")
        if self.marks is not None and self.marks not in MARKS:
            raise ValueError(f"`marks` must be {', '.join(MARKS[:-1])} or {MARKS[-1]}, got {self.marks!r}")
        for name in ("threshold", "retry_beams", "weight"):
            number = getattr(self, name)
            if number is not None and (isinstance(number, bool) or not hasattr(type(number), "__float__")):
                raise TypeError(f"`{name}` must be a number, got {number!r}")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ValueError(f"`threshold` of coverage must be a score from 0 to 1, got {self.threshold!r}")
        if self.weight is not None and not 0 <= self.weight < math.inf:
            raise ValueError(f"`weight` of coverage must be a finite number of at least 0, got {self.weight!r}")
        if not isinstance(self.support, bool):
            raise TypeError(f"`support` must be True or False, got {self.support!r}")
        is_whole = hasattr(type(self.retry_beams), "__index__")
        if self.retry_beams is not None and not (is_whole and self.retry_beams >= 2):
            raise ValueError(f"`retry_beams` must be a whole number of at least 2, got {self.retry_beams!r}")
