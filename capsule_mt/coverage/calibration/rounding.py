"""Round a model to few bits, and write it as a small checkpoint: `capsule-mt convert --to small`.

Matrices are rounded column by column. Later columns make up for the error of a column, as far as the inputs of the
matrix allow: GPTQ (Frantar et al. 2022, arXiv:2210.17323). Unlike in GPTQ, a matrix has one step (a table of tokens
has one for each block of rows), and codes are not limited to four bits. An entropy coder then spends bits where they
are needed.

How fine the steps must be depends on the model. So the loss is measured, and steps become finer until it is small.
"""

import itertools
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from capsule_mt.conversions.to_int8 import write_checkpoint
from capsule_mt.coverage.calibration.calibrating import translate_lines, windows
from capsule_mt.engine.decoder import EngineDecoder
from capsule_mt.engine.engine import Engine
from capsule_mt.engine.library import widened
from capsule_mt.engine.program import Codes, Tensor
from capsule_mt.engine.search import Readings
from capsule_mt.files.progress import Progress
from capsule_mt.models.entropy_coding import LARGEST_CODE
from capsule_mt.models.loading import open_checkpoint
from capsule_mt.models.parts import Parts
from capsule_mt.models.registry import write_program
from capsule_mt.models.small_weights import write_small_weights
from capsule_mt.models.weights import Weights
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.plan import Plan
from capsule_mt.translate.translator import Translator

Array = npt.NDArray[np.float64]

LOGITS_BIAS = "final_logits_bias"
# The number of steps in a standard deviation of the weights, where steps are coarsest. Chosen with EXPONENT, FINER and
# TABLE_DAMPING among some twenty settings, so that two Firefox students lose little at 8.65 MB, by `Reference.loss` on
# half of FLORES and Tatoeba.
STEPS_PER_DEVIATION, TABLE_STEPS_PER_DEVIATION = 4.05, 3.45
# How much finer the steps of some matrices are, by a part of their name (the first one that matches): those that lose
# more for each byte than others. An SSRU's lost 10 times as much, the decoder's attention 4 times, the encoder's 1.5
# times.
FINER = {".forget_gate.": 3.0, ".input_map.": 3.0, ".encoder_attn.": 1.8, ".self_attn.": 1.25}
# A row of an embedding has a step in proportion to (token id + FIRST_TOKENS)^EXPONENT: frequent tokens have low ids,
# and what is read often is worth more bits.
EXPONENT, FIRST_TOKENS, TABLE_BLOCKS = 0.35, 100, 16
# Added to the diagonal of the covariance, as shares of its mean, so that rare inputs do not get too much weight.
# DAMPING is GPTQ's. A table has more: its rows are also embeddings, to which this covariance does not apply.
DAMPING, TABLE_DAMPING = 0.01, 1.0
BLOCK = 128  # columns, whose errors are fed back to all later columns at once
SMALLEST_STEP = 1e-30
FLUSHED_ROWS = 2048  # multiplied at once: the overhead of a product of few rows is larger than its arithmetic
# See `write_small`. On half of FLORES and Tatoeba, a nat a token costs these students some 25 BLEU: this is 0.15 BLEU
MAX_LOSS = 0.006
MAX_TRIES, MIN_REFINEMENT = 8, 1.05
LOSS_EXPONENT = 2.5  # the loss shrinks with this power of the fineness, by measurement; 2 for errors that only add up


class Moments(NamedTuple):
    """The mean [inputs] and the covariance [inputs, inputs] of what a matrix multiplies."""

    mean: Array
    covariance: Array


