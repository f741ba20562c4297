"""Calibrate the coverage of a model on translations with dropped words: what `capsule-mt calibrate` runs."""

import random
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple, cast

import numpy as np

from capsule_mt.coverage.calibration.fitting import (
    Curve,
    fit_sentences,
    fit_threshold,
    fit_words,
    rank_auc,
    read_curve,
)
from capsule_mt.coverage.calibration.lengths import calibrated, fit_length
from capsule_mt.coverage.calibration.omissions import AMOUNTS, WithOmissions, drop_words, function_words
from capsule_mt.coverage.calibration.word_alignment import fit_aligner
from capsule_mt.coverage.completeness import completeness, gap_of
from capsule_mt.coverage.curves import evidence_of
from capsule_mt.coverage.lengths import ExpectedLength
from capsule_mt.coverage.methods import Calibration
from capsule_mt.coverage.names import CoveredBy
from capsule_mt.coverage.options import CoverageOptions
from capsule_mt.coverage.piece_coverage import CALIBRATED_THRESHOLD
from capsule_mt.coverage.results import Coverage, Word
from capsule_mt.files.progress import Progress
from capsule_mt.files.reading import read_lines, read_parallel
from capsule_mt.text.words import is_mark
from capsule_mt.translate.results import Translation
from capsule_mt.translate.translator import Translator

# in this order: "verified" reads the head chosen for "attention", and extends its optional words
METHODS: tuple[CoveredBy, ...] = ("attention", "verified", "deletion")
CHECKED_SHARE = 0.3  # of the sentences are held out for `check`
HEAD_EXAMPLES = 200  # rank the heads
MIN_AREA = 0.85  # under the ROC curve; a head below it is not usable
# a word is optional if complete references have it at least this often, and it looks missing in more than this share
MIN_COUNT, OPTIONAL_SHARE, OPTIONAL_SHARE_OF_FUNCTION_WORDS = 10, 0.25, 0.1
EXTRA_REFERENCES = 6000  # from the aligner's extra text, to tell which words "verified" need not find
SHORTNESS_WEIGHTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)  # candidates for the weight of shortness in `completeness`
MAX_LINES_TRANSLATED = 10_000  # without references, the aligner learns from the model's translations of these
WINDOW = 128


class Examples(NamedTuple):
    """What calibration fits and checks on.

    fitted, checked: four variants of each sentence, with 0, 1, 2 and half of the content words dropped.
    complete: references without omissions, outside `checked`.
    function_words: case-folded.
    text: all sources with their references.
    extra: a sample of the aligner's extra text, also without omissions.
    length: the expected length of translations, fitted on all text outside `checked`, in a calibration's form.
    are_own: whether the references are the model's own translations.
    """

    fitted: list[WithOmissions]
    checked: list[WithOmissions]
    complete: list[WithOmissions]
    function_words: list[str]
    text: list[tuple[str, str]]
    extra: list[WithOmissions]
    length: dict[str, Any]
    are_own: bool = False


def windows(count: int, unit: str, *, shown: bool | None = None) -> Iterator[slice]:
    """Yield slices of up to `WINDOW` items, with a line of progress; `unit` and `shown` are those of `Progress`."""
    with Progress(count, unit, shown=shown) as progress:
        for first in range(0, count, WINDOW):
            window = slice(first, min(first + WINDOW, count))
            yield window
            progress.update(window.stop - first)


def translate_lines(translator: Translator, sources: Sequence[str], **options: Any) -> list[Translation]:
    """Translate each line as one sentence, with a line of progress; `options` are more options of the search."""
    translations: list[Translation] = []
    for window in windows(len(sources), "lines translated"):
        translations += translator(
            list(sources[window]), batch_size=32, scores=False, split_sentences=False, truncation=True, **options
        )
    return translations


def own_translations(translator: Translator, sources: Sequence[str]) -> list[str]:
    """Return the model's translation of each line as one sentence."""
    return [translation.text for translation in translate_lines(translator, sources)]


