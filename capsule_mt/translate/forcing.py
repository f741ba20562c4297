"""Forced passes over given translations, for a model that is the reverse of another one."""

import re
from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING

from capsule_mt.engine.search import Ids
from capsule_mt.options.table import Readings
from capsule_mt.text.reading import overlaps
from capsule_mt.text.rules import TAG
from capsule_mt.text.segments import Document, Segmenter
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import Offsets
from capsule_mt.translate.given import Pair, by_text, pairs_of, without_tags
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.translator_model import TranslatorModel

if TYPE_CHECKING:  # late: a call without coverage starts sooner
    from capsule_mt.coverage.verified import ForcedPair

# warnings of what was cut, with its tokens and those of them that remain; a reverse model reads a pair the other way
SOURCE_WAS_CUT = "The reverse model cut a translation of {} tokens to {}."
TARGET_WAS_CUT = "The reverse model cut a source of {} tokens to {}."


def force_pairs(
    model: TranslatorModel,
    texts: Sequence[str],
    translations: Sequence[str],
    options: TranslationOptions,
    *,
    with_head: bool = False,
    spans: Sequence[Sequence[Span]] | None = None,
) -> "list[ForcedPair | None]":
    """Return a forced pass over each given translation: see `Scorer.force`."""
    from capsule_mt.coverage.verified import ForcedPair

    segmenter = model.segmenter_of(options)._replace(cut_warning=SOURCE_WAS_CUT)
    documents, pairs = pairs_of(model, segmenter, texts, translations, cut_warning=TARGET_WAS_CUT)
    head = _head_of(model) if with_head else None
    offsets_by_pair = _target_offsets(documents, pairs, translations, segmenter)
    targets: list[Ids] = [target.ids for _, target in pairs]
    positions = None
    if spans is not None:
        has_pair = [bool(document.pieces) for document in documents]
        positions = _positions_in([*compress(spans, has_pair)], offsets_by_pair)
        # the probability of a token does not depend on later ones: leave these out
        targets = [
            target_ids[: max(tokens, default=0) + 1] for target_ids, tokens in zip(targets, positions, strict=True)
        ]
    decoder, sources = model.loaded.decoder, [piece.ids for piece, _ in pairs]
    results = decoder.force(sources, targets, Readings(head=head), positions=positions) if pairs else []
    forced_pairs = [
        ForcedPair(list(piece.source_offsets) if spans is None else (), offsets, forced)
        for (piece, _), offsets, forced in zip(pairs, offsets_by_pair, results, strict=True)
    ]
    return by_text(documents, forced_pairs)


def _head_of(model: TranslatorModel) -> tuple[int, int]:
    head = model.calibration.head
    if head is None:
        raise ValueError(f"{model.loaded.name} has no head that aligns words: `capsule-mt calibrate` chooses one")
    return head


def _target_offsets(
    documents: Sequence[Document], pairs: Sequence[Pair], translations: Sequence[str], segmenter: Segmenter
) -> list[Offsets]:
    """Return the characters of each pair's translation that its tokens stand for."""
    from capsule_mt.coverage.verified import offsets_of

    decode, offsets_by_pair = segmenter.tokenizer.decode, list[Offsets]()
    has_pair = [bool(document.pieces) for document in documents]
    for translation, (_, target) in zip(compress(translations, has_pair), pairs, strict=True):
        if re.search(TAG, translation) is None:
            offsets_by_pair.append(offsets_of(translation, target.ids, decode))
            continue
        piece = without_tags(translation)
        offsets = offsets_of(piece.text, target.ids, decode)
        offsets_by_pair.append([span and piece.user_span(Span(*span)) for span in offsets])
    return offsets_by_pair


def _positions_in(spans: Sequence[Sequence[Span]], offsets_by_pair: Sequence[Offsets]) -> list[list[int]]:
    """Return the tokens of each translation that stand for characters in these spans of it."""
    return [
        [token for token, span in enumerate(offsets) if span and overlaps(Span(*span), pair_spans)]
        for offsets, pair_spans in zip(offsets_by_pair, spans, strict=True)
    ]
