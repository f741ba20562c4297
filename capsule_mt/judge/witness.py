"""What an encoder shows of a pair of texts: how near each word is to the words of the other text, and in which order.

Legend: S tokens of the source, T tokens of the translation; words are those with letters or digits.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain, combinations
from typing import NamedTuple

from capsule_mt.engine.library import product
from capsule_mt.engine.program import Tensor
from capsule_mt.judge.encoder import Encoder, mean_of
from capsule_mt.models.tensors import floats, of_floats
from capsule_mt.text.sentences import split_sentences
from capsule_mt.text.tokenizer_protocol import Encoded
from capsule_mt.text.words import is_mark, words_of

NEAR = 1.0  # of what is not there, such as the neighbour of the first word: nothing speaks against it
UNKNOWN_SIMILARITY = 0.5  # of a word without a counterpart to compare it with
SPECIAL_TOKENS = 2  # around each part of a text
MAX_COMPARED = 1_000_000  # tokens of a source times tokens of its translation: takes 2 s

Matrix = list[list[float]]


class WordEvidence(NamedTuple):
    """What speaks against the word from `start` to `end` having a counterpart: larger is worse.

    distances: in the order of `EVIDENCE`.
    partner: the index of the nearest word of the other text, `None` if that has no words.
    """

    start: int
    end: int
    distances: tuple[float, ...]
    partner: int | None


EVIDENCE = ("token", "margin", "word", "neighbours' margin", "neighbours' token", "texts", "length")


class PairEvidence(NamedTuple):
    """What an encoder shows of a source and its translation.

    similarity: the cosine of the two texts.
    disorder: how much nearer two sentences are to their counterparts in the other order than in the same one; 0 if no
        sentences change their order.
    """

    source: tuple[WordEvidence, ...]
    target: tuple[WordEvidence, ...]
    similarity: float
    disorder: float

    def swapped(self) -> "PairEvidence":
        """Return the evidence of the translation as the source."""
        return self._replace(source=self.target, target=self.source)


class _Encoded(NamedTuple):
    """A text.

    words: their spans, and the indices of their tokens. sentences: the indices of their words.
    states: of the tokens in the layer of words. mean: over all tokens in the highest layer.
    """

    words: list[tuple[int, int, list[int]]]
    sentences: list[list[int]]
    states: Tensor
    mean: Sequence[float]


class Witness:
    """Encodes pairs of texts and compares their words.

    Args:
        word_layer: the layer whose states are compared token by token. The encoder's highest layer compares texts.
    """

    def __init__(self, encoder: Encoder, word_layer: int) -> None:
        self.encoder, self.word_layer = encoder, word_layer

    def compare(self, sources: Sequence[str], translations: Sequence[str]) -> list[PairEvidence]:
        """Return the evidence of each pair, neither of whose texts may be blank; refuse a pair that is too long."""
        texts = [*sources, *translations]
        encodings = [self.encoder.tokenize(text) for text in texts]
        for source, target in zip(encodings[: len(sources)], encodings[len(sources) :], strict=True):
            if len(source.ids) * len(target.ids) > MAX_COMPARED:
                raise ValueError(
                    f"`sources` and `translations`: the texts of a pair have {len(source.ids):,} and "
                    f"{len(target.ids):,} tokens, whose product must be at most {MAX_COMPARED:,}: cut them"
                )
        encoded = self._encoded(texts, encodings)
        pairs = zip(encoded[: len(sources)], encoded[len(sources) :], strict=True)
        return [_evidence(source, target) for source, target in pairs]

    def _encoded(self, texts: Sequence[str], encodings: Sequence[Encoded]) -> list[_Encoded]:
        """Encode texts; those with more tokens than the encoder reads in parts."""
        max_tokens = self.encoder.max_tokens - SPECIAL_TOKENS
        parts: list[list[int]] = []
        for encoding in encodings:
            first, *inner, last = encoding.ids
            starts = range(0, max(len(inner), 1), max_tokens)
            parts += [[first, *inner[start : start + max_tokens], last] for start in starts]
        states = iter(zip(parts, self.encoder.states_of(parts), strict=True))
        results = []
        for text, encoding in zip(texts, encodings, strict=True):
            num_parts = max(1, math.ceil((len(encoding.ids) - SPECIAL_TOKENS) / max_tokens))
            results.append(self._joined(text, encoding.offsets[1:-1], [next(states)[1] for _ in range(num_parts)]))
        return results

    def _joined(
        self, text: str, offsets: Sequence[tuple[int, int] | None], parts: Sequence[dict[int, Tensor]]
    ) -> _Encoded:
        words = [
            (span.start, span.end, tokens)
            for span, tokens in words_of(text, offsets)
            if not is_mark(text[span.start : span.end])
        ]
        width, top = self.encoder.width, self.encoder.layers[-1]
        rows = [part[self.word_layer] for part in parts]
        numbers = b"".join(memoryview(part.buffer)[width:-width].tobytes() for part in rows)
        means = [mean_of(part[top]) for part in parts]
        mean = [math.fsum(column) / len(means) for column in zip(*means, strict=True)]
        states = Tensor(numbers, "F32", (len(numbers) // (4 * width), width))
        return _Encoded(words, _sentences_of(text, words), states, mean)


def _sentences_of(text: str, words: Sequence[tuple[int, int, list[int]]]) -> list[list[int]]:
    """Return the indices of the words of each sentence, without sentences that have none."""
    starts = [sentence.start for sentence in split_sentences(text)]
    sentences: list[list[int]] = [[] for _ in starts]
    for index, (start, *_) in enumerate(words):
        sentences[bisect_right(starts, start) - 1].append(index)
    return [indices for indices in sentences if indices]


def _evidence(source: _Encoded, target: _Encoded) -> PairEvidence:
    similarity = _cosine(source.mean, target.mean)
    similarities = _token_similarities(source.states, target.states)
    transposed = [list(column) for column in zip(*similarities, strict=True)]
    forward = _word_similarities(similarities, source.words, target.words)
    backward = _word_similarities(transposed, target.words, source.words)
    words = [
        [(there + back[row]) / 2 for there, back in zip(forward[row], backward, strict=True)]
        for row in range(len(forward))
    ]
    columns = [list(column) for column in zip(*words, strict=True)] or [[] for _ in target.words]
    return PairEvidence(
        _words_against(source.words, similarities, words, similarity),
        _words_against(target.words, transposed, columns, similarity),
        similarity,
        _disorder(words, source.sentences, target.sentences),
    )


def _token_similarities(source: Tensor, target: Tensor) -> Matrix:
    """Return the cosines of all tokens of two texts [S, T]."""
    (num_source, width), num_target = source.shape, target.shape[0]
    if not num_source or not num_target:
        return [[] for _ in range(num_source)]
    numbers = floats(target)
    columns = [numbers[index::width] for index in range(width)]
    transposed = of_floats(chain.from_iterable(columns), (width, num_target))
    dots = floats(product(transposed, source))
    source_lengths, target_lengths = _lengths(source), _lengths(target)
    return [
        [dot / (length * other) for dot, other in zip(dots[start : start + num_target], target_lengths, strict=True)]
        for length, start in zip(source_lengths, range(0, num_source * num_target, num_target), strict=True)
    ]


def _lengths(states: Tensor) -> list[float]:
    """Return the Euclidean length of each row, or 1 for zeros."""
    numbers, width = floats(states), states.shape[1]
    return [math.hypot(*numbers[start : start + width]) or 1.0 for start in range(0, len(numbers), width)]


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    length = math.hypot(*first) * math.hypot(*second)
    return math.fsum(a * b for a, b in zip(first, second, strict=True)) / length if length else 0.0


def _word_similarities(
    similarities: Matrix, words: Sequence[tuple[int, int, list[int]]], others: Sequence[tuple[int, int, list[int]]]
) -> Matrix:
    """Return how near each word is to each of the others: the mean over its tokens of the nearest token there."""
    tokens_of = [tokens for *_, tokens in others]
    nearest = [
        # most words are one token, and this is the innermost loop
        [
            row[tokens[0]] if len(tokens) == 1 else max([row[token] for token in tokens], default=0.0)
            for tokens in tokens_of
        ]
        for row in similarities
    ]
    results = []
    for *_, tokens in words:
        rows = [nearest[token] for token in tokens]
        results.append([sum(column) / len(rows) for column in zip(*rows, strict=True)] or [0.0] * len(others))
    return results


def _words_against(
    words: Sequence[tuple[int, int, list[int]]], similarities: Matrix, by_word: Matrix, similarity: float
) -> tuple[WordEvidence, ...]:
    """Return the evidence of the words of one side.

    similarities: of its tokens to those of the other text. by_word: of its words to those of the other text.
    """
    best, second = _two_best(by_word)
    tokens_near, margins, words_near = [], [], []
    partners: list[int | None] = []
    for (*_, tokens), row in zip(words, by_word, strict=True):
        near = [max(similarities[token], default=UNKNOWN_SIMILARITY) for token in tokens]
        tokens_near.append(sum(near) / len(near) if near else UNKNOWN_SIMILARITY)
        # how much nearer than any other word of this text it is to its best word
        gains = [
            value - (second if value >= top else top) for value, top, second in zip(row, best, second, strict=True)
        ]
        margins.append(max(gains, default=0.0) if near else 0.0)
        words_near.append(max(row, default=UNKNOWN_SIMILARITY) if near else UNKNOWN_SIMILARITY)
        partners.append(max(range(len(row)), key=row.__getitem__) if row else None)
    padded_margins, padded_tokens = [NEAR, *margins, NEAR], [NEAR, *tokens_near, NEAR]
    return tuple(
        WordEvidence(
            start,
            end,
            (
                -tokens_near[index],
                -margins[index],
                -words_near[index],
                -min(padded_margins[index], padded_margins[index + 2]),
                -min(padded_tokens[index], padded_tokens[index + 2]),
                -similarity,
                math.log(end - start),
            ),
            partners[index],
        )
        for index, (start, end, _) in enumerate(words)
    )


def _two_best(rows: Matrix) -> tuple[list[float], list[float]]:
    """Return the two largest numbers of each column."""
    best, second = [], []
    for column in zip(*rows, strict=True):
        ordered = sorted(column, reverse=True)
        best.append(ordered[0])
        second.append(ordered[1] if len(ordered) > 1 else 0.0)
    return best, second


def _disorder(words: Matrix, sentences: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> float:
    """Return the largest gain of two sentences, each the nearest of its nearest, that change their order.

    words: the similarities of the words of the source to those of the translation.
    sentences, others: the indices of the words of the source's sentences, and of the translation's.
    """
    if len(sentences) < 2 or len(others) < 2:
        return 0.0
    near = [
        [_nearness([[words[row][column] for column in there] for row in here]) for there in others]
        for here in sentences
    ]
    forward = [max(range(len(row)), key=row.__getitem__) for row in near]
    backward = [max(range(len(column)), key=column.__getitem__) for column in zip(*near, strict=True)]
    paired = [(here, there) for here, there in enumerate(forward) if backward[there] == here]
    return max(
        (
            near[first][far] + near[second][close] - near[first][close] - near[second][far]
            for (first, far), (second, close) in combinations(paired, 2)
            if close < far
        ),
        default=0.0,
    )


def _nearness(similarities: Matrix) -> float:
    """Return how near two sentences are: the mean over their words of the nearest word of the other sentence."""
    columns = list(zip(*similarities, strict=True))
    return (sum(map(max, similarities)) / len(similarities) + sum(map(max, columns)) / len(columns)) / 2
