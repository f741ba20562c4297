"""Choose the score that is an alarm, and compare the marks that a reverse model verifies with an aligner's."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from capsule_mt.calibration.calibrating import Examples, coverage_of_examples, often_marked, own_translations
from capsule_mt.calibration.omissions import FEWEST_WORDS, WithOmissions, cut_out, omissions_of
from capsule_mt.coverage.names import MARKS
from capsule_mt.text.sentences import split_sentences
from capsule_mt.translator import Translator

# the share of its own translations that an alarm may flag, and what is cut out of them to see whether it is found
FLAGGED = 0.01
FEWEST_WHOLE = 100  # of its own translations, that an alarm is chosen by
LOSSES: dict[str, int | float] = {"three words": 3, "a quarter": 0.25, "a half": 0.5}


def measure(translator: Translator, examples: Examples) -> None:
    """Add to the calibration of "verified" its alarm, and the words that need no support.

    Where the references are not the model's own, a word aligner labels the model's translations. How many marks it
    agrees with is printed and not kept: see `Translator.precision`.
    """
    sources, references = map(list, zip(*examples.text, strict=True))
    found = dict(translator.loaded.calibration)
    own = references if examples.are_own else own_translations(translator, sources)
    if not examples.are_own:
        print_marks(translator, _labelled_by_aligner(examples, own))
    more = [one.source for one in examples.more]  # few sentences are as doubtful as those that an alarm is for
    own_more = own_translations(translator, more)
    if (alarm := choose_alarm(translator, [*sources, *more], [*own, *own_more])) is not None:
        found["verified"] = found["verified"] | {"alarm": alarm}
    translator.set_calibration(found)
    reverse = translator.reverse
    if reverse is not None and reverse.calibration.head is None:
        print(f"words that need no support: not measured; calibrate {reverse.loaded.name} first, which finds them")
    elif reverse is not None:
        whole = [*examples.whole, *examples.more]
        covered = coverage_of_examples(translator, whole, "attention", marks="all", support=True)
        marked = often_marked([word for coverage in covered for word in coverage.target_words])
        optional = sorted({*marked, *reverse.calibration.lists.function})
        translator.set_calibration(found | {"support": {"optional_words": optional}})
        print(f"words that need no support: {', '.join(optional) or 'none'}")


def _labelled_by_aligner(examples: Examples, translations: Sequence[str]) -> list[WithOmissions]:
    sources, references = map(list, zip(*examples.text, strict=True))
    wanted, given = (examples.aligner.align_lines(sources, list(lines)) for lines in (references, translations))
    return omissions_of(sources, translations, wanted, given, set(examples.function_words))


def print_marks(translator: Translator, labelled: Sequence[WithOmissions]) -> None:
    """Print how many marks of each operating point the labels agree with, and how many omissions they find."""
    for point in MARKS:
        coverages = coverage_of_examples(translator, labelled, "verified", marks=point)
        pairs = [
            pair for one, coverage in zip(labelled, coverages, strict=True) for pair in one.labelled(coverage.words)
        ]
        left_out = sum(not is_kept for _, is_kept in pairs)
        marked = [is_kept for word, is_kept in pairs if word.marked]
        hits = len(marked) - sum(marked)
        print(
            f"marks={point!r}: the aligner agrees with {hits} of {len(marked)}, which have {hits} of the {left_out} "
            "omissions that it sees; a reader may agree with fewer"
        )


def scores_with_losses(
    translator: Translator, sources: Sequence[str], translations: Sequence[str]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the score of each translation of eight words or more, whole and with words cut out, by how many."""
    chance = random.Random(1)
    cut = {name: [cut_out(line, amount, chance) for line in translations] for name, amount in LOSSES.items()}
    places = [number for number, line in enumerate(cut["a half"]) if line is not None]

    def scores(lines: Sequence[str | None]) -> np.ndarray:
        examples = [WithOmissions(sources[place], lines[place] or "", {}, 0) for place in places]
        return np.array([one.score for one in coverage_of_examples(translator, examples, "verified")])

    return scores(translations), {name: scores(lines) for name, lines in cut.items()}


def choose_alarm(translator: Translator, sources: Sequence[str], translations: Sequence[str]) -> dict[str, Any] | None:
    """Return the score below which a sentence is an alarm, the share of own translations that it flags, and its catch.

    Chosen on the translations of eight words or more, measured on each half of them by the alarm of the other; `None`
    for too few of them. Lines of several sentences, which are translated one by one elsewhere, are left out.
    """
    pairs = [pair for pair in zip(sources, translations, strict=True) if len(split_sentences(pair[0])) == 1]
    own, cut = scores_with_losses(translator, [source for source, _ in pairs], [line for _, line in pairs])
    if len(own) < FEWEST_WHOLE:
        print(f"alarm: none, for {len(own)} of the translations have {FEWEST_WORDS} words; {FEWEST_WHOLE} are needed")
        return None
    alarms = [np.quantile(own[other::2], FLAGGED) for other in (1, 0)]

    def flagged(values: np.ndarray) -> float:
        return round(float(np.concatenate([values[half::2] < alarm for half, alarm in enumerate(alarms)]).mean()), 3)

    alarm = round(float(np.quantile(own, FLAGGED)), 3)
    caught = {name: flagged(values) for name, values in cut.items()}
    print(f"alarm: a score below {alarm} flags {flagged(own):.1%} of own translations and catches {caught}")
    return {"score": alarm, "flagged": flagged(own), "caught": caught}