def write_small(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    sources: Sequence[str],
    *,
    max_loss: float = MAX_LOSS,
    **settings: Any,
) -> float:
    """Write the model in `folder` to the folder `out` as a small checkpoint; return its loss.

    Args:
        sources: sentences that the model translates, to see what its matrices multiply; some 500.
        max_loss: how much less probable rounding may make a token of these translations: the mean of log p, in nats.
            Steps become finer, and files larger, until the loss is no larger.
        settings: options of these translations, such as `src_lang` and `tgt_lang`.

    Raises:
        ValueError: the loss is larger after eight tries, or the model translates none of the sentences.
        UnsupportedModelError: a model that the engine does not support, or a feature of Marian that Capsule Marian
            lacks.
        CheckpointError: a damaged file, or files that do not fit together.
    """
    moments = input_moments(folder, sources, **settings)
    reference = Reference(folder, sources, **settings)
    checkpoint = open_checkpoint(os.fspath(folder))
    _, parts = write_program(checkpoint.config, checkpoint.weights, checkpoint.origin)
    fineness = 1.0
    for _ in range(MAX_TRIES):
        matrices = rounded_matrices(checkpoint.weights, parts, moments, fineness)
        loss = reference.loss(RoundedWeights(checkpoint.weights, parts, matrices, moments))
        if loss <= max_loss:
            break
        fineness *= max(MIN_REFINEMENT, (loss / max_loss) ** (1 / LOSS_EXPONENT))
    else:
        raise ValueError(
            f"the loss must be at most {max_loss:g} nats a token, but it is {loss:.4f} after {MAX_TRIES} tries: allow "
            f"a larger one, or convert {os.fspath(folder)} to int8"
        )

    def write_weights(target: str | os.PathLike[str], weights: Weights, parts: Parts) -> None:
        write_small_weights(target, RoundedWeights(weights, parts, matrices, moments), parts)

    write_checkpoint(folder, out, write_weights)
    return loss


class Reference:
    """A model's own translations in int8, whose log-probabilities tell what rounding costs.

    For this, log-probabilities take a few hundred sentences. BLEU takes thousands, since it changes with every choice
    of words.
    """

    def __init__(self, folder: str | os.PathLike[str], sources: Sequence[str], **settings: Any) -> None:
        self._checkpoint = open_checkpoint(os.fspath(folder))
        translator = Translator.from_pretrained(folder, int8=True)
        translations = translate_lines(translator, sources, num_beams=1, **settings)
        segments = [segment for translation in translations for segment in translation.segments]
        if not segments:
            raise ValueError(
                f"the model in {os.fspath(folder)} translates none of the {len(sources)} sentences: are they of its "
                "source language?"
            )
        self._sources = [segment.source_ids for segment in segments]
        self._targets = [segment.target_ids[1:] for segment in segments]  # without the start token
        self._model = translator.loaded
        self._log_prob = self._mean_log_prob(cast(EngineDecoder, self._model.decoder))

    def loss(self, weights: Weights) -> float:
        """Return by how much the mean log-probability of a token falls with other weights of the model, in int8."""
        program, _ = write_program(self._checkpoint.config, weights, self._checkpoint.origin)
        special = {"start": self._model.start, "end": self._model.end, "pad": self._model.pad}
        return self._log_prob - self._mean_log_prob(EngineDecoder(Engine(program, int8=True), **special))

    def _mean_log_prob(self, decoder: EngineDecoder) -> float:
        log_probs: list[Any] = []
        for window in windows(len(self._sources), "translations scored"):
            forced = decoder.force(self._sources[window], self._targets[window], Readings())
            log_probs += [scores.log_probs for scores in forced]
        return float(np.mean(np.concatenate(log_probs)))


class SearchingOnce(Translator):
    """A translator that does not search again for a fault: that search would be observed, too."""

    def plan(self, options: TranslationOptions) -> Plan:
        return super().plan(options)._replace(repairs_faults=False)


