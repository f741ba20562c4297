"""Calibrate the coverage of a model on translations with words dropped, as `capsule-mt calibrate` describes it."""

import random
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple, cast

import numpy as np

from capsule_mt.calibration.fitting import (
    Curve,
    fit_sentences,
    fit_threshold,
    fit_words,
    rank_auc,
    read_curve,
)
from capsule_mt.calibration.lengths import calibrated, fit_length
from capsule_mt.calibration.omissions import AMOUNTS, WithOmissions, drop_words, function_words
from capsule_mt.calibration.word_alignment import WordAligner, fit_aligner
from capsule_mt.coverage.completeness import completeness, gap_of
from capsule_mt.coverage.curves import evidence_of
from capsule_mt.coverage.methods import CALIBRATED_THRESHOLD, Calibration
from capsule_mt.coverage.names import CoveredBy
from capsule_mt.coverage.options import CoverageOptions
from capsule_mt.coverage.results import Coverage, Word
from capsule_mt.files.progress import Progress
from capsule_mt.files.reading import read_lines, read_parallel
from capsule_mt.text.lengths import ExpectedLength
from capsule_mt.text.words import is_mark
from capsule_mt.translator import Translator

# "verified" needs the head that is chosen for "attention", and adds to the optional words that it finds
METHODS: tuple[CoveredBy, ...] = ("attention", "verified", "guided", "deletion")
CHECKED_SHARE = 0.3  # of the sentences are for the check
HEAD_EXAMPLES = 200  # tell the heads apart
SMALLEST_AREA = 0.85  # under the ROC curve, with which a head is of use
# words seen so often in whole references, and probably missing in more than this share of them, are optional
SMALLEST_COUNT, OPTIONAL_SHARE, OPTIONAL_SHARE_OF_FUNCTION_WORDS = 10, 0.25, 0.1
MORE_REFERENCES = 6000  # of the aligner's further text, which tell the words that "verified" need not find
SHORTNESS_WEIGHTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)  # of what is short in `completeness`
MOST_OWN = 10_000  # lines that are translated where there are no references: they are what the aligner learns from
WINDOW = 128


class Examples(NamedTuple):
    """The four variants of each sentence to fit, of each to check, more whole references, and the function words.

    text: all sources and references. more: some references of further text. length: of translations, by all text, as
    a calibration keeps it. are_own: whether the references are the model's own translations.
    """

    fitted: list[WithOmissions]
    checked: list[WithOmissions]
    whole: list[WithOmissions]
    function_words: list[str]
    text: list[tuple[str, str]]
    more: list[WithOmissions]
    aligner: WordAligner
    length: dict[str, Any]
    are_own: bool = False


def own_translations(translator: Translator, sources: Sequence[str]) -> list[str]:
    """Translate each line as one sentence."""
    found: list[str] = []
    with Progress(len(sources), "lines translated") as line:
        for first in range(0, len(sources), WINDOW):
            part = list(sources[first : first + WINDOW])
            translated = translator(part, batch_size=32, scores=False, split_sentences=False, truncation=True)
            found += [one.text for one in translated]
            line.update(len(part))
    return found


def examples_of(
    translator: Translator, source: Path, target: Path | None, more: Sequence[Path] | None, num_sentences: int
) -> Examples:
    """Drop words from sentences of a parallel text; the aligner also learns from `more` of it.

    Without a `target`, the references are the model's own translations of the first lines of the text.
    """
    if target is None:
        sources = read_lines(source)[:MOST_OWN]
        targets = own_translations(translator, sources)
    else:
        sources, targets = read_parallel([source, target])
    aligner = fit_aligner(sources, targets, more=more, progress=lambda step: print(f"Aligner: {step}"))
    every = list(zip(sources, targets, strict=True))
    frequent = function_words(sources, more=more)
    chosen = random.Random(1).sample(range(len(sources)), min(2 * num_sentences, len(sources)))
    sources, targets = [sources[n] for n in chosen], [targets[n] for n in chosen]
    found = drop_words(sources, targets, aligner.align_lines(sources, targets), frequent=frequent)
    by_sentence = [found[start : start + len(AMOUNTS)] for start in range(0, len(found), len(AMOUNTS))]
    if len(by_sentence) < 10:
        raise ValueError(
            f"{source}: {len(by_sentence)} sentences have three content words that the aligner links; "
            "calibration needs at least 10. Give it more text, `--align-with` too"
        )
    by_sentence = by_sentence[:num_sentences]
    num_checked = int(CHECKED_SHARE * len(by_sentence))
    checked = [example for sentence in by_sentence[:num_checked] for example in sentence]
    fitted = [example for sentence in by_sentence[num_checked:] for example in sentence]
    held_out = {example.source for example in checked}
    whole = [WithOmissions(source, target, {}, 0) for source, target in every if source not in held_out]
    further = [] if more is None else list(zip(*read_parallel(more), strict=True))
    some = random.Random(1).sample(further, min(MORE_REFERENCES, len(further)))
    references = [WithOmissions(source, target, {}, 0) for source, target in some]
    learnt = [pair for pair in [*every, *further] if pair[0] not in held_out]
    all_sources, all_targets = map(list, zip(*learnt, strict=True))
    length = calibrated(fit_length(all_sources, all_targets), all_sources)
    words = sorted(map(str.casefold, frequent))
    return Examples(fitted, checked, whole, words, every, references, aligner, length, are_own=target is None)


