"""Score given translations: forced passes in batches, with coverage and adequacy, then their `Translation`s."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from capsule_mt.options.table import Readings
from capsule_mt.translate.assembling import scored_translation
from capsule_mt.translate.given import Pair, by_text, model_texts, pairs_of
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.plan import Plan
from capsule_mt.translate.planning import plan_of
from capsule_mt.translate.results import Translation
from capsule_mt.translate.reverse import ModelWithReverse, directed
from capsule_mt.translate.searching import cover_hypotheses
from capsule_mt.translate.texts import batches_of

if TYPE_CHECKING:  # late: a call without coverage starts sooner
    from capsule_mt.coverage.results import Adequacy


def score_given(
    scorer: ModelWithReverse,
    texts: Sequence[str],
    translations: Sequence[str],
    options: TranslationOptions,
    *,
    with_adequacy: bool = False,
    with_links: bool = False,
) -> list[Translation]:
    """Return given translations with their scores and what they cover: see `Scorer.score`."""
    plan = plan_of(scorer, options, is_forced=True)
    documents, pairs = pairs_of(scorer.translator_model, plan.segmenter, texts, translations)
    present = [
        (document, translation)
        for document, translation in zip(documents, translations, strict=True)
        if document.pieces
    ]
    lengths = [max(len(piece.ids), len(target.ids)) for piece, target in pairs]
    adequacies: list[Adequacy | None] = [None] * len(pairs)
    for indices in batches_of(lengths, options.batch_size, options.batch_tokens):
        batch = [pairs[index] for index in indices]
        _score_batch(batch, plan)
        if with_adequacy:
            batch_texts = [model_texts(*present[index]) for index in indices]
            for index, adequacy in zip(indices, _adequacies(scorer, batch, batch_texts, options), strict=True):
                adequacies[index] = adequacy
    results = []
    rows = zip(documents, by_text(documents, pairs), by_text(documents, adequacies), translations, strict=True)
    for document, pair, text_adequacy, translation in rows:
        result = scored_translation(document, pair, translation, plan, with_links=with_links)
        result.adequacy = text_adequacy
        results.append(result)
    return results


def _score_batch(pairs: Sequence[Pair], plan: Plan) -> None:
    """Force the translations of a batch, and set the scores and the coverage of each hypothesis."""
    pieces, hypotheses = zip(*pairs, strict=True)
    readings = (None if plan.coverage is None else plan.coverage.readings) or Readings()
    if plan.options.alignment and plan.head is not None:
        readings = readings._replace(head=plan.head)
    sources, targets = [piece.ids for piece in pieces], [hypothesis.ids for hypothesis in hypotheses]
    for hypothesis, forced in zip(hypotheses, plan.model.decoder.force(sources, targets, readings), strict=True):
        hypothesis.rescore(forced, plan.model.end)
    if plan.coverage is not None:
        coverages = cover_hypotheses(pieces, hypotheses, plan, plan.coverage)
        for hypothesis, coverage in zip(hypotheses, coverages, strict=True):
            hypothesis.covered = coverage


def _adequacies(
    scorer: ModelWithReverse,
    pairs: Sequence[Pair],
    lines: Sequence[tuple[str, str]],
    options: TranslationOptions,
) -> "list[Adequacy]":
    """Return the adequacy of scored translations.

    lines: each text and its translation as the model reads them.
    """
    from capsule_mt.coverage.adequacy import Judge, adequacies  # late: most calls do not ask for it

    reverse, model = scorer.reverse, scorer.translator_model
    assert reverse is not None
    forward, backward = directed(scorer, reverse, options)
    judge = Judge(forward, model.loaded.decoder, model.loaded.end, model.calibration, backward)
    coverages = None
    if model.calibration.head is None:
        from capsule_mt.coverage.options import CoverageOptions

        texts, translations = zip(*lines, strict=True)
        covered = options._replace(coverage=CoverageOptions(), alignment=False)
        scored = score_given(scorer, texts, translations, covered)
        coverages = [translation.coverage for translation in scored if translation.coverage is not None]
    return adequacies(judge, pairs, lines, coverages)