def examples_of(
    translator: Translator, source: Path, target: Path | None, extra_files: Sequence[Path] | None, num_sentences: int
) -> Examples:
    """Drop words from the references of a parallel text; the aligner also learns from `extra_files`, one a side.

    Without a `target`, the references are the model's own translations of the first lines of the text.
    """
    if target is None:
        sources = read_lines(source)[:MAX_LINES_TRANSLATED]
        targets = own_translations(translator, sources)
    else:
        sources, targets = read_parallel([source, target])
    aligner = fit_aligner(sources, targets, extra_files=extra_files, progress=lambda step: print(f"Aligner: {step}"))
    text = list(zip(sources, targets, strict=True))
    frequent = function_words(sources, extra_files=extra_files)
    chosen = random.Random(1).sample(range(len(sources)), min(2 * num_sentences, len(sources)))
    sources, targets = [sources[index] for index in chosen], [targets[index] for index in chosen]
    variants = drop_words(sources, targets, aligner.align_lines(sources, targets), frequent=frequent)
    by_sentence = [variants[start : start + len(AMOUNTS)] for start in range(0, len(variants), len(AMOUNTS))]
    by_sentence = list({sentence[0].source: sentence for sentence in by_sentence}.values())  # once, to be held out
    if len(by_sentence) < 10:
        raise ValueError(
            f"{source}: {len(by_sentence)} different sentences have three content words that the aligner links; "
            "calibration needs at least 10. Give it more text, also by `--align-with`"
        )
    by_sentence = by_sentence[:num_sentences]
    num_checked = int(CHECKED_SHARE * len(by_sentence))
    checked = [example for sentence in by_sentence[:num_checked] for example in sentence]
    fitted = [example for sentence in by_sentence[num_checked:] for example in sentence]
    held_out = {example.source for example in checked}
    complete = [WithOmissions(source, target, {}, 0) for source, target in text if source not in held_out]
    extra_text = [] if extra_files is None else list(zip(*read_parallel(extra_files), strict=True))
    sample = random.Random(1).sample(extra_text, min(EXTRA_REFERENCES, len(extra_text)))
    extra = [WithOmissions(source, target, {}, 0) for source, target in sample]
    training_text = [pair for pair in [*text, *extra_text] if pair[0] not in held_out]
    training_sources, training_targets = map(list, zip(*training_text, strict=True))
    length = calibrated(fit_length(training_sources, training_targets), training_sources)
    words = sorted(map(str.casefold, frequent))
    return Examples(fitted, checked, complete, words, text, extra, length, are_own=target is None)


def coverage_of_examples(
    translator: Translator,
    examples: Sequence[WithOmissions],
    method: CoveredBy,
    *,
    progress: bool = True,
    **options: Any,
) -> list[Coverage]:
    """Score the translation of each example; `options` are fields of `CoverageOptions`."""
    coverages: list[Coverage] = []
    for window in windows(len(examples), f"sentences: coverage by {method}", shown=None if progress else False):
        sides = ([getattr(example, side) for example in examples[window]] for side in ("source", "translation"))
        coverages += translator.cover(*sides, coverage=CoverageOptions(method=method, **options))
    return coverages


def _labelled_words(examples: list[WithOmissions], coverages: list[Coverage]) -> list[tuple[Word, bool]]:
    """Return the content words of all examples, each with whether it is translated."""
    pairs = zip(examples, coverages, strict=True)
    return [pair for example, coverage in pairs for pair in example.labelled(coverage.words)]


class NoHeadError(ValueError):
    """No attention head aligns words well enough to show which are missing."""


def choose_head(translator: Translator, examples: list[WithOmissions]) -> list[int]:
    """Return the layer and head of the decoder whose attention separates missing from translated words best.

    Raises:
        NoHeadError: the area under the ROC curve of the best head is below `MIN_AREA`.
    """
    original_calibration, best = translator.loaded.calibration, (-1.0, [0, 0])
    num_layers, num_heads = translator.loaded.head_shape
    heads = [[layer, head] for layer in range(num_layers) for head in range(num_heads)]
    with Progress(len(heads), "heads") as line:
        for head in heads:
            translator.set_calibration({"attention": {"head": head}})
            coverages = coverage_of_examples(translator, examples, "attention", progress=False)
            pairs = [(word.covered, is_translated) for word, is_translated in _labelled_words(examples, coverages)]
            received, is_translated = map(np.array, zip(*pairs, strict=True))
            best = max(best, (rank_auc(received, is_translated), head))
            line.update(1)
    translator.set_calibration(original_calibration)
    area, head = best
    if area < MIN_AREA:
        raise NoHeadError(
            f"attention: the decoder has no head that shows missing words; the best has an area under the ROC curve "
            f"of {area:.2f}, less than {MIN_AREA}"
        )
    print(f"attention: layer {head[0]}, head {head[1]}, with an area under the ROC curve of {area:.3f}")
    return head


