"""The losses, normalised so that gradient accumulation and several processes give what one large batch gives."""

from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.utils import logging

from hf_capsule_mt.routing.common import may_read_values

losses_logger = logging.get_logger(__name__)

IGNORE_INDEX = -100
# how many logits a pass holds at once: on a CPU they stay in the cache, elsewhere they keep a device busy
LOGITS_ON_CPU, LOGITS_ELSEWHERE = 2**18, 2**25


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
        num_items_in_batch: what to divide the sum by, the number of targets in all batches that make one step, which
            the Trainer gives; by default the number of targets in `labels`.
    """
    if labels.shape != logits.shape[:2]:
        raise ValueError(
            f"`labels` of shape {list(labels.shape)} do not fit the {list(logits.shape[:2])} positions that "
            "the decoder was given"
        )
    labels = labels.to(logits.device)
    if torch.compiler.is_compiling():  # it fuses the passes over the vocabulary by itself
        rows = logits.flatten(0, -2).to(torch.promote_types(logits.dtype, torch.float32))
        total, plain_total = (
            nn.functional.cross_entropy(
                rows, labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum", label_smoothing=smoothing
            )
            for smoothing in (label_smoothing, 0.0)
        )
    else:
        total, plain_total = _SummedCrossEntropy.apply(logits.flatten(0, -2), labels.flatten(), label_smoothing)
    if num_items_in_batch is None:
        num_items_in_batch = labels.ne(IGNORE_INDEX).sum().clamp(min=1)
    elif isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(logits.device)
    loss = total / num_items_in_batch
    return CrossEntropy(loss, plain_total / num_items_in_batch if label_smoothing else loss)


class _SummedCrossEntropy(torch.autograd.Function):
    """Compute both losses and a gradient together, a few rows at a time, which stay in the processor's cache.

    Keep the gradient alone for the backward pass, in the dtype of the logits: no float32 copy of the logits, nor of
    their logarithms. With float16 logits the gradient is float32, as small values would underflow before loss scaling.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [R, V] and labels [R] -> the sums over rows with smoothing and without, in float32 or higher."""
        dtype = torch.promote_types(logits.dtype, torch.float32)
        target, everywhere = 1 - label_smoothing, label_smoothing / logits.shape[-1]
        ignored = labels.eq(IGNORE_INDEX).unsqueeze(-1)  # [R, 1]
        words = labels.unsqueeze(-1).masked_fill(ignored, 0)  # [R, 1]
        grad_dtype = dtype if logits.dtype == torch.float16 else logits.dtype
        grad_logits = torch.empty_like(logits, dtype=grad_dtype) if ctx.needs_input_grad[0] else None
        loss, nll_loss = logits.new_zeros((2,), dtype=dtype)
        rows_at_once = max(1, (LOGITS_ON_CPU if logits.is_cpu else LOGITS_ELSEWHERE) // logits.shape[-1])
        for start in range(0, len(logits), rows_at_once):
            rows = slice(start, start + rows_at_once)
            log_probabilities = logits[rows].log_softmax(dim=-1, dtype=dtype)  # [r, V]
            word_log_probs = log_probabilities.gather(1, words[rows])  # [r, 1]
            losses = -target * word_log_probs
            if everywhere:
                losses -= everywhere * log_probabilities.sum(dim=-1, keepdim=True)
            loss += losses.masked_fill(ignored[rows], 0).sum()
            nll_loss -= word_log_probs.masked_fill(ignored[rows], 0).sum()
            if grad_logits is not None:
                grad = log_probabilities.exp_().sub_(everywhere)
                grad.scatter_(1, words[rows], word_log_probs.exp() - everywhere - target)
                grad_logits[rows] = grad.masked_fill_(ignored[rows], 0)
        ctx.save_for_backward(grad_logits, labels)
        ctx.dtype, ctx.label_smoothing = logits.dtype, label_smoothing
        ctx.set_materialize_grads(False)
        return loss, nll_loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, grad_loss: torch.Tensor | None, grad_nll_loss: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        grad_logits, labels = ctx.saved_tensors
        if grad_nll_loss is None:
            return (grad_logits * grad_loss).to(ctx.dtype), None, None
        # without smoothing, a row's gradient is that with it, and everywhere s / V, and - s at its word
        difference = grad_logits.new_full(grad_logits.shape, ctx.label_smoothing / grad_logits.shape[-1])
        words = labels.clamp(min=0).unsqueeze(-1)  # [R, 1]
        difference.scatter_add_(1, words, grad_logits.new_full(words.shape, -ctx.label_smoothing))
        plain_gradient = grad_logits + difference.masked_fill_(labels.eq(IGNORE_INDEX).unsqueeze(-1), 0)
        total = plain_gradient * grad_nll_loss
        return (total if grad_loss is None else total + grad_logits * grad_loss).to(ctx.dtype), None, None
