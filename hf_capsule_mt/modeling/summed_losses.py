"""Sums of the cross entropy over the targets of a batch, with label smoothing and without.

Legend: R rows, one for each target; V vocabulary.
"""

from typing import Any

import torch
from torch import nn

IGNORE_INDEX = -100
# how many logits a pass holds at once: on a CPU they stay in the cache, elsewhere they keep a device busy
LOGITS_ON_CPU, LOGITS_ELSEWHERE = 2**18, 2**25


def summed(logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [R, V] and labels [R] -> both sums, by torch's own function."""
    rows = logits.to(torch.promote_types(logits.dtype, torch.float32))
    total, plain_total = (
        nn.functional.cross_entropy(
            rows, labels, ignore_index=IGNORE_INDEX, reduction="sum", label_smoothing=smoothing
        )
        for smoothing in (label_smoothing, 0.0)
    )
    return total, plain_total


def summed_in_blocks(
    logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what `summed` does in less time and memory; a compiler fuses its passes over the vocabulary by itself."""
    if torch.compiler.is_compiling():
        return summed(logits, labels, label_smoothing)
    sums: tuple[torch.Tensor, torch.Tensor] = _SummedCrossEntropy.apply(logits, labels, label_smoothing)
    return sums


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
