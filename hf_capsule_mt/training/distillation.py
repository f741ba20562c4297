"""Learning from a teacher: word-level distillation in the loss, sequence-level distillation of a training set."""

from typing import Any

import torch
from torch import nn

IGNORE_INDEX = -100


class WordDistillation:
    """Word-level knowledge distillation (Kim and Rush 2016, section 3.1): the teacher's distribution as the target.

    loss = (1 - weight) * loss of the model + weight * temperature^2 * cross entropy of the model's and the teacher's
    distribution over the next word, both softened by the temperature, per target word.

    Args:
        teacher: a model with the vocabulary of the student, source and target.
        weight: the share of the teacher, 0 to 1.
        temperature: divides the logits of both.
    """

    def __init__(self, teacher: Any, weight: float = 0.5, temperature: float = 1.0) -> None:
        if not 0 <= weight <= 1:
            raise ValueError(f"`weight` must be in [0, 1], got {weight}")
        if temperature <= 0:
            raise ValueError(f"`temperature` must be positive, got {temperature}")
        self.teacher = teacher.eval().requires_grad_(False)
        self.weight = weight
        self.temperature = temperature

    def __call__(
        self,
        loss: torch.Tensor,
        outputs: Any,
        inputs: dict[str, torch.Tensor],
        num_items_in_batch: torch.Tensor | int | None,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The mixed loss, and its new part by name; normalised as the model normalises its own."""
        labels = inputs["labels"]
        logits = outputs["logits"]  # [B, T, V]
        self.teacher.to(logits.device)
        with torch.no_grad():
            teacher_logits = self.teacher(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=labels
            ).logits
        if teacher_logits.shape != logits.shape:
            raise ValueError(
                f"the teacher's vocabulary has {teacher_logits.shape[-1]} words, the student's {logits.shape[-1]}: "
                "word-level distillation needs the same tokenizer for both"
            )
        kept = labels.ne(IGNORE_INDEX)  # [B, T]
        student = nn.functional.log_softmax(logits[kept].float() / self.temperature, dim=-1)
        target = nn.functional.softmax(teacher_logits[kept].float() / self.temperature, dim=-1)
        total = -(target * student).sum() * self.temperature**2
        count = kept.sum() if num_items_in_batch is None else num_items_in_batch
        part = total / count
        return (1 - self.weight) * loss + self.weight * part, {"word_distillation_loss": part}