def coverage_of_examples(
    translator: Translator,
    examples: Sequence[WithOmissions],
    method: CoveredBy,
    *,
    progress: bool = True,
    **options: Any,
) -> list[Coverage]:
    found: list[Coverage] = []
    with Progress(len(examples), f"sentences: coverage by {method}", shown=None if progress else False) as line:
        for first in range(0, len(examples), WINDOW):
            part = examples[first : first + WINDOW]
            sides = ([getattr(example, side) for example in part] for side in ("source", "translation"))
            found += translator.cover(*sides, coverage=CoverageOptions(method=method, **options))
            line.update(len(part))
    return found


def _labelled(examples: list[WithOmissions], coverages: list[Coverage]) -> list[tuple[Word, bool]]:
    """Return the content words of all examples, each with whether it is translated."""
    pairs = zip(examples, coverages, strict=True)
    return [pair for example, coverage in pairs for pair in example.labelled(coverage.words)]


class NoHeadError(ValueError):
    """No head of a model aligns words well enough to tell which are missing."""


def choose_head(translator: Translator, examples: list[WithOmissions]) -> list[int]:
    """Return the layer and the head of the decoder whose attention tells the missing words best.

    Raises:
        NoHeadError: no head tells them well enough.
    """
    before, best = translator.loaded.calibration, (-1.0, [0, 0])
    layers, heads = translator.loaded.head_shape
    places = [(layer, head) for layer in range(layers) for head in range(heads)]
    with Progress(len(places), "heads") as line:
        for place in places:
            translator.set_calibration({"attention": {"head": list(place)}})
            coverages = coverage_of_examples(translator, examples, "attention", progress=False)
            pairs = [(word.covered, is_translated) for word, is_translated in _labelled(examples, coverages)]
            received, is_translated = map(np.array, zip(*pairs, strict=True))
            best = max(best, (rank_auc(received, is_translated), list(place)))
            line.update(1)
    translator.set_calibration(before)
    area, (layer, head) = best
    if area < SMALLEST_AREA:
        raise NoHeadError(
            f"attention: no head of the decoder tells missing words; the area under the ROC curve of the best is "
            f"{area:.2f}, less than {SMALLEST_AREA}"
        )
    print(f"attention: layer {layer}, head {head}, with an area under the ROC curve of {area:.3f}")
    return [layer, head]


def optional_words(coverages: list[Coverage], curve: Curve, function: Container[str]) -> list[str]:
    """Return the words that by this curve are often missing in whole references, case-folded."""
    words = [word for coverage in coverages for word in coverage.words if word.covered > 0 and not is_mark(word.text)]
    probabilities = read_curve(curve, _evidence(words))
    seen = Counter(word.text.casefold() for word in words)
    missing = Counter(
        word.text.casefold()
        for word, probability in zip(words, probabilities, strict=True)
        if probability < CALIBRATED_THRESHOLD
    )
    of_enough = {word: n for word, n in seen.items() if n >= SMALLEST_COUNT}
    shares = {word: OPTIONAL_SHARE_OF_FUNCTION_WORDS if word in function else OPTIONAL_SHARE for word in of_enough}
    return sorted(word for word, n in of_enough.items() if missing[word] > shares[word] * n)


