"""What a model of the other direction knows of a translation: the words that were left out.

A word of the source is left out where its doubt is large:

    doubt = -logit(attention) - a max(log p, -12) - b min(max(loss, -1), 9)

attention: the most that the word receives from the head that aligns words. log p: of the word by the reverse model,
which reads the translation. loss: by how much the translation becomes less probable without the word. The last two
cost forced passes; they are made only where they can lift the doubt above what is asked.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from capsule_mt.coverage.curves import evidence_of, sigmoid
from capsule_mt.engine.search import Decoder, Forced, Ids, Readings
from capsule_mt.text.segments import Piece
from capsule_mt.text.words import Offsets, found_offsets, words_of

LOG_PROB, LOSS = 0.5, 1.0  # a and b
SMALLEST_LOG_PROB = -12.0
SMALLEST_LOSS, LARGEST_LOSS = -1.0, 9.0
# the doubt above which a word is marked: chosen by hand on own translations of both released models' dev text
POINTS = {"sure": 8.5, "likely": 7.0, "all": 5.0}


class Read(NamedTuple):
    """A forced pass over a text and its translation, and the characters that the tokens of both stand for."""

    source: Offsets
    target: Offsets
    forced: Forced


class Reverse(Protocol):
    """A model of the other direction: a `Translator`."""

    def read(self, texts: Sequence[str], translations: Sequence[str], *, with_head: bool = False) -> list[Read | None]:
        """Force the translations; `None` for a blank text. `with_head`: also read the head that aligns words."""
        ...


def doubt_of(attention: float, log_prob: float = 0.0, loss: float = LARGEST_LOSS) -> float:
    """Return the doubt of a word; the defaults stand for a word that is not doubted."""
    kept = min(max(loss, SMALLEST_LOSS), LARGEST_LOSS)
    return -evidence_of(attention) - LOG_PROB * max(log_prob, SMALLEST_LOG_PROB) - LOSS * kept


def covered_share(doubt: float) -> float:
    """Return how much of a word is covered, before calibration."""
    return sigmoid(POINTS["likely"] - doubt)


class Candidate(NamedTuple):
    """A translation that is verified: its text and tokens, and how much each word of its source received.

    is_open: for each word, whether it may be marked.
    log_prob: of the whole translation, where the search has it by the whole vocabulary.
    """

    piece: Piece
    translation: str
    target: Ids
    attention: Sequence[float]
    is_open: Sequence[bool]
    log_prob: float | None = None


def doubts(
    candidates: Sequence[Candidate],
    decoder: Decoder,
    reverse: Reverse,
    above: float,
    reads: Sequence[Read | None] | None = None,
) -> list[list[float]]:
    """Return the doubt of each word of each candidate; exact where it is larger than `above`.

    reads: what the reverse has read of each; else it reads those that need it.
    """

    def may_pass(candidate: Candidate, word: int, log_prob: float) -> bool:
        return candidate.is_open[word] and doubt_of(candidate.attention[word], log_prob, SMALLEST_LOSS) > above

    found = [list(map(doubt_of, one.attention)) for one in candidates]
    chosen = [
        number
        for number, one in enumerate(candidates)
        if any(may_pass(one, word, SMALLEST_LOG_PROB) for word in range(len(one.attention)))
    ]
    some = [candidates[number] for number in chosen]
    if reads is not None:
        of_some = [reads[number] for number in chosen]
    else:
        of_some = reverse.read([one.translation for one in some], [one.piece.text for one in some]) if some else []
    doubted: list[tuple[int, int, float]] = []
    for number, one, read in zip(chosen, some, of_some, strict=True):
        log_probs = word_log_probs(one.piece, read)
        found[number] = list(map(doubt_of, one.attention, log_probs))
        doubted += [
            (number, word, log_prob) for word, log_prob in enumerate(log_probs) if may_pass(one, word, log_prob)
        ]
    losses = losses_without([(candidates[number], word) for number, word, _ in doubted], decoder)
    for (number, word, log_prob), loss in zip(doubted, losses, strict=True):
        found[number][word] = doubt_of(candidates[number].attention[word], log_prob, loss)
    return found


def word_log_probs(piece: Piece, read: Read | None) -> list[float]:
    """Return the log-probability of each word of a source by the reverse model, which has read the translation."""
    if read is None:  # nothing was translated
        return [SMALLEST_LOG_PROB] * len(piece.words)
    tokens = dict(words_of(piece.text, read.target))
    return [sum(read.forced.log_probs[token] for token in tokens.get(word.place, ())) for word in piece.words]


def without_tokens(source: Ids, places: Sequence[int]) -> Ids:
    """Return a source without the tokens at some places, but with its last one where no other is left."""
    left_out = frozenset(places)
    return [token for place, token in enumerate(source) if place not in left_out] or [source[-1]]


def losses_without(words: Sequence[tuple[Candidate, int]], decoder: Decoder) -> list[float]:
    """Return by how many nats a translation becomes less probable without a word of its source."""
    wholes = {id(one): one for one, _ in words if one.log_prob is None}
    pairs: list[tuple[Ids, Ids]] = [(one.piece.ids, one.target) for one in wholes.values()]
    pairs += [(without_tokens(one.piece.ids, one.piece.words[word].tokens), one.target) for one, word in words]
    if not pairs:
        return []
    forced = decoder.force([source for source, _ in pairs], [target for _, target in pairs], Readings())
    totals = [sum(one.log_probs) for one in forced]
    known = dict(zip(wholes, totals, strict=False))
    without = totals[len(wholes) :]
    return [
        (known[id(one)] if one.log_prob is None else one.log_prob) - total
        for (one, _), total in zip(words, without, strict=True)
    ]


def offsets_of(text: str, ids: Ids, decode: Callable[[Ids], str]) -> Offsets:
    """Return the characters of a text that its tokens stand for, by what each decodes to."""
    return found_offsets(text, [decode([token]) for token in ids])
