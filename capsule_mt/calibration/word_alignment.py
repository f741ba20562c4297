"""Word alignment in numpy: IBM model 1, then a hidden Markov model, in two directions trained to agree.

IBM model 1 (Brown et al. 1993) with a prior on the diagonal (Dyer et al. 2013) initialises the hidden Markov model of
Vogel et al. 1996, in which a word's position depends on the last word's. Both directions are trained jointly
on the product of their posteriors (Liang et al. 2006). The result is deterministic. Sentence pairs of the same two
lengths form one array, without padding.

Legend: B sentence pairs of one shape, S source words, T target words. A link is (source position, target position),
counted from 0.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from capsule_mt.calibration.words import Links, SentencePair, word_pairs, word_stem
from capsule_mt.files.reading import read_parallel

TINY = 1e-300
# Table entries for two words never seen together, and for two equal words never seen together
UNKNOWN_PAIR, EQUAL_PAIR = 1e-9, 0.5
LONGEST_SIDE = 2000  # words; the arrays of a pair are as large as their square
LONGEST_LEARNT = 50  # words of a side that training reads
DIAGONAL = 4.0  # strength of IBM model 1's prior on the diagonal
NULL_PROBABILITY = 0.08  # of a word that comes from no word of the other side
WIDEST_JUMP = 8  # of the hidden Markov model; longer ones share one probability
THRESHOLD = 0.5  # the least geometric mean of both posteriors that makes a link


@dataclass(frozen=True)
class AlignerSettings:
    """Settings of training.

    model1_iterations, hmm_iterations: passes over the text.
    concentration: the Dirichlet prior of the translation table; below 1 it makes the table sparse.
    agreement: train on the product of both directions' posteriors instead of each alone.
    """

    model1_iterations: int = 5
    hmm_iterations: int = 5
    concentration: float = 0.01
    agreement: bool = True


class WordAligner:
    """Learn word translations from parallel text, and align sentence pairs.

        aligner = WordAligner().fit(pairs)        # pairs of lists of words
        links = aligner.align(pairs)              # one frozenset of (source, target) for each pair

    Words with the same `stem` share their statistics. A pair with an empty side has no links. A word that training did
    not see links to equal words only.
    """

    def __init__(self, settings: AlignerSettings | None = None, stem: Callable[[str], str] = word_stem) -> None:
        self.settings = settings or AlignerSettings()
        self.stem = stem

    def fit(self, pairs: Sequence[SentencePair], progress: Callable[[str], None] | None = None) -> "WordAligner":
        """Train on sentence pairs; call `progress` with a message after each iteration."""
        settings, report = self.settings, progress or (lambda message: None)
        self.source_words = _vocabulary(self.stem(word) for source, _ in pairs for word in source)
        self.target_words = _vocabulary(self.stem(word) for _, target in pairs for word in target)
        shapes = self._shapes(pairs)
        if not shapes:
            raise ValueError("`pairs` must have at least one pair with words on both sides")
        keys = np.unique(np.concatenate([np.unique(shape.cells) for shape in shapes]))
        self.keys = keys
        source_of, target_of = keys // len(self.target_words), keys % len(self.target_words)
        for shape in shapes:
            shape.cells = np.searchsorted(keys, shape.cells)  # [B, T, S]: from here on indices into `keys`
        prior, sizes = settings.concentration, (len(self.source_words), len(self.target_words))
        self.forward = _Direction(source_of, target_of, *sizes, prior)
        self.backward = _Direction(target_of, source_of, *sizes[::-1], prior)
        for iteration in range(settings.model1_iterations + settings.hmm_iterations):
            hmm = iteration >= settings.model1_iterations
            for shape in shapes:
                forward, backward = self._posteriors(shape, hmm, count=True)
                if settings.agreement:
                    forward = backward = forward * backward
                self.forward.count(shape.cells, forward)
                self.backward.count(shape.cells, backward)
            self.forward.update(hmm)
            self.backward.update(hmm)
            report(f"{'HMM' if hmm else 'IBM model 1'}, iteration {iteration + 1}")
        return self

    def translations(self, number: int) -> dict[str, list[str]]:
        """Return the `number` most likely target words of each source word (its stem), the likeliest first."""
        sources, targets = self.keys // len(self.target_words), self.keys % len(self.target_words)
        order = np.lexsort((targets, -self.forward.table[:-2], sources))
        of_source, of_target = list(self.source_words), list(self.target_words)
        found: dict[str, list[str]] = {word: [] for word in of_source}
        for source, target in zip(sources[order].tolist(), targets[order].tolist(), strict=True):
            if len(found[of_source[source]]) < number:
                found[of_source[source]].append(of_target[target])
        return found

    def align(self, pairs: Sequence[SentencePair]) -> list[Links]:
        """Return the links of each pair, where the geometric mean of both posteriors reaches the threshold."""
        return [
            frozenset((int(s), int(t)) for t, s in np.argwhere(np.sqrt(forward * backward) >= THRESHOLD))
            for forward, backward in self.posteriors(pairs)
        ]

    def align_lines(self, sources: Sequence[str], targets: Sequence[str]) -> list[Links]:
        """Return the links between the words of each pair of lines."""
        return self.align(word_pairs(sources, targets))

    def posteriors(self, pairs: Sequence[SentencePair]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return two arrays [T, S] for each pair: p(target word comes from source word), p(source from target)."""
        shapes = self._shapes(pairs)
        result: list[tuple[np.ndarray, np.ndarray]] = [(np.zeros((len(t), len(s))),) * 2 for s, t in pairs]
        for shape in shapes:
            found = np.searchsorted(self.keys[:-1], shape.cells)  # the last index for cells beyond all keys
            unknown = self.keys[found] != shape.cells
            # link unseen names and numbers that are equal on both sides
            same = np.array(
                [
                    [[self.stem(s) == self.stem(t) for s in pairs[index][0]] for t in pairs[index][1]]
                    for index in shape.indices
                ]
            )  # [B, T, S]
            shape.cells = np.where(unknown, np.where(same, len(self.keys) + 1, len(self.keys)), found)
            forward, backward = self._posteriors(shape, self.settings.hmm_iterations > 0, count=False)
            for place, index in enumerate(shape.indices):
                result[index] = forward[place], backward[place]
        return result

    def _shapes(self, pairs: Sequence[SentencePair]) -> list["_Shape"]:
        """Group pairs by their lengths, as word indices (unknown: -1); leave out pairs with an empty side."""
        by_shape: dict[tuple[int, int], list[int]] = {}
        for index, (source, target) in enumerate(pairs):
            if max(len(source), len(target)) > LONGEST_SIDE:
                raise ValueError(
                    f"pair {index + 1} has {len(source)} and {len(target)} words; the aligner takes at most "
                    f"{LONGEST_SIDE} a side"
                )
            if source and target:
                by_shape.setdefault((len(source), len(target)), []).append(index)
        shapes = []
        for _, indices in sorted(by_shape.items()):
            sources, targets = (
                np.array([[numbers.get(self.stem(word), -1) for word in pairs[index][side]] for index in indices])
                for side, numbers in enumerate((self.source_words, self.target_words))
            )
            cells = sources[:, None, :] * len(self.target_words) + targets[:, :, None]  # [B, T, S]
            cells[(sources < 0)[:, None, :] | (targets < 0)[:, :, None]] = -1
            shapes.append(_Shape(indices, cells, sources, targets))
        return shapes

    def _posteriors(self, shape: "_Shape", hmm: bool, count: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return p(target word comes from source word) and p(source word comes from target word), both [B, T, S]."""
        forward = self.forward.posteriors(self.forward.table[shape.cells], shape.targets, hmm, count)
        turned = shape.cells.transpose(0, 2, 1)  # [B, S, T]
        backward = self.backward.posteriors(self.backward.table[turned], shape.sources, hmm, count)
        return forward, backward.transpose(0, 2, 1)


@dataclass
class _Shape:
    """Sentence pairs of the same two lengths: their indices, those of their word pairs [B, T, S] and their words."""

    indices: list[int]
    cells: np.ndarray
    sources: np.ndarray
    targets: np.ndarray


class _Direction:
    """One direction: the probability that a word of the giving side produces ("makes") a word of the other.

    table: p(made | giver) for each known pair of words, then for unknown pairs, then for unknown pairs of equal words.
    null: p(made | no word) for each made word, and a last entry for unknown words (index -1).
    jumps: the probability that the position moves by -widest ... +widest.
    prior: the concentration of the Dirichlet prior of the table.
    """

    def __init__(self, giver: np.ndarray, made: np.ndarray, num_givers: int, num_made: int, prior: float) -> None:
        self.giver, self.num_givers, self.num_made, self.prior = giver, num_givers, num_made, prior
        partners = np.bincount(giver, minlength=num_givers)
        self.table = np.append(1.0 / np.maximum(partners[giver], 1), [UNKNOWN_PAIR, EQUAL_PAIR])
        self.null = np.full(num_made + 1, 1.0 / max(num_made, 1))
        distances = np.arange(-WIDEST_JUMP, WIDEST_JUMP + 1)
        self.jumps = np.exp(-0.5 * np.abs(distances - 1))
        self._clear()

    def _clear(self) -> None:
        self.counts = np.zeros(len(self.giver))
        self.null_counts = np.zeros(self.num_made + 1)
        self.jump_counts = np.zeros_like(self.jumps)

    def count(self, cells: np.ndarray, posteriors: np.ndarray) -> None:
        self.counts += np.bincount(cells.ravel(), posteriors.ravel(), minlength=len(self.counts))

    def update(self, hmm: bool) -> None:
        """Estimate the tables from the counts: mean field under a Dirichlet prior, as in Dyer et al. 2013."""
        totals = np.bincount(self.giver, self.counts, minlength=self.num_givers)
        partners = np.bincount(self.giver, minlength=self.num_givers)
        logs = digamma(self.counts + self.prior) - digamma(totals + self.prior * partners)[self.giver]
        self.table[:-2] = np.exp(logs)
        self.null = (self.null_counts + 1.0) / (self.null_counts + 1.0).sum()
        if hmm:
            self.jumps = self.jump_counts / max(self.jump_counts.sum(), TINY) + 1e-6
        self._clear()

    def posteriors(self, lexical: np.ndarray, made: np.ndarray, hmm: bool, count: bool) -> np.ndarray:
        """Return p(giver's position | made word) [B, J, I] from p(made | giver) [B, J, I] and made words [B, J]."""
        null = self.null[made]  # [B, J]
        if not hmm:
            joint = lexical * self._diagonal(*lexical.shape[1:])
            empty = NULL_PROBABILITY * null
            total = joint.sum(axis=-1) + empty
            if count:
                self.null_counts += np.bincount(made.ravel(), (empty / total).ravel(), minlength=len(self.null_counts))
            return joint / total[..., None]
        return self._forward_backward(lexical, null, made, count)

    def _diagonal(self, num_made: int, num_givers: int) -> np.ndarray:
        """Return IBM model 1's prior on the position [J, I]: exp(-diagonal |i / I - j / J|), normalised."""
        places = [(np.arange(length) + 0.5) / length for length in (num_made, num_givers)]
        prior = np.exp(-DIAGONAL * np.abs(places[0][:, None] - places[1][None, :]))
        return (1 - NULL_PROBABILITY) * prior / prior.sum(axis=-1, keepdims=True)

    def _forward_backward(self, lexical: np.ndarray, null: np.ndarray, made: np.ndarray, count: bool) -> np.ndarray:
        batch, num_made, num_givers = lexical.shape
        empty = NULL_PROBABILITY
        places = np.arange(num_givers)
        distances = np.clip(places[None, :] - places[:, None], -WIDEST_JUMP, WIDEST_JUMP) + WIDEST_JUMP  # [I, I]
        move = self.jumps[distances]
        move = (1 - empty) * move / move.sum(axis=-1, keepdims=True)
        alphas = np.empty((num_made, 2, batch, num_givers))  # of a link, and of no link since one at that position
        scales = np.empty((num_made, batch, 1))
        here = np.full((batch, num_givers), 1.0 / num_givers)
        first = (1 - empty) * np.full((batch, num_givers), 1.0 / num_givers)
        for step in range(num_made):
            linked = (here @ move if step else first) * lexical[:, step]
            unlinked = here * (empty * null[:, step, None])
            scales[step] = np.maximum((linked + unlinked).sum(axis=-1, keepdims=True), TINY)
            alphas[step, 0], alphas[step, 1] = linked / scales[step], unlinked / scales[step]
            here = alphas[step, 0] + alphas[step, 1]
        posteriors = np.empty_like(lexical)
        beta = np.ones((batch, num_givers))
        outer = np.zeros((num_givers, num_givers))
        for step in range(num_made - 1, -1, -1):
            posteriors[:, step] = alphas[step, 0] * beta
            if step == 0:
                break
            arriving = lexical[:, step] * beta / scales[step]
            if count:
                outer += (alphas[step - 1, 0] + alphas[step - 1, 1]).T @ arriving
            beta = arriving @ move.T + (empty * null[:, step, None] / scales[step]) * beta
        if count:
            expected = outer * move
            self.jump_counts += np.bincount(distances.ravel(), expected.ravel(), minlength=len(self.jumps))
            left = np.maximum(1.0 - posteriors.sum(axis=-1), 0.0)
            self.null_counts += np.bincount(made.ravel(), left.ravel(), minlength=len(self.null_counts))
        return posteriors


def _vocabulary(words: Iterable[str]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for word in words:
        numbers.setdefault(word, len(numbers))
    return numbers


def digamma(values: np.ndarray) -> np.ndarray:
    """Return the derivative of log gamma for positive numbers."""
    shifted = np.asarray(values, dtype=float) + 6.0
    below = sum(1.0 / (values + step) for step in range(6))
    inverse = 1.0 / (shifted * shifted)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    return np.log(shifted) - 0.5 / shifted - series - below


def fit_aligner(
    sources: Sequence[str],
    targets: Sequence[str],
    progress: Callable[[str], None] | None = None,
    more: Sequence[str | os.PathLike[str]] | None = None,
) -> WordAligner:
    """Train an aligner on lines of text, without pairs that have an empty side or one that is too long.

    `more` are two files, of sources and of targets, that it learns from, too.
    """
    pairs = word_pairs(sources, targets)
    if more is not None:
        pairs += word_pairs(*read_parallel(more))
    short = [pair for pair in pairs if min(map(len, pair)) > 0 and max(map(len, pair)) <= LONGEST_LEARNT]
    if not short:
        wanted = f"1 to {LONGEST_LEARNT} words a side"
        raise ValueError(f"none of the {len(pairs)} pairs of `sources` and `targets` has {wanted}")
    return WordAligner().fit(short, progress)
