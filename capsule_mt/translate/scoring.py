"""Score given translations: forced passes in batches, with coverage, then their `Translation`s."""

from collections.abc import Sequence

from capsule_mt.options.table import Readings
from capsule_mt.translate.assembling import scored_translation
from capsule_mt.translate.given import Pair, by_text, pairs_of
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.plan import Plan
from capsule_mt.translate.planning import plan_of
from capsule_mt.translate.results import Translation
from capsule_mt.translate.reverse import ModelWithReverse
from capsule_mt.translate.searching import cover_hypotheses
from capsule_mt.translate.texts import batches_of


def score_given(
    scorer: ModelWithReverse,
    texts: Sequence[str],
    translations: Sequence[str],
    options: TranslationOptions,
    *,
    with_links: bool = False,
) -> list[Translation]:
    """Return given translations with their scores and what they cover: see `Scorer.score`."""
    plan = plan_of(scorer, options, is_forced=True)
    documents, pairs = pairs_of(scorer.translator_model, plan.segmenter, texts, translations)
    lengths = [max(len(piece.ids), len(target.ids)) for piece, target in pairs]
    for indices in batches_of(lengths, options.batch_size, options.batch_tokens):
        _score_batch([pairs[index] for index in indices], plan)
    return [
        scored_translation(document, pair, translation, plan, with_links=with_links)
        for document, pair, translation in zip(documents, by_text(documents, pairs), translations, strict=True)
    ]


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
