"""Word alignment in numpy: IBM model 1, then a hidden Markov model, in two directions trained to agree.

IBM model 1 (Brown et al. 1993) with a prior on the diagonal (Dyer et al. 2013) initialises the hidden Markov model of
Vogel et al. 1996, in which a word's position depends on the previous word's. Both directions are trained jointly
on the product of their posteriors (Liang et al. 2006). The result is deterministic. Sentence pairs of the same two
lengths form one array, without padding.

Legend: B sentence pairs of one shape, S source words, T target words. A link is (source position, target position),
counted from 0.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from capsule_mt.coverage.calibration.words import Links, SentencePair, word_pairs, word_stem
from capsule_mt.files.reading import read_parallel

TINY = 1e-300
# table entries for two words, and for two equal words, that never occurred in a pair
UNKNOWN_PAIR, EQUAL_PAIR = 1e-9, 0.5
MAX_WORDS = 2000  # a side; the arrays of a pair grow with its square
MAX_TRAINING_WORDS = 50  # a side; longer pairs are skipped in training
DIAGONAL = 4.0  # strength of IBM model 1's prior on the diagonal
NULL_PROBABILITY = 0.08  # that a word has no counterpart
WIDEST_JUMP = 8  # of the hidden Markov model; longer ones share one probability
THRESHOLD = 0.5  # a link needs this geometric mean of both posteriors


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

    Words with the same `stem` share their statistics. A pair with an empty side has no links. A word that is not in
    the training text links only to words with the same stem.
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

    def translations(self, num_words: int) -> dict[str, list[str]]:
        """Return the `num_words` most likely target stems of each source stem, most likely first."""
        sources, targets = self.keys // len(self.target_words), self.keys % len(self.target_words)
        order = np.lexsort((targets, -self.forward.table[:-2], sources))
        source_words, target_words = list(self.source_words), list(self.target_words)
        translations: dict[str, list[str]] = {word: [] for word in source_words}
        for source, target in zip(sources[order].tolist(), targets[order].tolist(), strict=True):
            if len(translations[source_words[source]]) < num_words:
                translations[source_words[source]].append(target_words[target])
        return translations

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
            key_indices = np.searchsorted(self.keys[:-1], shape.cells)  # the last index for cells beyond all keys
            is_unknown = self.keys[key_indices] != shape.cells
            # new names and numbers that are equal on both sides still get a link
            is_equal = np.array(
                [
                    [[self.stem(s) == self.stem(t) for s in pairs[index][0]] for t in pairs[index][1]]
                    for index in shape.indices
                ]
            )  # [B, T, S]
            unknown_cells = np.where(is_equal, len(self.keys) + 1, len(self.keys))
            shape.cells = np.where(is_unknown, unknown_cells, key_indices)
            forward, backward = self._posteriors(shape, self.settings.hmm_iterations > 0, count=False)
            for row, index in enumerate(shape.indices):
                result[index] = forward[row], backward[row]
        return result

    def _shapes(self, pairs: Sequence[SentencePair]) -> list["_Shape"]:
        """Group pairs by their lengths, as word indices (unknown: -1); leave out pairs with an empty side."""
        by_shape: dict[tuple[int, int], list[int]] = {}
        for index, (source, target) in enumerate(pairs):
            if max(len(source), len(target)) > MAX_WORDS:
                raise ValueError(
                    f"pair {index + 1} has {len(source)} and {len(target)} words; the aligner takes at most "
                    f"{MAX_WORDS} a side"
                )
            if source and target:
                by_shape.setdefault((len(source), len(target)), []).append(index)
        shapes = []
        for _, indices in sorted(by_shape.items()):
            sources, targets = (
                np.array([[word_ids.get(self.stem(word), -1) for word in pairs[index][side]] for index in indices])
                for side, word_ids in enumerate((self.source_words, self.target_words))
            )
            cells = sources[:, None, :] * len(self.target_words) + targets[:, :, None]  # [B, T, S]
            cells[(sources < 0)[:, None, :] | (targets < 0)[:, :, None]] = -1
            shapes.append(_Shape(indices, cells, sources, targets))
        return shapes

    def _posteriors(self, shape: "_Shape", hmm: bool, count: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return p(target word comes from source word) and p(source word comes from target word), both [B, T, S]."""
        forward = self.forward.posteriors(self.forward.table[shape.cells], shape.targets, hmm, count)
        transposed = shape.cells.transpose(0, 2, 1)  # [B, S, T]
        backward = self.backward.posteriors(self.backward.table[transposed], shape.sources, hmm, count)
        return forward, backward.transpose(0, 2, 1)


