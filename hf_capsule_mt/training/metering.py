"""What the log says of each step beside the loss: its parts."""

import math
from collections.abc import Mapping

import torch
from accelerate.utils import reduce
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

# the parts of the loss in a model's output
LOSS_PARTS = ("nll_loss", "bow_loss", "bca_loss")


class StepMeter(TrainerCallback):
    """Sum the parts of the loss, and add their means to what the Trainer logs of its steps.

    Its `on_log` has to come before the loggers'.
    """

    def __init__(self) -> None:
        self._restart(0)

    def _restart(self, step: int) -> None:
        self._parts: dict[str, torch.Tensor] = {}
        self._step = step

    def add(self, parts: Mapping[str, torch.Tensor]) -> None:
        """Add the parts of the loss of a batch."""
        for name, value in parts.items():
            self._parts[name] = self._parts.get(name, 0) + value.detach()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self._restart(state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: object,
    ) -> None:
        if logs is None or not {"loss", "learning_rate"} <= logs.keys() or not self._parts:  # not of training steps
            return
        names = sorted(self._parts)
        # with `num_items_in_batch` the processes' parts add up, as do the accumulated batches'
        parts = reduce(torch.stack([self._parts[name].float().to(args.device) for name in names]), "sum").tolist()
        steps = max(state.global_step - self._step, 1)
        measured = {name: value / steps for name, value in zip(names, parts, strict=True)}
        refuse_divergence(measured, state.global_step, args)
        logs.update(measured)
        state.log_history[-1].update(measured)  # the Trainer has put its copy there
        self._restart(state.global_step)


def refuse_divergence(values: Mapping[str, float], step: int, args: TrainingArguments) -> None:
    """Raise for a value that is not finite. In float16 the loss scaler skips such a step."""
    lost = [name for name, value in values.items() if not math.isfinite(value)]
    if lost and not args.fp16:
        raise FloatingPointError(
            f"{lost[0]} is not finite at step {step}: the training has diverged. A lower `learning_rate` or more "
            "`warmup_steps` may help; earlier checkpoints are unharmed"
        )
