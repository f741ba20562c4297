"""What a translator returns: the `Translation` of a text, and the `Segment`s that it was made of."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # late: a call without coverage starts sooner
    from capsule_mt.coverage.judgement import Judgement
    from capsule_mt.coverage.results import Coverage
    from capsule_mt.text.rewriting import Edit


class Segment(NamedTuple):
    """One sentence of a text, a part of one, or an unsplit text: what went through the model at once.

    `target_ids` begin with the decoder's start token, and end with the end token unless they were cut. `was_cut` says
    that they reached their limit, or that the source was cut to the model's.
    """

    start: int
    end: int
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    was_cut: bool


Score = float | Callable[[], float | None] | None  # a function computes it when it is first read


class Translation:  # not a tuple: pipelines of transformers unpack tuples
    """The translation of one text.

    score: the mean log-probability of a token, end tokens included; `None` if nothing was translated, as for a
        blank text or a URL, and with `scores=False`. Where the search is faster without scores, the first one that is
        read computes those of all texts that were translated with it; until then, the translations keep the model
        alive.
    coverage: what was left out; `None` if it was not requested, or a warning says that it was not found.
    unknown: the share of the source's tokens that the vocabulary lacks, without those of placeholders and other
        copied items. Above a fifth, the text is probably in another language. 0 for given translations.
    alignment: pairs of a word of the text and a word of the translation, as indices into `str.split`; `None` if it was
        not requested.
    judgement: what the judge of `Scorer.score(judge=...)` says; `None` without one, and for a blank text.
    edits: what was changed in the text before the model read it: the row of the table of rules, "edge", or the case of
        a line; the characters of the text, what the model read instead, and what the translation copies. Empty for
        given translations.
    """

    def __init__(
        self,
        text: str,
        score: Score,
        coverage: "Coverage | None",
        segments: tuple[Segment, ...],
        unknown: float = 0.0,
        alignment: tuple[tuple[int, int], ...] | None = None,
        judgement: "Judgement | None" = None,
        edits: "tuple[Edit, ...]" = (),
    ) -> None:
        self.text, self._score, self.coverage = text, score, coverage
        self.segments, self.unknown, self.alignment = segments, unknown, alignment
        self.judgement, self.edits = judgement, edits

    @property
    def score(self) -> float | None:
        if callable(self._score):
            self._score = self._score()
        return self._score

    @score.setter
    def score(self, score: float | None) -> None:
        self._score = score

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields with a score that was computed: another process may not have the model."""
        return vars(self) | {"_score": self.score}

    def _fields(self) -> dict[str, Any]:
        return {name.lstrip("_"): getattr(self, name.lstrip("_")) for name in vars(self)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Translation) and self._fields() == other._fields()

    def __repr__(self) -> str:
        return f"Translation({', '.join(f'{name}={value!r}' for name, value in self._fields().items())})"

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The `target_ids` of all segments in a row."""
        return tuple(token_id for segment in self.segments for token_id in segment.target_ids)

    @property
    def was_cut(self) -> bool:
        """Whether a segment or its source was cut at a limit, so that the translation may be incomplete."""
        return any(segment.was_cut for segment in self.segments)