def optional_words(coverages: list[Coverage], curve: Curve, function_words: Container[str]) -> list[str]:
    """Return the case-folded words that, by this curve, complete references often leave untranslated."""
    words = [word for coverage in coverages for word in coverage.words if word.covered > 0 and not is_mark(word.text)]
    probabilities = read_curve(curve, _evidence(words))
    counts = Counter(word.text.casefold() for word in words)
    missing = Counter(
        word.text.casefold()
        for word, probability in zip(words, probabilities, strict=True)
        if probability < CALIBRATED_THRESHOLD
    )
    frequent = {word: count for word, count in counts.items() if count >= MIN_COUNT}
    shares = {
        word: OPTIONAL_SHARE_OF_FUNCTION_WORDS if word in function_words else OPTIONAL_SHARE for word in frequent
    }
    return sorted(word for word, count in frequent.items() if missing[word] > shares[word] * count)


def calibrate(translator: Translator, examples: Examples, method: CoveredBy) -> None:
    """Fit both curves of a method, and its threshold or length weight, and add them to the translator's calibration.

    If the calibration lacks `optional_words`, take the words that this method misses in complete references;
    "verified" adds those that it often marks there.
    """
    calibration = dict(translator.loaded.calibration)
    calibration.pop(method, None)
    translator.set_calibration(calibration)  # measure without the old curves
    head = {}
    if method == "attention":
        head = {"head": choose_head(translator, examples.fitted[:HEAD_EXAMPLES])}
        translator.set_calibration(calibration | {method: head})
    coverages = coverage_of_examples(translator, examples.fitted, method)
    pairs = _labelled_words(examples.fitted, coverages)
    # a word without any evidence, such as an unknown one, is marked by rule; it would bend the curve
    labelled_words = [pair for pair in pairs if pair[0].covered > 0]
    if "optional_words" not in calibration:
        calibration["function_words"] = examples.function_words
        complete = coverage_of_examples(translator, examples.complete, method)
        words_curve = _fit_words(labelled_words)
        calibration["optional_words"] = optional_words(complete, words_curve, examples.function_words)
        print(f"optional words: {', '.join(calibration['optional_words']) or 'none'}")
    if method == "verified":
        calibration["length"] = examples.length
        translator.set_calibration(calibration)
        complete = coverage_of_examples(translator, [*examples.complete, *examples.extra], method, marks="all")
        often = often_marked([word for coverage in complete for word in coverage.words])
        calibration["optional_words"] = sorted({*calibration["optional_words"], *often})
        print(f"optional words: also {', '.join(often) or 'none'}")
    translator.set_calibration(calibration)
    lists = Calibration.of_config(calibration).lists
    labelled_words = [pair for pair in labelled_words if pair[0].text.casefold() not in lists.optional]
    curve = _fit_words(labelled_words)
    probabilities = read_curve(curve, _evidence([word for word, _ in labelled_words]))
    threshold = fit_threshold(probabilities.tolist(), [is_translated for _, is_translated in labelled_words])
    # per sentence: the mean of its words, and a bound that its marks put on its score
    means, bounds = [], []
    for coverage in coverages:
        words = [
            word for word in coverage.words if not is_mark(word.text) and word.text.casefold() not in lists.optional
        ]
        probabilities = read_curve(curve, _evidence(words)) * [word.covered > 0 for word in words]
        is_function = np.array([word.text.casefold() in lists.function for word in words], dtype=bool)
        marked, values = probabilities < threshold, probabilities
        if method == "verified":  # its words are probabilities already, and it marks them itself
            marked = np.array([word.marked for word in words], dtype=bool)
            values = np.array([word.covered for word in words], dtype=float)
        counted = marked | ~is_function
        means.append(float(values[counted].mean()) if counted.any() else 1.0)
        bounds.append(float(1 - marked[counted].mean()) if counted.any() and method != "verified" else 1.0)
    shares = [example.translated_share for example in examples.fitted]
    amounts = [example.amount for example in examples.fitted]
    candidates = _completeness_by_weight(translator, examples.fitted, means) if method == "verified" else {0.0: means}
    weight, sentences_curve = fit_sentences(candidates, shares, amounts, bounds)
    fitted = {**head, "words": curve, "sentences": sentences_curve}
    if method == "verified":
        fitted |= {"shortness": weight, "reverse": Path(cast(Any, translator.reverse).translator_model.folder).name}
    else:
        fitted["threshold"] = threshold
    translator.set_calibration(calibration | {method: fitted})