@dataclass
class _Shape:
    """Sentence pairs of the same two lengths: their indices, those of their word pairs [B, T, S] and their words."""

    indices: list[int]
    cells: np.ndarray
    sources: np.ndarray
    targets: np.ndarray


class _Direction:
    """One direction: the probability that a word of one side (the emitter) emits a word of the other side.

    Legend: I words of the emitting side, J words of the other side.

    table: p(emitted | emitter) of each pair seen in training; then of other pairs, and of other pairs of equal words.
    null: p(emitted | no word) for each emitted word, and a last entry for unknown words (index -1).
    jumps: the probability that the position moves by -WIDEST_JUMP ... +WIDEST_JUMP.
    prior: the concentration of the Dirichlet prior of the table.
    """

    def __init__(
        self, emitter: np.ndarray, emitted: np.ndarray, num_emitters: int, num_emitted: int, prior: float
    ) -> None:
        self.emitter, self.num_emitters, self.num_emitted, self.prior = emitter, num_emitters, num_emitted, prior
        partners = np.bincount(emitter, minlength=num_emitters)
        self.table = np.append(1.0 / np.maximum(partners[emitter], 1), [UNKNOWN_PAIR, EQUAL_PAIR])
        self.null = np.full(num_emitted + 1, 1.0 / max(num_emitted, 1))
        distances = np.arange(-WIDEST_JUMP, WIDEST_JUMP + 1)
        self.jumps = np.exp(-0.5 * np.abs(distances - 1))
        self._clear()

    def _clear(self) -> None:
        self.counts = np.zeros(len(self.emitter))
        self.null_counts = np.zeros(self.num_emitted + 1)
        self.jump_counts = np.zeros_like(self.jumps)

    def count(self, cells: np.ndarray, posteriors: np.ndarray) -> None:
        self.counts += np.bincount(cells.ravel(), posteriors.ravel(), minlength=len(self.counts))

    def update(self, hmm: bool) -> None:
        """Estimate the tables from the counts: mean field under a Dirichlet prior, as in Dyer et al. 2013."""
        totals = np.bincount(self.emitter, self.counts, minlength=self.num_emitters)
        partners = np.bincount(self.emitter, minlength=self.num_emitters)
        logs = digamma(self.counts + self.prior) - digamma(totals + self.prior * partners)[self.emitter]
        self.table[:-2] = np.exp(logs)
        self.null = (self.null_counts + 1.0) / (self.null_counts + 1.0).sum()
        if hmm:
            self.jumps = self.jump_counts / max(self.jump_counts.sum(), TINY) + 1e-6
        self._clear()

    def posteriors(self, lexical: np.ndarray, emitted: np.ndarray, hmm: bool, count: bool) -> np.ndarray:
        """Return p(emitter's position | emitted word) [B, J, I].

        Args:
            lexical: p(emitted | emitter) [B, J, I].
            emitted: the emitted words [B, J].
        """
        null = self.null[emitted]  # [B, J]
        if not hmm:
            joint = lexical * self._diagonal(*lexical.shape[1:])
            empty = NULL_PROBABILITY * null
            total = joint.sum(axis=-1) + empty
            if count:
                self.null_counts += np.bincount(
                    emitted.ravel(), (empty / total).ravel(), minlength=len(self.null_counts)
                )
            return joint / total[..., None]
        return self._forward_backward(lexical, null, emitted, count)

    def _diagonal(self, num_emitted: int, num_emitters: int) -> np.ndarray:
        """Return IBM model 1's prior on the position [J, I]: exp(-diagonal |i / I - j / J|), normalised."""
        rows, columns = ((np.arange(length) + 0.5) / length for length in (num_emitted, num_emitters))
        prior = np.exp(-DIAGONAL * np.abs(rows[:, None] - columns[None, :]))
        return (1 - NULL_PROBABILITY) * prior / prior.sum(axis=-1, keepdims=True)

    def _forward_backward(self, lexical: np.ndarray, null: np.ndarray, emitted: np.ndarray, count: bool) -> np.ndarray:
        """Run the hidden Markov model; the results are those of `posteriors`."""
        batch, num_emitted, num_emitters = lexical.shape
        empty = NULL_PROBABILITY
        positions = np.arange(num_emitters)
        distances = np.clip(positions[None, :] - positions[:, None], -WIDEST_JUMP, WIDEST_JUMP) + WIDEST_JUMP  # [I, I]
        move = self.jumps[distances]
        move = (1 - empty) * move / move.sum(axis=-1, keepdims=True)
        alphas = np.empty((num_emitted, 2, batch, num_emitters))  # linked here, or unlinked since a link here
        scales = np.empty((num_emitted, batch, 1))
        alpha = np.full((batch, num_emitters), 1.0 / num_emitters)
        first = (1 - empty) * np.full((batch, num_emitters), 1.0 / num_emitters)
        for step in range(num_emitted):
            linked = (alpha @ move if step else first) * lexical[:, step]
            unlinked = alpha * (empty * null[:, step, None])
            scales[step] = np.maximum((linked + unlinked).sum(axis=-1, keepdims=True), TINY)
            alphas[step, 0], alphas[step, 1] = linked / scales[step], unlinked / scales[step]
            alpha = alphas[step, 0] + alphas[step, 1]
        posteriors = np.empty_like(lexical)
        beta = np.ones((batch, num_emitters))
        outer = np.zeros((num_emitters, num_emitters))
        for step in range(num_emitted - 1, -1, -1):
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
            null_posteriors = np.maximum(1.0 - posteriors.sum(axis=-1), 0.0)
            self.null_counts += np.bincount(emitted.ravel(), null_posteriors.ravel(), minlength=len(self.null_counts))
        return posteriors


