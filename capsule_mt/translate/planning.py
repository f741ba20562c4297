"""Make the `Plan` of a call from its options, the model, its calibration and its reverse model."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from capsule_mt.coverage.names import head_of
from capsule_mt.messages import warn_once
from capsule_mt.models.model import LoadedModel
from capsule_mt.options.table import SCORED_WHILE_SEARCHING
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.plan import CoveragePlan, Plan
from capsule_mt.translate.reverse import ModelWithReverse, directed
from capsule_mt.translate.search_plan import search_of, setting

if TYPE_CHECKING:  # late: a call without coverage starts sooner
    from capsule_mt.coverage.methods import Verifier
    from capsule_mt.coverage.names import CoveredBy


def plan_of(scorer: ModelWithReverse, options: TranslationOptions, *, is_forced: bool = False) -> Plan:
    """Return the plan of a call; refuse options that do not go together.

    is_forced: translations are given, so the shortlist does not restrict them.
    """
    model = scorer.translator_model.loaded
    coverage = None if options.coverage is None else _coverage_plan(scorer, options, is_forced)
    num_beams, num_returned = (
        int(setting(model, options.generate_kwargs, name) or 1) for name in ("num_beams", "num_return_sequences")
    )
    weight = None if coverage is None else coverage.options.weight
    if weight and num_beams < 2:
        raise ValueError(f"the `weight` of coverage needs at least 2 beams: `num_beams` is {num_beams}")
    scores_later = options.scores is None and coverage is None and _can_score_later(model, options.generate_kwargs)
    scores = (options.scores is not False and not scores_later) or coverage is not None
    search = search_of(model, options.generate_kwargs, scores=scores)
    if weight:
        search = search.with_options(num_return_sequences=num_beams)
    return Plan(
        options,
        model,
        scorer.translator_model.segmenter_of(options),
        search,
        head=head_of(model.calibration),
        coverage=coverage,
        num_beams=num_beams,
        num_returned=num_returned,
        weight=weight,
        scores_later=scores_later,
    )


def _can_score_later(model: LoadedModel, call_options: Mapping[str, Any]) -> bool:
    """Return whether a search is faster without scores, and a forced pass would give them exactly."""
    values = ((option, setting(model, call_options, option.name)) for option in SCORED_WHILE_SEARCHING)
    is_plain = all(value is None or value == option.default for option, value in values)
    # scores with a shortlist are among its tokens; those of a forced pass are among all
    return is_plain and model.shortlist is None and model.decoder.prefers_no_scores


def _coverage_plan(scorer: ModelWithReverse, options: TranslationOptions, is_forced: bool) -> CoveragePlan:
    """Choose the method and the threshold, and load the reverse model if they need it."""
    from capsule_mt.coverage.methods import choose_method, readings_of
    from capsule_mt.coverage.names import DEFAULT_MARKS

    coverage, calibration = options.coverage, scorer.translator_model.calibration
    assert coverage is not None
    model, has_reverse = scorer.translator_model.loaded, scorer.has_reverse
    if coverage.support and not has_reverse:
        raise ValueError(f"`support` needs a reverse model: give {model.name} a `reverse` (`--reverse MODEL`)")
    method = choose_method(
        coverage.method,
        calibration,
        num_heads=math.prod(model.head_shape),
        name=model.name,
        has_reverse=has_reverse,
    )
    verifier = _verifier(scorer, method, options, is_forced)
    if coverage.marks is not None and method != "verified" and not coverage.support:
        warn_once(
            f'`marks="{coverage.marks}"` chooses among marks that a reverse model has verified. '
            f'Those of {model.name} are unverified, by `method="{method}"`: {_way_to_verify(scorer)}.'
        )
    threshold = calibration.alarm(method, is_given=is_forced) if coverage.threshold is None else coverage.threshold
    if coverage.retry_beams is not None and threshold is None:
        raise ValueError(
            f"`retry_beams` ({coverage.retry_beams}) needs a `threshold`: the calibration of {model.name} has no "
            f'alarm for `method="{method}"`'
        )
    is_asked = coverage.marks is not None or coverage.method != "auto"
    return CoveragePlan(
        coverage,
        method,
        threshold,
        readings_of(method, calibration),
        calibration,
        verifier,
        marks_single_words=is_asked or (not is_forced and calibration.marks_single_words),
        precision=None
        if is_forced or method != "verified"
        else calibration.precision.get(coverage.marks or DEFAULT_MARKS),
        retries_marks=not is_forced and method == "verified" and calibration.retries_marks,
    )


def _verifier(
    scorer: ModelWithReverse, method: "CoveredBy", options: TranslationOptions, is_forced: bool
) -> "Verifier | None":
    """Return what verifies marks or finds support, if the method or the options need it; load the reverse model."""
    from capsule_mt.coverage.methods import Verifier
    from capsule_mt.coverage.names import DEFAULT_MARKS

    coverage, model = options.coverage, scorer.translator_model
    assert coverage is not None
    # load the reverse here: later, its error would be a warning for each batch, with all coverage missing
    reverse = scorer.reverse if method == "verified" or coverage.support else None
    if reverse is None:
        return None
    if coverage.support and reverse.translator_model.calibration.head is None:
        raise ValueError(
            f"`support` needs a `reverse` with a head that aligns words, which `capsule-mt calibrate` chooses; "
            f"{reverse.translator_model.loaded.name} has none"
        )
    decode, shortlist = model.tokenizer_of(options).decode, None if is_forced else model.loaded.shortlist
    marks = coverage.marks or DEFAULT_MARKS
    return Verifier(directed(scorer, reverse, options), decode, marks, coverage.support, shortlist)


def _way_to_verify(scorer: ModelWithReverse) -> str:
    """Return what gives this model verified marks, or why nothing does."""
    if not math.prod(scorer.translator_model.loaded.head_shape):
        return "its decoder is not built like Marian's, so nothing verifies them"
    if not scorer.has_reverse:
        return "name the reverse model by `reverse` (`--reverse`)"
    if scorer.translator_model.calibration.head is None:
        return "`capsule-mt calibrate` finds the head that they need"
    return 'use `method="verified"`'