def calibrate(translator: Translator, examples: Examples, method: CoveredBy) -> None:
    """Fit both curves and the threshold of a method, and add them to the calibration of the translator.

    Without `optional_words` in it, they are those that this method misses in whole references.
    """
    others = dict(translator.loaded.calibration)
    others.pop(method, None)
    translator.set_calibration(others)  # measure without the old curves
    head = {}
    if method == "attention":
        head = {"head": choose_head(translator, examples.fitted[:HEAD_EXAMPLES])}
        translator.set_calibration(others | {method: head})
    coverages = coverage_of_examples(translator, examples.fitted, method)
    pairs = _labelled(examples.fitted, coverages)
    # an unknown word is missing, whatever became of it
    known = [pair for pair in pairs if pair[0].covered > 0]
    if "optional_words" not in others:
        others["function_words"] = examples.function_words
        of_whole = coverage_of_examples(translator, examples.whole, method)
        others["optional_words"] = optional_words(of_whole, _fit_words(known), examples.function_words)
        print(f"optional words: {', '.join(others['optional_words']) or 'none'}")
    if method == "verified":
        others["length"] = examples.length
        translator.set_calibration(others)
        of_references = coverage_of_examples(translator, [*examples.whole, *examples.more], method, marks="all")
        further = often_marked([word for coverage in of_references for word in coverage.words])
        others["optional_words"] = sorted({*others["optional_words"], *further})
        print(f"optional words: also {', '.join(further) or 'none'}")
    translator.set_calibration(others)
    lists = Calibration.of_config(others).lists
    known = [pair for pair in known if pair[0].text.casefold() not in lists.optional]
    words = _fit_words(known)
    probabilities = read_curve(words, _evidence([word for word, _ in known]))
    threshold = fit_threshold(probabilities.tolist(), [is_translated for _, is_translated in known])
    means, most = [], []
    for coverage in coverages:
        found = [
            word for word in coverage.words if not is_mark(word.text) and word.text.casefold() not in lists.optional
        ]
        probabilities = read_curve(words, _evidence(found)) * [word.covered > 0 for word in found]
        is_function = np.array([word.text.casefold() in lists.function for word in found], dtype=bool)
        marked, values = probabilities < threshold, probabilities
        if method == "verified":
            marked = np.array([word.marked for word in found], dtype=bool)
            values = np.array([word.covered for word in found], dtype=float)
        counted = marked | ~is_function
        means.append(float(values[counted].mean()) if counted.any() else 1.0)
        most.append(float(1 - marked[counted].mean()) if counted.any() and method != "verified" else 1.0)
    shares = [example.translated_share for example in examples.fitted]
    amounts = [example.amount for example in examples.fitted]
    candidates = _complete(translator, examples.fitted, means) if method == "verified" else {0.0: means}
    weight, sentences = fit_sentences(candidates, shares, amounts, most)
    fitted = {**head, "words": words, "sentences": sentences}
    if method == "verified":
        fitted |= {"shortness": weight, "reverse": Path(cast(Any, translator.reverse)._folder).name}
    else:
        fitted["threshold"] = threshold
    translator.set_calibration(others | {method: fitted})


def _complete(
    translator: Translator, examples: list[WithOmissions], means: Sequence[float]
) -> dict[float, list[float]]:
    """Return how complete each example is by `completeness`, for each weight of what is short."""
    fitted, calibration = dict(translator.loaded.calibration), translator.calibration
    translator.set_calibration(fitted | {"attention": {"head": fitted["attention"]["head"]}})  # as it is received
    received = coverage_of_examples(translator, examples, "attention")
    translator.set_calibration(fitted)
    length, optional = calibration.length or ExpectedLength(), calibration.lists.optional
    short = [length.shortness(one.source, one.translation) for one in examples]
    gaps = [
        gap_of([word.covered for word in one.words if not is_mark(word.text) and word.text.casefold() not in optional])
        for one in received
    ]
    rows = list(zip(means, short, gaps, strict=True))
    return {weight: [completeness(*row, weight) for row in rows] for weight in SHORTNESS_WEIGHTS}


def _fit_words(pairs: list[tuple[Word, bool]]) -> Curve:
    return fit_words(_evidence([word for word, _ in pairs]), [is_translated for _, is_translated in pairs])


def _evidence(words: Sequence[Word]) -> list[float]:
    return [evidence_of(word.covered) for word in words]


def check(translator: Translator, examples: list[WithOmissions], method: CoveredBy) -> None:
    """Print how coverage fits sentences that calibration has not seen."""
    coverages = coverage_of_examples(translator, examples, method)
    print(f"\n{method}, on {len(examples) // len(AMOUNTS)} other sentences:")
    print("words dropped  share of content words translated  mean score")
    for amount in AMOUNTS:
        rows = [(e, c) for e, c in zip(examples, coverages, strict=True) if e.amount == amount]
        truth = mean(example.translated_share for example, _ in rows)
        dropped = str(amount) if isinstance(amount, int) else f"{amount:.0%}"
        print(f"{dropped:<13}  {truth:<33.2f}  {mean(coverage.score for _, coverage in rows):.2f}")
    pairs = _labelled(examples, coverages)
    marked = [is_translated for word, is_translated in pairs if word.marked]
    num_missing = sum(not is_translated for _, is_translated in pairs)
    hits = len(marked) - sum(marked)
    print(f"marked words: precision {hits / max(len(marked), 1):.2f}, recall {hits / max(num_missing, 1):.2f}")


def often_marked(words: Iterable[Any]) -> list[str]:
    """Return the words of references that are marked too often, case-folded: nothing is wrong with them."""
    seen, marked = Counter[str](), Counter[str]()
    for word in words:
        seen[word.text.casefold()] += 1
        marked[word.text.casefold()] += word.marked
    return sorted(word for word, n in seen.items() if n >= SMALLEST_COUNT and marked[word] > OPTIONAL_SHARE * n)


def methods_of(translator: Translator) -> list[CoveredBy]:
    """Return the methods that a model has, once it is calibrated."""
    loaded = translator.loaded
    has_head = loaded.head_shape != (0, 0)
    has = {
        "attention": has_head,
        "verified": has_head and translator.has_reverse,
        "guided": loaded.follows_past_and_future,
        "deletion": True,
    }
    return [method for method in METHODS if has[method]]
