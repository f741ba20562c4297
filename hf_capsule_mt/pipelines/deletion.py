"""Coverage of any model, by contrastive conditioning: does a translation need a word of its source?

Vamvas and Sennrich 2022 delete a constituent of the source. If the translation then becomes more probable, it has left
that constituent out. Here each word is deleted by itself.

Legend: B sources, R translations of each, W words, S source tokens, T target tokens, N rows: pairs of a source and a
deleted word.
"""

import torch
from transformers import PreTrainedModel

from hf_capsule_mt.pipelines.source_batch import SourceBatch, sequence_log_probs, target_log_probs

# numbers of the logits that are computed at once
LOGITS_AT_ONCE = 2**23


@torch.no_grad()
def deletion_log_probs(
    model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probabilities of translations: [B, R], and [B, R, W] without each word of their source.

    All deletions of some sources go through the encoder at once, and through the decoder with their translations. A
    mark is not deleted: its values are those of the whole source.

    Args:
        batch: B sources with their `words`.
        sequences: [B * R, T], each after its start token; those of a source stand together.
        lengths: how many tokens after the start token count [B * R].
    """
    if batch.words is None:
        raise RuntimeError("the batch has no words")
    copies = len(sequences) // len(batch.input_ids)
    whole = sequence_log_probs(model, batch, sequences, lengths).unflatten(0, (-1, copies))  # [B, R]
    without = whole[..., None].repeat(1, 1, batch.words.counts.shape[1])
    sources, words = batch.words.counts.nonzero(as_tuple=True)  # [N] each
    at_once = rows_at_once(model, copies * sequences.shape[1])
    sequences, lengths = (values.unflatten(0, (-1, copies)) for values in (sequences, lengths))
    for first in range(0, len(sources), at_once):
        rows, deleted = sources[first : first + at_once], words[first : first + at_once]
        shortened = without_tokens(batch, rows, batch.words.tokens[rows, deleted], model.config.pad_token_id or 0)
        found = sequence_log_probs(model, shortened, sequences[rows].flatten(0, 1), lengths[rows].flatten())
        without[rows, :, deleted] = found.unflatten(0, (-1, copies))
    return whole, without


@torch.no_grad()
def deletion_effects(
    model: PreTrainedModel, batch: SourceBatch, sequence: torch.Tensor, deleted: torch.Tensor
) -> torch.Tensor:
    """Return how many nats each token of a translation [1, T] of one source loses without some tokens.

    The tokens are those where `deleted` [N, S] is True, in N ways: [N, T - 1].
    """
    without = []
    for some in deleted.split(rows_at_once(model, sequence.shape[1])):
        rows = torch.zeros(len(some), dtype=torch.long, device=some.device)
        shortened = without_tokens(batch, rows, some, model.config.pad_token_id or 0)
        without.append(target_log_probs(model, shortened, sequence.expand(len(some), -1)))
    return target_log_probs(model, batch, sequence) - torch.cat(without)


def rows_at_once(model: PreTrainedModel, tokens: int) -> int:
    """Return how many rows of so many target tokens go through the decoder at once."""
    head = model.get_output_embeddings()
    vocabulary = len(head.weight) if head is not None else model.config.vocab_size
    return max(1, LOGITS_AT_ONCE // (tokens * vocabulary))


def without_tokens(batch: SourceBatch, rows: torch.Tensor, deleted: torch.Tensor, pad_token_id: int) -> SourceBatch:
    """Return the sources of these rows [N] without the tokens where `deleted` [N, S] is True.

    The others close ranks and keep their order; a source of which nothing is left keeps one padding token.
    """
    kept = batch.attention_mask[rows].bool() & ~deleted
    length = max(1, int(kept.sum(dim=1).max()))
    # the kept tokens first, in their order
    order = (~kept).long().argsort(dim=1, stable=True)[:, :length]
    mask = kept.gather(1, order)
    input_ids = batch.input_ids[rows].gather(1, order).masked_fill(~mask, pad_token_id)
    mask[:, 0] = True
    return SourceBatch(input_ids, mask.to(batch.attention_mask.dtype), batch.settings)
