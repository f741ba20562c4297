"""What a decoder is asked and what it answers, as plain values. Legend: S source tokens, T target tokens."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

Ids = Sequence[int]


class Candidates(Protocol):
    """A lexical shortlist: the tokens that the translation of a source may have."""

    def of_source(self, source: Ids, *further: int) -> Sequence[int]:
        """Return the tokens, ascending, with `further` ones."""
        ...


# the whole numbers of a search, and the least and the most of each
COUNTS = {
    "num_beams": (1, 256),
    "num_return_sequences": (1, 256),
    "max_length": (1, 2**24),
    "max_new_tokens": (1, 2**24),
    "min_length": (0, 2**24),
    "min_new_tokens": (0, 2**24),
    "no_repeat_ngram_size": (0, 2**24),
}

# all options of a search, by transformers' names
SEARCHED = (
    *("num_beams", "num_return_sequences", "length_penalty", "early_stopping", "no_repeat_ngram_size"),
    "renormalize_logits",
    *("max_new_tokens", "max_length", "min_new_tokens", "min_length", "bad_words_ids", "suppress_tokens"),
    "max_time",
)


def nearest(name: str, accepted: Collection[str] = SEARCHED) -> str:
    """Return a question after an option that is spelt nearly as an accepted one, or nothing."""
    import difflib  # late: few are misspelt

    matches = difflib.get_close_matches(name, sorted(accepted), n=1)
    return f" (did you mean `{matches[0]}`?)" if matches else ""


class Readings(NamedTuple):
    """What to read besides tokens: the attention of a layer and a head to the source, or PAST and FUTURE."""

    head: tuple[int, int] | None = None
    guided: bool = False


class SearchOptions(NamedTuple):
    """How to search for translations, with transformers' names and meanings.

    limits: the most tokens after the start token, for each source.
    forces_end: for each source, whether the end token is forced at its limit; empty for none.
    prefixes: for each source, what its translations begin with; empty for none.
    shortlist: write only these tokens.
    most_repeated: end a translation, as at its limit, once so many tokens in a row are those that came a few (1 to 16)
        tokens before each; 0 for never. transformers does not know it.
    max_time: after so many seconds, end with the translations found so far.
    scores: whether `Hypothesis.score` is needed: transformers takes one more pass for it, and without it a greedy
        search of the engine is a little faster.
    readings: what to read while searching.
    further: options of `generate()` that only transformers knows.
    """

    limits: Sequence[int]
    forces_end: Sequence[bool] = ()
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    no_repeat_ngram_size: int = 0
    most_repeated: int = 0
    renormalize_logits: bool = False
    min_new_tokens: int = 0
    suppress_tokens: Ids = ()
    prefixes: Sequence[Ids] = ()
    shortlist: Candidates | None = None
    max_time: float | None = None
    scores: bool = True
    readings: Readings | None = None
    further: Mapping[str, object] = {}


class GuidedReading(NamedTuple):
    """What PAST and FUTURE tell of each source token [S].

    The shares of `past` and `future` when the translation has been read, by how much FUTURE fell on the way (`fall`),
    and how much of that the model agreed to (`agreed`).
    """

    past: list[float]
    future: list[float]
    fall: list[float]
    agreed: list[float]


class Hypothesis:
    """A translation that a search has found.

    ids: the tokens after the start token, with the end token where it came.
    log_probs: of each token, among those of the shortlist where there is one; `score` is their mean.
    was_cut: whether it reached a limit, of its length or of time.
    attention: how much each token attends to each source token [T][S], by the head that was read.
    covered: what `coverage` finds that it covers, where that was asked for.
    """

    covered: Any = None

    def __init__(
        self,
        ids: list[int],
        log_probs: list[float],
        was_cut: bool,
        attention: list[list[float]] | None = None,
        guided: GuidedReading | None = None,
    ) -> None:
        self.ids, self.log_probs, self.was_cut = ids, log_probs, was_cut
        self.attention, self.guided = attention, guided

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hypothesis) and vars(self) == vars(other)

    @property
    def score(self) -> float:
        return sum(self.log_probs) / max(len(self.log_probs), 1)

    @property
    def received(self) -> list[float] | None:
        """The most attention that each source token [S] receives from any token, the end token included."""
        return None if self.attention is None else [max(column) for column in zip(*self.attention, strict=True)]

    def read(self, forced: "Forced", end: int) -> None:
        """Keep what a forced pass over these tokens has read; a translation of an end token alone covers nothing."""
        self.log_probs = forced.log_probs
        self.guided = forced.guided
        if forced.received is not None:
            is_empty = self.ids[:1] == [end]
            self.attention = [[0.0] * len(row) for row in forced.received] if is_empty else forced.received


class Forced(NamedTuple):
    """A given translation, scored.

    log_probs: of each of its tokens [T].
    received: the attention of each step to each source token [T][S].
    """

    log_probs: list[float]
    received: list[list[float]] | None = None
    guided: GuidedReading | None = None


class Decoder(Protocol):
    """Anything that translates token ids: the engine, or `generate()` of transformers."""

    def translate(self, sources: Sequence[Ids], options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the best translations of each source, the best first."""
        ...

    def force(self, sources: Sequence[Ids], targets: Sequence[Ids], readings: Readings) -> list[Forced]:
        """Score given translations, from the first token after the start token on, in one pass."""
        ...
