"""What a model of the other direction knows of a translation: words that were left out, and words that were made up.

A word of the source is left out where its doubt is large:

    doubt = -logit(attention) - a max(log p, -12) - b min(max(loss, -1), 9)

attention: the most that the word receives from the head that aligns words. log p: of the word by the reverse model,
which reads the translation. loss: by how much the translation becomes less probable without the word. The last two
cost forced passes; they are made only where they can lift the doubt above what is asked.

A word of the translation is made up where its doubt, -logit(attention) - c max(log p, -12), is large: here the reverse
model attends, and the model itself finds the word improbable.
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
    candidates: Sequence[Candidate], decoder: Decoder, reverse: Reverse, rule: Rule, above: float
) -> list[list[float]]:
    """Return the doubt of each word of each candidate; exact where it is larger than `above`."""

    def may_pass(candidate: Candidate, word: int, log_prob: float) -> bool:
        most = rule.doubt(candidate.attention[word], log_prob, SMALLEST_LOSS)
        return candidate.is_open[word] and most > above

    found = [[rule.doubt(share) for share in one.attention] for one in candidates]
    read = [
        number
        for number, one in enumerate(candidates)
        if any(may_pass(one, word, SMALLEST_LOG_PROB) for word in range(len(one.attention)))
    ]
    log_probs = word_log_probs([candidates[number] for number in read], reverse)
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


def word_log_probs(candidates: Sequence[Candidate], reverse: Reverse) -> list[list[float]]:
    """Return the log-probability of each word of each source by the reverse model, which reads the translation."""
    texts, translations = [one.translation for one in candidates], [one.text for one in candidates]
    found = []
    for one, read in zip(candidates, reverse.read(texts, translations) if candidates else (), strict=True):
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


# ---- made up
SUPPORT_POINTS = {"sure": 6.0, "likely": 5.0, "all": 4.0}
SUPPORT_RULE = Rule(log_prob=0.3, loss=0.0, even=SUPPORT_POINTS["likely"])


def support_doubts(
    texts: Sequence[str],
    pairs: Sequence[tuple[Ids, Ids]],
    translations: Sequence[str],
    offsets: Sequence[Offsets],
    decoder: Decoder,
    reverse: Reverse,
) -> list[list[tuple[Span, float]]]:
    """Return the words of each translation, and the doubt of each that the source supports it.

    pairs: the tokens of each source and translation. offsets: the characters of a translation that its tokens are.
    """
    forced = decoder.force([source for source, _ in pairs], [target for _, target in pairs], Readings())
    reads = reverse.read(translations, texts, with_head=True)
    found = []
    for translation, own, of_tokens, read in zip(translations, forced, offsets, reads, strict=True):
        words: list[tuple[Span, float]] = []
        if read is not None:
            rows, tokens = read.forced.received or [], dict(words_of(translation, of_tokens))
            for span, columns in words_of(translation, read.source):
                attention = max((row[column] for row in rows for column in columns), default=0.0)
                log_prob = sum(own.log_probs[place] for place in tokens.get(span, ()))
                words.append((span, SUPPORT_RULE.doubt(attention, log_prob)))
        found.append(words)
    return found


def offsets_of(text: str, ids: Ids, decode: Callable[[Ids], str]) -> Offsets:
    """Return the characters of a text that its tokens stand for, by what each decodes to."""
    return found_offsets(text, [decode([token]) for token in ids])
