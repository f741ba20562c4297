"""What a model of the other direction knows of a translation: the words that were made up.

A word of the translation is made up where its doubt is large:

    own = -logit(attention) - c max(log p, -8)
    doubt = own + d (the mean of `own` of the words beside it)

attention: the most that the word receives from the aligning head of the reverse model, which writes the source. log p:
the mean of the word's tokens by the model itself, as a rare word has several. What is made up comes in a row, hence
the words beside it.
"""

from collections.abc import Sequence

from capsule_mt.coverage.curves import evidence_of, sigmoid
from capsule_mt.coverage.verified import Read
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import Offsets, words_of

# the doubt above which a word is marked
SUPPORT_POINTS = {"sure": 6.0, "likely": 5.0, "all": 4.0}
LOG_PROB, SMALLEST_LOG_PROB, BESIDE = 0.4, -8.0, 0.5  # c, the bound of log p, and d


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


def support_doubts(
    text: str, offsets: Offsets, log_probs: Sequence[float], words: Sequence[tuple[Span, float]]
) -> list[float]:
    """Return the doubt of each word of a translation.

    Args:
        offsets: the characters that each token of the translation stands for.
        log_probs: of each token.
        words: their characters, and the most attention that each receives from the reverse.
    """
    tokens, own = dict(words_of(text, offsets)), []
    for span, attention in words:
        found = [log_probs[token] for token in tokens.get(span, ())]
        log_prob = max(sum(found) / max(len(found), 1), SMALLEST_LOG_PROB)
        own.append(-evidence_of(attention) - LOG_PROB * log_prob)
    doubts = []
    for place, value in enumerate(own):
        beside = [*own[max(place - 1, 0) : place], *own[place + 1 : place + 2]]
        doubts.append(value + BESIDE * sum(beside) / max(len(beside), 1))
    return doubts
