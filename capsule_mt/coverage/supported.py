"""Find made-up words by a reverse model: words of a translation that the source does not support.

A word of the translation counts as made up if its doubt is large:

    word_doubt = -logit(attention) - c max(log p, -8)
    doubt = word_doubt + d (the mean `word_doubt` of the two neighbours)

attention: the word's highest attention weight in the alignment head of the reverse model, which is forced to write the
source.
log p: the forward model's mean log-probability of the word's tokens; not their sum, since a rare word has more tokens.

The neighbours count because made-up words tend to stand in a row, as `problems.made_up_indices` expects.
"""

from collections.abc import Sequence

from capsule_mt.coverage.curves import evidence_of, sigmoid
from capsule_mt.coverage.verified import ForcedPair
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import Offsets, words_of

# doubt above which a word is marked, for each choice of `marks`
DOUBT_THRESHOLDS = {"sure": 6.0, "likely": 5.0, "all": 4.0}
LOG_PROB_WEIGHT, MIN_LOG_PROB, NEIGHBOUR_WEIGHT = 0.4, -8.0, 0.5  # c, the bound of log p, and d


def attended_words(text: str, forced_pair: ForcedPair | None) -> list[tuple[Span, float]]:
    """Return the words of a translation, each with the highest attention that it receives from the reverse model."""
    if forced_pair is None:
        return []
    rows = forced_pair.forced.attention or []
    words = words_of(text, forced_pair.source)
    return [(span, max((row[column] for row in rows for column in columns), default=0.0)) for span, columns in words]


def support_share(doubt: float) -> float:
    """Return how far the source supports a word, 0 ... 1."""
    return sigmoid(DOUBT_THRESHOLDS["likely"] - doubt)


def support_doubts(
    text: str, offsets: Offsets, log_probs: Sequence[float], words: Sequence[tuple[Span, float]]
) -> list[float]:
    """Return the doubt of each word of a translation.

    Args:
        offsets: the span of each token in the translation.
        log_probs: the log-probability of each token.
        words: from `attended_words`.
    """
    token_indices, word_doubts = dict(words_of(text, offsets)), []
    for span, attention in words:
        token_log_probs = [log_probs[token_index] for token_index in token_indices.get(span, ())]
        log_prob = max(sum(token_log_probs) / max(len(token_log_probs), 1), MIN_LOG_PROB)
        word_doubts.append(-evidence_of(attention) - LOG_PROB_WEIGHT * log_prob)
    doubts = []
    for index, doubt in enumerate(word_doubts):
        neighbours = [*word_doubts[max(index - 1, 0) : index], *word_doubts[index + 1 : index + 2]]
        doubts.append(doubt + NEIGHBOUR_WEIGHT * sum(neighbours) / max(len(neighbours), 1))
    return doubts
