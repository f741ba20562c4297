"""Choose the scores that raise alarms, and the words that need no support."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from capsule_mt.coverage.calibration.calibrating import (
    Examples,
    coverage_of_examples,
    often_marked,
    own_translations,
)
from capsule_mt.coverage.calibration.omissions import MIN_WORDS, WithOmissions, cut_out
from capsule_mt.text.sentences import split_sentences
from capsule_mt.translate.translator import Translator

FLAGGED_SHARE = 0.01  # of good translations, which an alarm may flag
MIN_TRANSLATIONS = 100  # to choose an alarm by
# words cut out of its own translations, to see which of the damaged ones the alarm catches
LOSSES: dict[str, int | float] = {"three words": 3, "a quarter": 0.25, "a half": 0.5}


def measure(translator: Translator, examples: Examples) -> None:
    """Add the alarms of "verified" and the words that need no support to the translator's calibration.

    The alarms of given translations are chosen on people's, since these are freer than the model's own.
    """
    sources, references = map(list, zip(*examples.text, strict=True))
    calibration = dict(translator.loaded.calibration)
    translations = references if examples.are_own else own_translations(translator, sources)
    # few sentences may raise the alarm, so choosing it takes many
    extra_sources = [example.source for example in examples.extra]
    extra_translations = own_translations(translator, extra_sources)
    alarm = choose_alarm(translator, [*sources, *extra_sources], [*translations, *extra_translations])
    if alarm is not None:
        calibration["verified"] = calibration["verified"] | {"alarm": alarm}
    human_pairs = [] if examples.are_own else list(examples.text)
    human_pairs += [(example.source, example.translation) for example in examples.extra]
    human_alarm = choose_human_alarm(translator, human_pairs)
    if human_alarm is not None:
        calibration["verified"] = calibration["verified"] | {"human_alarm": human_alarm}
    translator.set_calibration(calibration)
    reverse = translator.reverse
    if reverse is not None and reverse.calibration.head is None:
        print(
            f"words that need no support: not measured; calibrate {reverse.loaded.name} first, "
            "whose function words belong to them"
        )
    elif reverse is not None:
        complete = [*examples.complete, *examples.extra]
        coverages = coverage_of_examples(translator, complete, "attention", marks="all", support=True)
        marked = often_marked([word for coverage in coverages for word in coverage.target_words])
        optional = sorted({*marked, *reverse.calibration.lists.function})
        translator.set_calibration(calibration | {"support": {"optional_words": optional}})
        print(f"words that need no support: {', '.join(optional) or 'none'}")


def scores_with_losses(
    translator: Translator, sources: Sequence[str], translations: Sequence[str]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Score each translation of eight words or more: as it is, and for each of `LOSSES` with those words cut out."""
    chance = random.Random(1)
    cut = {name: [cut_out(line, amount, chance) for line in translations] for name, amount in LOSSES.items()}
    indices = [index for index, line in enumerate(cut["a half"]) if line is not None]

    def scores(lines: Sequence[str | None]) -> np.ndarray:
        examples = [WithOmissions(sources[index], lines[index] or "", {}, 0) for index in indices]
        return np.array([coverage.score for coverage in coverage_of_examples(translator, examples, "verified")])

    return scores(translations), {name: scores(lines) for name, lines in cut.items()}


def choose_alarm(translator: Translator, sources: Sequence[str], translations: Sequence[str]) -> dict[str, Any] | None:
    """Return the score that raises an alarm, and the shares of intact and damaged translations below it.

    The score is chosen on all translations of eight words or more; the shares are cross-validated, each half of them
    by the alarm of the other. `None` if there are too few. Lines of several sentences, which are otherwise translated
    one by one, are left out.
    """
    pairs = [pair for pair in zip(sources, translations, strict=True) if len(split_sentences(pair[0])) == 1]
    intact, cut = scores_with_losses(translator, [source for source, _ in pairs], [line for _, line in pairs])
    if len(intact) < MIN_TRANSLATIONS:
        print(f"alarm: none; {len(intact)} translations have {MIN_WORDS} words, and {MIN_TRANSLATIONS} are needed")
        return None
    alarms = [np.quantile(intact[other_half::2], FLAGGED_SHARE) for other_half in (1, 0)]
    alarm = round(float(np.quantile(intact, FLAGGED_SHARE)), 3)
    flagged = _cross_validated_share(np.less, intact, alarms)
    caught = {name: _cross_validated_share(np.less, scores, alarms) for name, scores in cut.items()}
    print(f"alarm: a score below {alarm} flags {flagged:.1%} of own translations and catches {caught}")
    return {"score": alarm, "flagged": flagged, "caught": caught}


def choose_human_alarm(translator: Translator, pairs: Sequence[tuple[str, str]]) -> dict[str, Any] | None:
    """Return the score that raises an alarm of given translations, and the shares of intact and damaged ones below it.

    It is chosen on people's translations of any length; the shares are cross-validated, as those of `choose_alarm`
    are. `None` if there are too few.
    """
    if len(pairs) < MIN_TRANSLATIONS:
        print(f"alarm of given translations: none; {len(pairs)} pairs by people are there, {MIN_TRANSLATIONS} needed")
        return None
    examples = [WithOmissions(source, line, {}, 0) for source, line in pairs]
    intact = np.array([coverage.score for coverage in coverage_of_examples(translator, examples, "verified")])
    alarms = [np.quantile(intact[other_half::2], FLAGGED_SHARE) for other_half in (1, 0)]
    alarm = round(float(np.quantile(intact, FLAGGED_SHARE)), 3)
    flagged = _cross_validated_share(np.less, intact, alarms)
    sources, translations = map(list, zip(*pairs, strict=True))
    _, cut = scores_with_losses(translator, sources, translations)
    caught = {name: _cross_validated_share(np.less, scores, alarms) for name, scores in cut.items()}
    print(f"alarm of given translations: a score below {alarm} flags {flagged:.1%} of people's and catches {caught}")
    return {"score": alarm, "flagged": flagged, "caught": caught}


def _cross_validated_share(raises: np.ufunc, values: np.ndarray, alarms: Sequence[float]) -> float:
    """Return the share of values that raise the alarm of the other half."""
    halves = [raises(values[half::2], alarm) for half, alarm in enumerate(alarms)]
    return round(float(np.concatenate(halves).mean()), 3)
