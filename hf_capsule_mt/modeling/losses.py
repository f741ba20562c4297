"""The losses, normalised so that gradient accumulation and several processes give what one large batch gives."""

import torch
from torch import nn
from transformers import PreTrainedConfig

IGNORE_INDEX = -100


def decoder_inputs_from_labels(labels: torch.Tensor, config: PreTrainedConfig) -> torch.Tensor:
    """Labels [B, T] -> the tokens that predict them: moved by one, after the start token."""
    if config.pad_token_id is None or config.decoder_start_token_id is None:
        raise ValueError(
            "labels need `pad_token_id` and `decoder_start_token_id` in the configuration, which has "
            f"{config.pad_token_id} and {config.decoder_start_token_id}"
        )
    shifted = labels.roll(1, dims=-1)
    shifted[:, 0] = config.decoder_start_token_id
    return shifted.masked_fill(shifted == IGNORE_INDEX, config.pad_token_id)


def refuse_lost_labels(labels: torch.Tensor | None, num_items_in_batch: torch.Tensor | int | None) -> None:
    """The Trainer counts targets that it does not hand on when it smooths labels itself: an error, not a lost loss."""
    if labels is None and num_items_in_batch is not None:
        raise ValueError(
            "The Trainer counted the targets of this batch but kept the labels to itself, so the model cannot "
            "compute its loss. If `label_smoothing_factor` is set, set `model.config.label_smoothing` instead. "
            "If you have a `compute_loss_func`, set `model.accepts_loss_kwargs = False` before making the Trainer."
        )


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
