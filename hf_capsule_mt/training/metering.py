"""What the log says of training steps beside the loss: its parts, and the tokens and sentences per second."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping

import torch
from accelerate.utils import reduce
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

# the parts of the loss in a model's output
LOSS_PARTS = ("nll_loss", "bow_loss", "bca_loss")


class StepMeter(TrainerCallback):
    """Sum the parts of the loss, tokens and sentences; add means and speeds to what the Trainer logs of its steps.

    Its `on_log` has to come before the loggers'.
    """

    def __init__(self) -> None:
        self._all_sentences = 0  # of the training so far
        self._restart(0)

    def _restart(self, step: int) -> None:
        """Begin to count what the next log tells."""
        self._parts: dict[str, torch.Tensor] = {}
        self._tokens: torch.Tensor | int = 0
        self._sentences = 0
        self._step = step
        self._start = time.perf_counter()

    def add(self, parts: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor]) -> None:
        """Add a batch: the parts of its loss, its tokens and its sentences."""
        for name, value in parts.items():
            self._parts[name] = self._parts.get(name, 0) + value.detach()
        self._tokens = self._tokens + inputs["attention_mask"].sum() + inputs["labels"].ne(-100).sum()
        self._sentences += len(inputs["labels"])

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._start += time.perf_counter() - begin

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self._all_sentences = 0
        self._restart(state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: object,
    ) -> None:
        if logs is None:
            return
        if "train_samples_per_second" in logs:
            self._log_sentences(args, state, logs)
        if "loss" not in logs or "learning_rate" not in logs:  # not of training steps
            return
        names = sorted(self._parts)
        counts = [torch.as_tensor(self._tokens).float(), torch.tensor(float(self._sentences))]
        values = [self._parts[name].float() for name in names] + counts
        # with `num_items_in_batch` the processes' parts add up, as do the accumulated batches'
        *parts, tokens, sentences = reduce(torch.stack([value.to(args.device) for value in values]), "sum").tolist()
        steps = max(state.global_step - self._step, 1)
        measured = {name: value / steps for name, value in zip(names, parts, strict=True)}
        refuse_divergence(measured, state.global_step, args)
        seconds = max(time.perf_counter() - self._start, 1e-9)
        measured["tokens_per_second"] = round(tokens / seconds, 1)
        measured["sentences_per_second"] = round(sentences / seconds, 1)
        logs.update(measured)
        state.log_history[-1].update(measured)  # the Trainer has put its copy there
        self._all_sentences += self._sentences
        self._restart(state.global_step)

    def _log_sentences(self, args: TrainingArguments, state: TrainerState, logs: dict[str, float]) -> None:
        """Correct the speed of a whole training, for which the Trainer multiplies steps by its own batch size."""
        all_sentences = torch.tensor(float(self._all_sentences + self._sentences), device=args.device)
        speed = reduce(all_sentences, "sum").item() / max(logs["train_runtime"], 1e-9)
        corrected = {"train_samples_per_second": round(speed, 3)}
        logs.update(corrected)
        state.log_history[-1].update(corrected)


def refuse_divergence(values: Mapping[str, float], step: int, args: TrainingArguments) -> None:
    """Raise for a value that is not finite, but not in float16, where the loss scaler skips such a step."""
    lost = [name for name, value in values.items() if not math.isfinite(value)]
    if lost and not args.fp16:
        raise FloatingPointError(
            f"{lost[0]} is not finite at step {step}: the training has diverged. A lower `learning_rate` or more "
            "`warmup_steps` may help; earlier checkpoints are undamaged"
        )
