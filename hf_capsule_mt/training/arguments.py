"""The Trainer's arguments, extended for translation."""

from dataclasses import dataclass, field

import torch
from transformers import Seq2SeqTrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from hf_capsule_mt.training.sharding import let_accelerate_shard_on_cpus


@dataclass
class TranslationTrainingArguments(Seq2SeqTrainingArguments):
    """Extend [`~transformers.Seq2SeqTrainingArguments`] by token budgets, early stopping, BPE-dropout, averaging."""

    max_tokens_per_batch: int | None = field(
        default=None,
        metadata={
            "help": "Limit on the tokens of a batch on one device: source and target, padding included. "
            "Overrides `per_device_train_batch_size`."
        },
    )
    bpe_dropout: float = field(default=0.0, metadata={"help": "Probability of dropping a BPE merge during training."})
    early_stopping_patience: int | None = field(
        default=None,
        metadata={
            "help": "Stop after this many evaluations without a better `metric_for_best_model` (default: bleu)."
        },
    )
    average_last: int = field(
        default=0, metadata={"help": "At the end, average the weights of this many last checkpoints."}
    )
    float32_matmul_precision: str | None = field(
        default=None,
        metadata={
            "help": "Argument of `torch.set_float32_matmul_precision`. `high` is TF32 on a GPU. `medium` uses "
            "oneDNN's matrix products on a CPU with AVX512-BF16: without AMX as precise as the default, with AMX in "
            "bfloat16."
        },
    )

    def __post_init__(self) -> None:
        if self.early_stopping_patience is not None:
            self.metric_for_best_model = self.metric_for_best_model or "bleu"
            if self.greater_is_better is None:
                self.greater_is_better = "loss" not in self.metric_for_best_model
        super().__post_init__()
        if self.fsdp:
            let_accelerate_shard_on_cpus()
        if self.float32_matmul_precision is not None:
            torch.set_float32_matmul_precision(self.float32_matmul_precision)
        if not self.average_tokens_across_devices:
            raise ValueError(
                "`average_tokens_across_devices` must be True: losses are divided by the number of "
                "target tokens in a step"
            )
        _check_loggers(self.report_to)
        if self.greater_is_better and str(self.metric_for_best_model).endswith("loss"):
            raise ValueError(
                f"`greater_is_better` must be false for the `metric_for_best_model` {self.metric_for_best_model!r}: "
                "the checkpoint with the largest loss is the worst"
            )
        if self.average_last < 0:
            raise ValueError(f"`average_last` must not be negative, got {self.average_last}")
        if self.early_stopping_patience is not None and self.eval_strategy == "no":
            raise ValueError("`early_stopping_patience` needs `eval_strategy` to be steps or epoch, got no")
        if self.label_smoothing_factor:
            raise ValueError(
                f"`label_smoothing_factor` must be 0, got {self.label_smoothing_factor}: it would take the labels "
                "from the auxiliary losses; set `label_smoothing` of the model's config"
            )
        if self.save_strategy == "best":
            raise ValueError(
                "`save_strategy` must be steps, epoch or no, got best: a run resumes from its last checkpoint"
            )
        if self.load_best_model_at_end and self.eval_strategy == "steps" and self.eval_steps != self.save_steps:
            raise ValueError(
                f"`load_best_model_at_end` needs `save_steps` to be `eval_steps` ({self.eval_steps}), got "
                f"{self.save_steps}: the best evaluation may have no checkpoint"
            )
        if self.eval_strategy == "epoch" and self.save_strategy == "steps":
            raise ValueError(
                "`eval_strategy` epoch with `save_strategy` steps: a run that is killed between the two would miss an "
                "evaluation when it resumes; use the same for both"
            )
        if self.bpe_dropout and self.dataloader_persistent_workers:
            raise ValueError("`bpe_dropout` changes with the epoch, `dataloader_persistent_workers` must be False")
        if self.max_tokens_per_batch is not None and self.max_tokens_per_batch < 2:
            raise ValueError(f"`max_tokens_per_batch` must be at least 2, got {self.max_tokens_per_batch}")


def _check_loggers(report_to: str | list[str] | None) -> None:
    """Refuse loggers that are unknown or not installed, which the Trainer does only once the data are read."""
    for logger in [report_to] if isinstance(report_to, str) else report_to or []:
        callback = INTEGRATION_TO_CALLBACK.get(logger)
        if callback is None:
            accepted = ", ".join(["none", "all", *INTEGRATION_TO_CALLBACK])
            raise ValueError(f"`report_to` must be among {accepted}, got {logger!r}")
        try:
            callback()
        except (RuntimeError, ImportError) as error:
            raise ValueError(f"`report_to` {logger!r} cannot be used: {error}") from None