class Observations:
    """Sums over the inputs of some linear maps of an engine.

    Args:
        widths: the number of inputs of each map, by its index.
    """

    def __init__(self, widths: dict[int, int]) -> None:
        self._widths = widths
        self._counts = dict.fromkeys(widths, 0)
        self._sums = {index: np.zeros(width) for index, width in widths.items()}
        self._products = {index: np.zeros((width, width)) for index, width in widths.items()}
        self._rows: dict[int, list[npt.NDArray[np.float32]]] = {index: [] for index in widths}
        self._lock = threading.Lock()  # each thread of the engine observes

    def observe(self, index: int, inputs: Any, count: int) -> None:
        """Take `count` rows at a pointer: see `Engine.observe`."""
        if index not in self._widths:
            return
        with self._lock:
            self._rows[index].append(np.ctypeslib.as_array(inputs, shape=(count, self._widths[index])).copy())
            if sum(map(len, self._rows[index])) >= FLUSHED_ROWS:
                self._flush(index)

    def _flush(self, index: int) -> None:
        rows = np.concatenate(self._rows[index])
        self._rows[index].clear()
        self._counts[index] += len(rows)
        self._sums[index] += rows.sum(0)
        self._products[index] += rows.T @ rows

    def moments(self, index: int) -> Moments:
        if self._rows[index]:
            self._flush(index)
        count = max(self._counts[index], 1)
        mean = self._sums[index] / count
        return Moments(mean, self._products[index] / count - np.outer(mean, mean))


def input_moments(folder: str | os.PathLike[str], sources: Sequence[str], **settings: Any) -> dict[str, Moments]:
    """Return the moments of the inputs of a model's matrices, by name, while it translates these sentences greedily.

    settings: more options of the search.
    """
    checkpoint = open_checkpoint(os.fspath(folder))
    program, parts = write_program(checkpoint.config, checkpoint.weights, checkpoint.origin)
    index_of = {linear: index for index, stacked in enumerate(program.linears) for linear in stacked}
    maps = {
        name: index_of[parts.maps[name]] for name in parts.rounded | parts.tables if parts.maps.get(name) in index_of
    }
    observations = Observations({index: program.linears[index][0].inputs for index in maps.values()})
    translator = SearchingOnce.from_pretrained(folder)
    engine = cast(EngineDecoder, translator.loaded.decoder).engine
    engine.num_threads = 1  # sums depend on their order: several threads would write another file each time
    engine.observe(observations.observe)
    translate_lines(translator, sources, num_beams=1, **settings)
    return {name: observations.moments(index) for name, index in maps.items()}


def rounded_matrices(
    weights: Weights, parts: Parts, moments: Mapping[str, Moments], fineness: float = 1.0
) -> dict[str, Codes]:
    """Return the matrices of a model rounded to few bits, by name, with steps `fineness` times as fine as usual."""
    matrices: dict[str, Codes] = {}
    names = sorted(moments.keys() | parts.tables)
    with Progress(len(names), "matrices rounded") as progress:
        for name in names:
            matrices[name] = _rounded_matrix(name, _numbers(weights.read(name)), parts, moments.get(name), fineness)
            progress.update(1)
    return matrices


def _rounded_matrix(name: str, weight: Array, parts: Parts, moments: Moments | None, fineness: float) -> Codes:
    if name in parts.tables:
        steps, damping = table_steps(weight, fineness), TABLE_DAMPING
    else:
        finer = next((factor for part, factor in FINER.items() if part in name), 1.0)
        step = _step(weight, weight.std() / (STEPS_PER_DEVIATION * fineness * finer))
        steps, damping = np.full(len(weight), step), DAMPING
    codes = (
        np.rint(weight / steps[:, None])
        if moments is None
        else rounded_with_feedback(weight, moments.covariance, steps, damping)
    )
    content, magnitudes = codes.astype(np.int8).tobytes(), (LARGEST_CODE * steps).astype(np.float32).tobytes()
    return Codes(Tensor(content, "I8", weight.shape), Tensor(magnitudes, "F32", weight.shape[:1]))


