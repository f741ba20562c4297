"""The losses, normalised so that gradient accumulation and several processes give what one large batch gives."""

from typing import Any, NamedTuple

import torch
from transformers.utils import logging

from hf_capsule_mt.modeling.summed_losses import IGNORE_INDEX, summed_in_blocks
from hf_capsule_mt.routing.common import may_read_values

losses_logger = logging.get_logger(__name__)


def token_log_probs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities [B, T] that logits [B, T, V] give to tokens [B, T]."""
    return logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(dim=-1)


def type_of(value: Any) -> str:
    """Say what a value is, for an error: a tensor's dtype, or the type of anything else."""
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__


def check_labels(labels: Any, vocabulary_size: int) -> None:
    """Check that labels are token ids [B, T] of the vocabulary, or `IGNORE_INDEX`."""
    if not isinstance(labels, torch.Tensor) or labels.dtype != torch.int64:
        raise TypeError(f"`labels` must be a tensor of dtype torch.int64, got {type_of(labels)}")
    if labels.dim() != 2:
        raise ValueError(f"`labels` must be [batch, tokens], got {list(labels.shape)}")
    if may_read_values(labels):
        unknown = labels[((labels < 0) & (labels != IGNORE_INDEX)) | (labels >= vocabulary_size)]
        if len(unknown):
            raise IndexError(
                f"`labels` must be token ids from 0 to {vocabulary_size - 1}, or {IGNORE_INDEX} where there is no "
                f"target, got {unknown[:5].tolist()}"
            )


def check_labels_given(
    labels: torch.Tensor | None, num_items_in_batch: torch.Tensor | int | None, has_other_losses: bool = False
) -> None:
    """Raise where the Trainer kept the labels, as it does to smooth them, and the model needs them for other losses.

    Without other losses the Trainer's smoothing takes the place of the model's, with one warning.
    """
    if labels is None and num_items_in_batch is not None and not has_other_losses:
        losses_logger.warning_once(
            "The Trainer computes the loss of this training, by `label_smoothing_factor` or a `compute_loss_func`; "
            "`config.label_smoothing` has no part in it."
        )
    elif labels is None and num_items_in_batch is not None:
        raise ValueError(
            "The Trainer counted the targets of this batch but kept the labels to itself, so the model cannot "
            "compute its losses. If `label_smoothing_factor` is set, set `model.config.label_smoothing` instead, or "
            "take `hf_capsule_mt.training.TranslationTrainer`, which does. "
            "If you have a `compute_loss_func`, set `model.accepts_loss_kwargs = False` before making the Trainer."
        )


class CrossEntropy(NamedTuple):
    """The cross entropy per token.

    loss: with the label smoothing that was asked for.
    nll_loss: without, the negative log-likelihood; the same tensor where there is no smoothing.
    """

    loss: torch.Tensor
    nll_loss: torch.Tensor


def cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    *,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> CrossEntropy:
    """Return the cross entropy per token; `label_smoothing` spreads a share of the target over the vocabulary.

    Args:
        logits: [B, T, V].
        labels: [B, T], `IGNORE_INDEX` where there is no target.
        num_items_in_batch: what to divide the sum by; by default the number of targets in `labels`.
    """
    if labels.shape != logits.shape[:2]:
        raise ValueError(
            f"`labels` of shape {list(labels.shape)} do not fit the {list(logits.shape[:2])} positions that "
            "the decoder was given"
        )
    labels = labels.to(logits.device)
    total, plain_total = summed_in_blocks(logits.flatten(0, -2), labels.flatten(), label_smoothing)
    if num_items_in_batch is None:
        num_items_in_batch = labels.ne(IGNORE_INDEX).sum().clamp(min=1)
    elif isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(logits.device)
    loss = total / num_items_in_batch
    return CrossEntropy(loss, plain_total / num_items_in_batch if label_smoothing else loss)
