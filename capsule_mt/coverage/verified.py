"""Verify left-out words: words of the source that a translation leaves out, by a reverse model.

A word of the source counts as left out if its doubt is large:

    doubt = -logit(attention) - a max(log p, -12) - b min(max(loss, -1), 9)

attention: the most that the word receives from the head that aligns words. log p: of the word by the reverse model,
which reads the translation. loss: the log-probability that the translation loses without the word. The last two cost
forced passes, which are made only if they can lift the doubt above the threshold.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from capsule_mt.coverage.curves import evidence_of, sigmoid
from capsule_mt.engine.search import Decoder, Forced, Ids, Readings
from capsule_mt.text.segments import Piece
from capsule_mt.text.words import Offsets, locate_tokens, words_of

LOG_PROB, LOSS = 0.5, 1.0  # a and b
SMALLEST_LOG_PROB = -12.0
SMALLEST_LOSS, LARGEST_LOSS = -1.0, 9.0
# the doubt above which a word is marked: chosen by reading translations of dev text by both released models
POINTS = {"sure": 8.5, "likely": 7.0, "all": 5.0}


class ForcedPair(NamedTuple):
    """A text and its translation after a forced pass, with the spans of the tokens of both.

    information: the share of the translation's information that its text predicts; `None` if it was not read.
    """

    source: Offsets
    target: Offsets
    forced: Forced
    information: float | None = None


class Reverse(Protocol):
    """A reverse model; `Translator` is one."""

    def read(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        with_head: bool = False,
        with_information: bool = False,
    ) -> list[ForcedPair | None]:
        """Force each translation; `None` for a blank text.

        with_head: also read the head that aligns words.
        with_information: also force each translation without its text.
        """
        ...


def doubt_of(attention: float, log_prob: float = 0.0, loss: float = LARGEST_LOSS) -> float:
    """Return the doubt of a word; with the defaults, the lowest that its attention allows."""
    bounded_loss = min(max(loss, SMALLEST_LOSS), LARGEST_LOSS)
    return -evidence_of(attention) - LOG_PROB * max(log_prob, SMALLEST_LOG_PROB) - LOSS * bounded_loss


def information_of(
    log_probs: Sequence[Sequence[float]], targets: Sequence[Ids], decoder: Decoder, end: int
) -> list[float]:
    """Return the share of each translation's information that its text predicts: 1 - log p / log p without the text.

    Args:
        log_probs: of the tokens of each translation, given its text.
        end: the end token, alone the source of translations without a text.
    """
    without_text = decoder.force([[end]] * len(targets), targets, Readings()) if targets else []
    return [
        max(0.0, 1 - sum(with_text) / min(sum(forced.log_probs), -1.0))
        for with_text, forced in zip(log_probs, without_text, strict=True)
    ]


def hallucination_of(forward: float, backward: float) -> float:
    """Return the share of the information in a text and its translation that the other one does not predict."""
    return 1 - (forward + backward) / 2


def covered_share(doubt: float) -> float:
    """Return the share of a word that is covered, before calibration."""
    return sigmoid(POINTS["likely"] - doubt)


class Candidate(NamedTuple):
    """A translation to verify.

    target: its tokens.
    attention: for each word of the source, the most that it received.
    markable: for each word, whether it may be marked.
    log_prob: of the complete translation; `None` if the search scored it within a shortlist.
    """

    piece: Piece
    translation: str
    target: Ids
    attention: Sequence[float]
    markable: Sequence[bool]
    log_prob: float | None = None


def doubts(
    candidates: Sequence[Candidate],
    decoder: Decoder,
    reverse: Reverse,
    threshold: float,
    forced_pairs: Sequence[ForcedPair | None] | None = None,
) -> list[list[float]]:
    """Return the doubt of each word of each candidate; it is exact where it is above `threshold`.

    forced_pairs: the reverse model's readings of all candidates; by default it reads those that need it.
    """

    def can_pass(candidate: Candidate, word: int, log_prob: float) -> bool:
        """Return whether the doubt of a word would be above the threshold with the smallest loss."""
        return candidate.markable[word] and doubt_of(candidate.attention[word], log_prob, SMALLEST_LOSS) > threshold

    doubts_by_candidate = [list(map(doubt_of, candidate.attention)) for candidate in candidates]
    # first attention alone, then the reverse model, and only then a pass without the word: each round reads fewer
    indices = [
        index
        for index, candidate in enumerate(candidates)
        if any(can_pass(candidate, word, SMALLEST_LOG_PROB) for word in range(len(candidate.attention)))
    ]
    if forced_pairs is not None:
        doubted_pairs = [forced_pairs[index] for index in indices]
    elif indices:
        translations = [candidates[index].translation for index in indices]
        doubted_pairs = reverse.read(translations, [candidates[index].piece.text for index in indices])
    else:
        doubted_pairs = []
    doubted_words: list[tuple[int, int, float]] = []
    for index, forced_pair in zip(indices, doubted_pairs, strict=True):
        candidate = candidates[index]
        log_probs = word_log_probs(candidate.piece, forced_pair)
        doubts_by_candidate[index] = list(map(doubt_of, candidate.attention, log_probs))
        doubted_words += [
            (index, word, log_prob) for word, log_prob in enumerate(log_probs) if can_pass(candidate, word, log_prob)
        ]
    losses = losses_without([(candidates[index], word) for index, word, _ in doubted_words], decoder)
    for (index, word, log_prob), loss in zip(doubted_words, losses, strict=True):
        doubts_by_candidate[index][word] = doubt_of(candidates[index].attention[word], log_prob, loss)
    return doubts_by_candidate


def word_log_probs(piece: Piece, forced_pair: ForcedPair | None) -> list[float]:
    """Return the log-probability of each word of a source by the reverse model, given the translation."""
    if forced_pair is None:  # the translation is blank
        return [SMALLEST_LOG_PROB] * len(piece.words)
    tokens = dict(words_of(piece.text, forced_pair.target))
    log_probs = forced_pair.forced.log_probs
    return [sum(log_probs[token] for token in tokens.get(word.model_span, ())) for word in piece.words]


def without_tokens(source: Ids, positions: Sequence[int]) -> Ids:
    """Return a source without the tokens at some positions; if none would remain, keep the last one."""
    dropped = frozenset(positions)
    return [token for position, token in enumerate(source) if position not in dropped] or [source[-1]]


def losses_without(words: Sequence[tuple[Candidate, int]], decoder: Decoder) -> list[float]:
    """Return the nats of log-probability that a translation loses without a word of its source."""
    # candidates whose complete translation is not scored yet go first in the same batch
    unscored = {id(candidate): candidate for candidate, _ in words if candidate.log_prob is None}
    pairs: list[tuple[Ids, Ids]] = [(candidate.piece.ids, candidate.target) for candidate in unscored.values()]
    for candidate, word in words:
        tokens = candidate.piece.words[word].tokens
        pairs.append((without_tokens(candidate.piece.ids, tokens), candidate.target))
    if not pairs:
        return []
    forced = decoder.force([source for source, _ in pairs], [target for _, target in pairs], Readings())
    totals = [sum(result.log_probs) for result in forced]
    complete = {id(candidate): candidate.log_prob for candidate, _ in words if candidate.log_prob is not None}
    complete |= dict(zip(unscored, totals, strict=False))
    without_word = totals[len(unscored) :]
    return [complete[id(candidate)] - total for (candidate, _), total in zip(words, without_word, strict=True)]


def offsets_of(text: str, ids: Ids, decode: Callable[[Ids], str]) -> Offsets:
    """Return the span of each token in a text, by decoding each token alone."""
    return locate_tokens(text, [decode([token]) for token in ids])
