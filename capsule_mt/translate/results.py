"""What a translator returns: the `Translation` of a text, and the `Segment`s that it was made of."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # late: who asks for no coverage starts sooner
    from capsule_mt.coverage.results import Coverage


class Segment(NamedTuple):
    """One sentence of a text, or a part of one that is too long: what went through the model at once.

    `target_ids` are from the decoder's start token to the end token. `was_cut` says that they reached their limit.
    """

    start: int
    end: int
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    was_cut: bool


class Translation:  # no tuple: pipelines of transformers take tuples apart
    """The translation of one text.

    `score` is the mean log-probability of a token, end tokens included; `None` for a blank text. `coverage` is `None`
    where it was not asked for. `unknown` is the share of the source's tokens that the vocabulary lacks: above a fifth,
    the text is probably of another language. `alignment` has pairs of words of the text and of the translation, as
    `str.split` counts them, from 0; `None` where it was not asked for.
    """

    def __init__(
        self,
        text: str,
        score: float | None,
        coverage: "Coverage | None",
        segments: tuple[Segment, ...],
        unknown: float = 0.0,
        alignment: tuple[tuple[int, int], ...] | None = None,
    ) -> None:
        self.text, self.score, self.coverage = text, score, coverage
        self.segments, self.unknown, self.alignment = segments, unknown, alignment

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Translation) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"Translation({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The token ids of all segments in a row."""
        return tuple(token_id for segment in self.segments for token_id in segment.target_ids)

    @property
    def was_cut(self) -> bool:
        """Whether a segment reached the limit of its length, so that the translation may be incomplete."""
        return any(segment.was_cut for segment in self.segments)
