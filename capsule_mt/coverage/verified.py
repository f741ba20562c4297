"""What a model of the other direction knows of a translation: the words that were left out.

A word of the source is left out where its doubt is large:

    doubt = -logit(attention) - a max(log p, -12) - b min(max(loss, -1), 9)

attention: the most that the word receives from the head that aligns words. log p: of the word by the reverse model,
which reads the translation. loss: by how much the translation becomes less probable without the word. The last two
cost forced passes; they are made only where they can lift the doubt above what is asked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from capsule_mt.coverage.curves import evidence_of, sigmoid
from capsule_mt.engine.search import Decoder, Forced, Ids, Readings
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import Offsets, found_offsets, words_of

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


@dataclass(frozen=True)
class Rule:
    """How much counts in a doubt beside attention: `a` and `b` above; and the doubt of an even chance."""

    log_prob: float = 0.5
    loss: float = 1.0
    even: float = POINTS["likely"]

    def share(self, doubt: float) -> float:
        """Return how much of a word is covered, before calibration."""
        return sigmoid(self.even - doubt)

    def doubt(self, attention: float, log_prob: float = 0.0, loss: float = LARGEST_LOSS) -> float:
        """Return the doubt of a word; the defaults stand for a word that is not doubted."""
        kept = min(max(loss, SMALLEST_LOSS), LARGEST_LOSS)
        return -evidence_of(attention) - self.log_prob * max(log_prob, SMALLEST_LOG_PROB) - self.loss * kept


class Candidate(NamedTuple):
    """A translation that is verified: what the forward model read and wrote, and how much each word of it received.

    is_open: for each word, whether it may be marked.
    log_prob: of the whole translation, where the search has it by the whole vocabulary.
    """

    text: str
    translation: str
    source: Ids
    target: Ids
    places: Sequence[Span]
    tokens: Sequence[Sequence[int]]
    attention: Sequence[float]
    is_open: Sequence[bool]
    log_prob: float | None = None


def doubts(
    candidates: Sequence[Candidate],
    decoder: Decoder,
    reverse: Reverse,
    rule: Rule,
    above: float,
    reads: Sequence[Read | None] | None = None,
) -> list[list[float]]:
    """Return the doubt of each word of each candidate; exact where it is larger than `above`.

    reads: what the reverse has read of each; else it reads those that need it.
    """

    def may_pass(candidate: Candidate, word: int, log_prob: float) -> bool:
        most = rule.doubt(candidate.attention[word], log_prob, SMALLEST_LOSS)
        return candidate.is_open[word] and most > above

    found = [[rule.doubt(share) for share in one.attention] for one in candidates]
    read = [
        number
        for number, one in enumerate(candidates)
        if any(may_pass(one, word, SMALLEST_LOG_PROB) for word in range(len(one.attention)))
    ]
    chosen = [candidates[number] for number in read]
    if reads is None:
        found_reads = reverse.read([one.translation for one in chosen], [one.text for one in chosen]) if read else []
    else:
        found_reads = [reads[number] for number in read]
    log_probs = word_log_probs(chosen, found_reads)
    doubted: list[tuple[int, int]] = []
    for number, of_words in zip(read, log_probs, strict=True):
        one = candidates[number]
        found[number] = [rule.doubt(*pair) for pair in zip(one.attention, of_words, strict=True)]
        doubted += [(number, word) for word, log_prob in enumerate(of_words) if may_pass(one, word, log_prob)]
    losses = losses_without([(candidates[number], word) for number, word in doubted], decoder)
    known = dict(zip(read, log_probs, strict=True))
    for (number, word), loss in zip(doubted, losses, strict=True):
        found[number][word] = rule.doubt(candidates[number].attention[word], known[number][word], loss)
    return found


def word_log_probs(candidates: Sequence[Candidate], reads: Sequence[Read | None]) -> list[list[float]]:
    """Return the log-probability of each word of each source by the reverse model, which has read the translation."""
    found = []
    for one, read in zip(candidates, reads, strict=True):
        if read is None:  # nothing was translated
            found.append([SMALLEST_LOG_PROB] * len(one.places))
            continue
        tokens = dict(words_of(one.text, read.target))
        own = read.forced.log_probs
        found.append([sum(own[place] for place in tokens.get(span, ())) for span in one.places])
    return found


def without_tokens(source: Ids, places: Sequence[int]) -> Ids:
    """Return a source without the tokens at some places, but with its last one where no other is left."""
    left_out = frozenset(places)
    return [token for place, token in enumerate(source) if place not in left_out] or [source[-1]]


def losses_without(words: Sequence[tuple[Candidate, int]], decoder: Decoder) -> list[float]:
    """Return by how many nats a translation becomes less probable without a word of its source."""
    wholes = {id(one): one for one, _ in words if one.log_prob is None}
    pairs: list[tuple[Ids, Ids]] = [(one.source, one.target) for one in wholes.values()]
    for one, word in words:
        pairs.append((without_tokens(one.source, one.tokens[word]), one.target))
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