def _completeness_by_weight(
    translator: Translator, examples: list[WithOmissions], means: Sequence[float]
) -> dict[float, list[float]]:
    """Return the `completeness` of each example for each of `SHORTNESS_WEIGHTS`."""
    fitted, calibration = dict(translator.loaded.calibration), translator.calibration
    # without the curves of "attention", words carry the received attention itself, which `gap_of` reads
    translator.set_calibration(fitted | {"attention": {"head": fitted["attention"]["head"]}})
    received = coverage_of_examples(translator, examples, "attention")
    translator.set_calibration(fitted)
    length, optional = calibration.length or ExpectedLength(), calibration.lists.optional
    shortness = [length.shortness(example.source, example.translation) for example in examples]
    gaps = [
        gap_of(
            [
                word.covered
                for word in coverage.words
                if not is_mark(word.text) and word.text.casefold() not in optional
            ]
        )
        for coverage in received
    ]
    rows = list(zip(means, shortness, gaps, strict=True))
    return {weight: [completeness(*row, weight) for row in rows] for weight in SHORTNESS_WEIGHTS}


def _fit_words(pairs: list[tuple[Word, bool]]) -> Curve:
    return fit_words(_evidence([word for word, _ in pairs]), [is_translated for _, is_translated in pairs])


def _evidence(words: Sequence[Word]) -> list[float]:
    return [evidence_of(word.covered) for word in words]


def check(translator: Translator, examples: list[WithOmissions], method: CoveredBy) -> None:
    """Print how well coverage finds the dropped words of held-out sentences."""
    coverages = coverage_of_examples(translator, examples, method)
    print(f"\n{method}, on {len(examples) // len(AMOUNTS)} held-out sentences:")
    print("words dropped  share of content words translated  mean score")
    for amount in AMOUNTS:
        rows = [row for row in zip(examples, coverages, strict=True) if row[0].amount == amount]
        truth = mean(example.translated_share for example, _ in rows)
        dropped = str(amount) if isinstance(amount, int) else f"{amount:.0%}"
        print(f"{dropped:<13}  {truth:<33.2f}  {mean(coverage.score for _, coverage in rows):.2f}")
    pairs = _labelled_words(examples, coverages)
    marked = [is_translated for word, is_translated in pairs if word.marked]
    num_missing = sum(not is_translated for _, is_translated in pairs)
    hits = len(marked) - sum(marked)
    print(f"marked words: precision {hits / max(len(marked), 1):.2f}, recall {hits / max(num_missing, 1):.2f}")


def often_marked(words: Iterable[Any]) -> list[str]:
    """Return the case-folded words of complete references that are often marked, which must be false alarms."""
    counts, marks = Counter[str](), Counter[str]()
    for word in words:
        counts[word.text.casefold()] += 1
        marks[word.text.casefold()] += word.marked
    return sorted(
        word for word, count in counts.items() if count >= MIN_COUNT and marks[word] > OPTIONAL_SHARE * count
    )


def methods_of(translator: Translator) -> list[CoveredBy]:
    """Return the methods that can be calibrated for a model."""
    loaded = translator.loaded
    has_head = loaded.head_shape != (0, 0)
    is_available = {
        "attention": has_head,
        "verified": has_head and translator.has_reverse,
        "deletion": True,
    }
    return [method for method in METHODS if is_available[method]]
