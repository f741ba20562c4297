"""What a model of the other direction knows of a translation: the words that were made up.

A word of the translation is made up where its doubt is large:

    own = -logit(attention) - c max(log p, -8)
    doubt = own + d (the mean of `own` of the words beside it)

attention: the most that the word receives from the aligning head of the reverse model, which writes the source. log p:
the mean of the word's tokens by the model itself, as a rare word has several. It costs a forced pass, which is made
only where it can lift a doubt above what is asked. What is made up comes in a row, hence the words beside it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from capsule_mt.coverage.curves import evidence_of, sigmoid
from capsule_mt.coverage.verified import Read
from capsule_mt.engine.search import Decoder, Ids, Readings
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import Offsets, words_of

# the doubt above which a word is marked
SUPPORT_POINTS = {"sure": 6.0, "likely": 5.0, "all": 4.0}
LOG_PROB, SMALLEST_LOG_PROB, BESIDE = 0.4, -8.0, 0.5  # c, the bound of log p, and d


class Written(NamedTuple):
    """A translation: the tokens that the model read and wrote, their characters, and its words.

    words: their characters, and the most attention that each receives from the reverse.
    is_open: of each word, whether it may be marked.
    """

    text: str
    source: Ids
    target: Ids
    offsets: Offsets
    words: Sequence[tuple[Span, float]]
    is_open: Sequence[bool]


def attended(text: str, read: Read | None) -> list[tuple[Span, float]]:
    """Return the words of a translation, and the most attention that each receives from the reverse."""
    if read is None:
        return []
    rows = read.forced.received or []
    words = words_of(text, read.source)
    return [(span, max((row[column] for row in rows for column in columns), default=0.0)) for span, columns in words]


def support_share(doubt: float) -> float:
    """Return how much of a word the source supports."""
    return sigmoid(SUPPORT_POINTS["likely"] - doubt)


def support_doubts(written: Sequence[Written], decoder: Decoder, above: float) -> list[list[float]]:
    """Return the doubt of each word of each translation; exact where it is larger than `above`."""
    bound = -LOG_PROB * SMALLEST_LOG_PROB
    own = [[-evidence_of(attention) for _, attention in one.words] for one in written]
    forced = [
        number
        for number, one in enumerate(written)
        if any(
            may and most > above
            for may, most in zip(one.is_open, _with_those_beside([low + bound for low in own[number]]), strict=True)
        )
    ]
    chosen = [written[number] for number in forced]
    passes = (
        decoder.force([one.source for one in chosen], [one.target for one in chosen], Readings()) if chosen else []
    )
    for number, one, found in zip(forced, chosen, passes, strict=True):
        tokens = dict(words_of(one.text, one.offsets))
        for place, (span, _) in enumerate(one.words):
            log_probs = [found.log_probs[token] for token in tokens.get(span, ())]
            mean = sum(log_probs) / max(len(log_probs), 1)
            own[number][place] -= LOG_PROB * max(mean, SMALLEST_LOG_PROB)
    return [_with_those_beside(values) for values in own]


def _with_those_beside(values: Sequence[float]) -> list[float]:
    found = []
    for place, value in enumerate(values):
        beside = [*values[max(place - 1, 0) : place], *values[place + 1 : place + 2]]
        found.append(value + BESIDE * sum(beside) / max(len(beside), 1))
    return found