class RoundedWeights:
    """The weights of a model, with matrices rounded to few bits and its vectors in half precision.

    The bias of a matrix makes up for the change that rounding makes to the mean of its outputs.
    """

    def __init__(
        self, weights: Weights, parts: Parts, matrices: Mapping[str, Codes], moments: Mapping[str, Moments]
    ) -> None:
        self._weights, self._matrices, self._moments = weights, matrices, moments
        biases = {name: f"{name.removesuffix('.weight')}.bias" for name in moments.keys() - parts.tables}
        biases |= dict.fromkeys(moments.keys() & parts.tables, LOGITS_BIAS)
        self._matrix_of_bias = {bias: name for name, bias in biases.items() if bias in weights}

    def __contains__(self, name: object) -> bool:
        return name in self._weights

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._weights.shape(name)

    def problem(self, name: str, message: str) -> ValueError:
        return self._weights.problem(name, message)

    def read(self, name: str) -> Tensor | Codes:
        if name in self._matrices:
            return self._matrices[name]
        values = self._weights.read(name)
        if name in self._matrix_of_bias:
            matrix = self._matrix_of_bias[name]
            added = _numbers(self._matrices[matrix]) - _numbers(self._weights.read(matrix))
            bias = _numbers(values)
            bias -= (added @ self._moments[matrix].mean).reshape(bias.shape)
            values = Tensor(bias.astype(np.float32).tobytes(), "F32", bias.shape)
        return _in_half(values)


def _numbers(values: Tensor | Codes) -> Array:
    wide = widened(values)
    return np.frombuffer(wide.buffer, np.float32).reshape(wide.shape).astype(np.float64)


def _in_half(values: Tensor | Codes) -> Tensor | Codes:
    """Return a vector in half precision, if that can hold its numbers; anything else as it is."""
    if isinstance(values, Codes) or max(values.shape, default=0) != values.size or values.dtype != "F32":
        return values
    with np.errstate(over="ignore"):
        halves = np.frombuffer(values.buffer, np.float32).astype(np.float16)
    return Tensor(halves.tobytes(), "F16", values.shape) if np.isfinite(halves).all() else values


def _step(weight: Array, step: float) -> float:
    """Return a step; if some code would exceed its range, return the smallest step for which none does."""
    return max(step, float(np.abs(weight).max(initial=0)) / LARGEST_CODE, SMALLEST_STEP)


def table_steps(weight: Array, fineness: float = 1.0) -> Array:
    """Return the step of each row of a table of tokens: the same one for the rows of a block."""
    rows = len(weight)
    sizes = np.power(np.arange(rows) + FIRST_TOKENS, EXPONENT, dtype=np.float64)
    sizes *= weight.std() / (TABLE_STEPS_PER_DEVIATION * fineness) / np.exp(np.log(sizes).mean())
    shares = np.arange(TABLE_BLOCKS + 1) / TABLE_BLOCKS
    # blocks of rows in a geometric progression of token id + FIRST_TOKENS
    edges = np.unique(np.rint(FIRST_TOKENS * ((1 + rows / FIRST_TOKENS) ** shares - 1)).astype(int))
    for first, end in itertools.pairwise(edges):
        sizes[first:end] = _step(weight[first:end], np.exp(np.log(sizes[first:end]).mean()))
    return sizes


def rounded_with_feedback(weight: Array, covariance: Array, steps: Array, damping: float = DAMPING) -> Array:
    """Return the codes of a matrix [outputs, inputs], rounded with error feedback: Frantar et al., algorithm 1.

    covariance: of its inputs [inputs, inputs]. steps: of each output.
    """
    width = len(covariance)
    damped = covariance + np.eye(width) * max(damping * np.diag(covariance).mean(), SMALLEST_STEP)
    order = np.argsort(-np.diag(damped), kind="stable")  # the strongest inputs first, while many can make up for them
    # the upper factor of the inverse: row j tells how later columns share the error of column j
    shares = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T
    columns, codes = weight.T[order].copy(), np.empty_like(weight.T)
    for first in range(0, width, BLOCK):
        end = min(first + BLOCK, width)
        errors = np.empty((end - first, len(weight)))
        for j in range(first, end):
            code = np.clip(np.rint(columns[j] / steps), -LARGEST_CODE, LARGEST_CODE)
            codes[order[j]] = code
            errors[j - first] = (columns[j] - code * steps) / shares[j, j]
            columns[j + 1 : end] -= np.outer(shares[j, j + 1 : end], errors[j - first])
        columns[end:] -= shares[first:end, end:].T @ errors
    return codes.T