def _vocabulary(words: Iterable[str]) -> dict[str, int]:
    word_ids: dict[str, int] = {}
    for word in words:
        word_ids.setdefault(word, len(word_ids))
    return word_ids


def digamma(values: np.ndarray) -> np.ndarray:
    """Return the derivative of log gamma for positive numbers."""
    shifted = np.asarray(values, dtype=float) + 6.0
    recurrence = sum(1.0 / (values + step) for step in range(6))
    inverse = 1.0 / (shifted * shifted)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    return np.log(shifted) - 0.5 / shifted - series - recurrence


def fit_aligner(
    sources: Sequence[str],
    targets: Sequence[str],
    progress: Callable[[str], None] | None = None,
    extra_files: Sequence[str | os.PathLike[str]] | None = None,
) -> WordAligner:
    """Train an aligner on lines of text, without pairs that have an empty side or one over 50 words.

    extra_files: a file of sources and one of targets, for more training text.
    """
    pairs = word_pairs(sources, targets)
    if extra_files is not None:
        pairs += word_pairs(*read_parallel(extra_files))
    short = [pair for pair in pairs if min(map(len, pair)) > 0 and max(map(len, pair)) <= MAX_TRAINING_WORDS]
    if not short:
        expected = f"1 to {MAX_TRAINING_WORDS} words a side"
        raise ValueError(f"none of the {len(pairs)} pairs of `sources` and `targets` has {expected}")
    return WordAligner().fit(short, progress)
