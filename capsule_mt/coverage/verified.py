"""Verify left-out words: words of the source that a translation leaves out, by a reverse model.

A word of the source counts as left out if its doubt is large:

    doubt = -logit(attention) - a max(log p, -12) - b min(max(loss, -1), 9)

attention: the most that the word receives from the head that aligns words. log p: of the word by the reverse model,
which reads the translation. loss: the log-probability that the translation loses without the word. The last two cost
forced passes, which are made only for words whose doubt they can lift above the threshold; `support` makes the first
for all.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from capsule_mt.coverage.curves import evidence_of, sigmoid
from capsule_mt.engine.search import Candidates, Decoder, Forced, Ids, Readings, Restriction
from capsule_mt.text.reading import Piece
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import Offsets, SourceWord, locate_tokens, words_of

LOG_PROB, LOSS = 0.5, 1.0  # a and b
SMALLEST_LOG_PROB = -12.0
SMALLEST_LOSS, LARGEST_LOSS = -1.0, 9.0
# the doubt above which a word is marked: chosen by reading translations of dev text by both released models
MARK_THRESHOLDS = {"sure": 8.5, "likely": 7.0, "all": 5.0}
# what log p and the loss can add to the doubt of a word that the reverse model does not doubt
MAX_INCREASE = LARGEST_LOSS - SMALLEST_LOSS - LOG_PROB * SMALLEST_LOG_PROB


class ForcedPair(NamedTuple):
    """A text and its translation after a forced pass, with the spans of the tokens of both."""

    source: Offsets
    target: Offsets
    forced: Forced


class Reverse(Protocol):
    """A reverse model; `Translator` is one."""

    def force(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        with_head: bool = False,
        spans: Sequence[Sequence[Span]] | None = None,
    ) -> list[ForcedPair | None]:
        """Force each translation; `None` for a blank text.

        with_head: also read the head that aligns words.
        spans: the characters of each translation whose log-probabilities are needed, by default all; with spans, the
            result does not have the offsets of the text.
        """
        ...


def doubt_of(attention: float, log_prob: float = 0.0, loss: float = LARGEST_LOSS) -> float:
    """Return the doubt of a word; with the defaults, the lowest that its attention allows."""
    bounded_loss = min(max(loss, SMALLEST_LOSS), LARGEST_LOSS)
    return -evidence_of(attention) - LOG_PROB * max(log_prob, SMALLEST_LOG_PROB) - LOSS * bounded_loss


def covered_share(doubt: float) -> float:
    """Return the share of a word that is covered, before calibration."""
    return sigmoid(MARK_THRESHOLDS["likely"] - doubt)


class Candidate(NamedTuple):
    """A translation to verify.

    target: its tokens.
    attention: for each word of the source, the most that it received.
    markable: for each word, whether it may be marked.
    log_prob: of the complete translation.
    """

    piece: Piece
    translation: str
    target: Ids
    attention: Sequence[float]
    markable: Sequence[bool]
    log_prob: float = 0.0


def doubts(
    candidates: Sequence[Candidate],
    decoder: Decoder,
    reverse: Reverse,
    threshold: float,
    forced_pairs: Sequence[ForcedPair | None] | None = None,
    shortlist: Candidates | None = None,
) -> list[list[float]]:
    """Return the doubt of each word of each candidate, exact for markable words with a doubt above `threshold`.

    forced_pairs: the reverse model's passes over all candidates; by default it forces those that need it.
    shortlist: the tokens among which the candidates were scored; `None` for all.
    """

    doubts_by_candidate = [list(map(doubt_of, candidate.attention)) for candidate in candidates]
    # first attention alone, then the reverse model, and only then a pass without the word: fewer words in each round
    suspects = {
        index: words
        for index, candidate in enumerate(candidates)
        for words in [_words_above(threshold - MAX_INCREASE, doubts_by_candidate[index])]
        if any(candidate.markable[word] for word in words)
    }
    words_by_index = {
        index: [candidates[index].piece.words[word] for word in words] for index, words in suspects.items()
    }
    suspect_pairs: list[ForcedPair | None] = []
    if forced_pairs is not None:
        suspect_pairs = [forced_pairs[index] for index in suspects]
    elif suspects:
        suspect_pairs = reverse.force(
            [candidates[index].translation for index in suspects],
            [candidates[index].piece.text for index in suspects],
            spans=[[word.model_span for word in words] for words in words_by_index.values()],
        )
    remaining: list[tuple[int, int, float]] = []  # words whose doubt may exceed the threshold: candidate, word, log p
    for (index, words), forced_pair in zip(suspects.items(), suspect_pairs, strict=True):
        candidate = candidates[index]
        log_probs = word_log_probs(candidate.piece, forced_pair, words_by_index[index])
        for word, log_prob in zip(words, log_probs, strict=True):
            attention = candidate.attention[word]
            doubts_by_candidate[index][word] = doubt_of(attention, log_prob)
            if candidate.markable[word] and doubt_of(attention, log_prob, SMALLEST_LOSS) > threshold:
                remaining.append((index, word, log_prob))
    losses = losses_without([(candidates[index], word) for index, word, _ in remaining], decoder, shortlist)
    for (index, word, log_prob), loss in zip(remaining, losses, strict=True):
        doubts_by_candidate[index][word] = doubt_of(candidates[index].attention[word], log_prob, loss)
    return doubts_by_candidate


def _words_above(threshold: float, doubts: Sequence[float]) -> list[int]:
    return [word for word, doubt in enumerate(doubts) if doubt > threshold]


def word_log_probs(piece: Piece, forced_pair: ForcedPair | None, words: Sequence[SourceWord]) -> list[float]:
    """Return the log-probability of words of a source by the reverse model, given the translation."""
    if forced_pair is None:  # the translation is blank
        return [SMALLEST_LOG_PROB] * len(words)
    tokens = dict(words_of(piece.text, forced_pair.target))
    log_probs = forced_pair.forced.log_probs
    return [sum(log_probs[token] for token in tokens.get(word.model_span, ())) for word in words]


def without_tokens(source: Ids, positions: Sequence[int]) -> Ids:
    """Return a source without the tokens at some positions; if none would remain, keep the last one."""
    dropped = frozenset(positions)
    return [token for position, token in enumerate(source) if position not in dropped] or [source[-1]]


def losses_without(
    words: Sequence[tuple[Candidate, int]], decoder: Decoder, shortlist: Candidates | None = None
) -> list[float]:
    """Return the nats of log-probability that a translation loses without a word of its source."""
    if not words:
        return []
    sources = [without_tokens(candidate.piece.ids, candidate.piece.words[word].tokens) for candidate, word in words]
    targets = [candidate.target for candidate, _ in words]
    if shortlist is None:
        forced = decoder.force(sources, targets, Readings())
    else:  # among the same tokens as with the word
        restriction = Restriction(shortlist, [candidate.piece.ids for candidate, _ in words])
        forced = decoder.force(sources, targets, Readings(), restriction=restriction)
    return [candidate.log_prob - sum(result.log_probs) for (candidate, _), result in zip(words, forced, strict=True)]


def offsets_of(text: str, ids: Ids, decode: Callable[[Ids], str]) -> Offsets:
    """Return the span of each token in a text, by decoding each token alone."""
    return locate_tokens(text, [decode([token]) for token in ids])
