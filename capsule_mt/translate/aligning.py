"""How strongly each token of a translation aligns with each token of its source."""

from collections.abc import Sequence

from capsule_mt.engine.search import Hypothesis, Ids
from capsule_mt.options.table import Readings
from capsule_mt.translate.plan import Plan
from capsule_mt.translate.texts import batches_of

ALIGNED_TOKENS = 2048  # the limit of a forced pass, with padding


def aligned_rows(pairs: Sequence[tuple[Ids, Hypothesis]], plan: Plan) -> list[list[list[float]]]:
    """Return how strongly each token of each translation aligns with each token of its source [T][S].

    The strengths are the attention of the head that coverage uses; translations without it get a forced pass. For a
    model without such a head, a strength is the drop of a token's log-probability if the source token is deleted.
    """
    decoder = plan.model.decoder
    if plan.head is None:
        from capsule_mt.coverage.deletion import deletion_gains_by_token

        return [deletion_gains_by_token(source, hypothesis.ids, decoder) for source, hypothesis in pairs]
    attentions = [hypothesis.attention for _, hypothesis in pairs]
    missing_indices = [index for index, attention in enumerate(attentions) if attention is None]
    lengths = [max(len(pairs[index][0]), len(pairs[index][1].ids)) for index in missing_indices]
    for batch in batches_of(lengths, 1, ALIGNED_TOKENS):
        indices = [missing_indices[i] for i in batch]
        sources, targets = [pairs[index][0] for index in indices], [pairs[index][1].ids for index in indices]
        for index, forced in zip(indices, decoder.force(sources, targets, Readings(head=plan.head)), strict=True):
            attentions[index] = forced.attention
    # the head attends to the source of the token before: shift by one step, and repeat the last row
    return [[*rows[1:], *rows[-1:]] for rows in (attention or [] for attention in attentions)]
