"""The losses, normalised so that gradient accumulation and several processes give what one large batch gives."""

import torch
from torch import nn

IGNORE_INDEX = -100


def cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    *,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Cross entropy per token, with a share `label_smoothing` of the target spread over the whole vocabulary.

    Args:
        logits: [B, T, V].
        labels: [B, T], `IGNORE_INDEX` where there is no target.
        num_items_in_batch: what to divide the sum by, the number of targets in all batches that make one step, which
            the Trainer gives; the number of targets in `labels` if it is not given.
    """
    labels = labels.to(logits.device)
    total = nn.functional.cross_entropy(
        logits.flatten(0, -2).to(torch.promote_types(logits.dtype, torch.float32)),
        labels.flatten(),
        ignore_index=IGNORE_INDEX,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    if num_items_in_batch is None:
        num_items_in_batch = labels.ne(IGNORE_INDEX).sum().clamp(min=1)
    elif isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(logits.device)
    return total / num_items_in_batch
