"""The cross entropy and perplexity of an evaluation: `eval_loss` may have auxiliary losses in it."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from accelerate.state import GradientState, PartialState
from accelerate.utils import gather
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

MAX_EXPONENT = 700  # beyond which `math.exp` overflows


class EvaluationNLL(TrainerCallback):
    """Average `nll_loss` over examples, as the Trainer averages `eval_loss`; not for models under `torch.compile`."""

    def __init__(self) -> None:
        self._latest: torch.Tensor | None = None  # the loss of the batch, for each of its rows [B]
        self._total: torch.Tensor | None = None  # sum over the rows of all processes, and their number [2]

    @contextlib.contextmanager
    def listening(self, model: nn.Module) -> Iterator[None]:
        """Collect the losses that a model returns during the block."""
        hook = model.register_forward_hook(self._note)
        try:
            yield
        finally:
            hook.remove()

    def _note(self, model: nn.Module, inputs: Any, outputs: Any) -> None:
        loss = getattr(outputs, "nll_loss", None)
        if loss is not None and not torch.compiler.is_compiling():
            self._latest = loss.detach().double().repeat(len(outputs.logits))

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._latest is not None:
            rows, loader = gather(self._latest), GradientState()
            if PartialState().num_processes > 1 and loader.end_of_dataloader and loader.remainder > 0:
                rows = rows[: loader.remainder]  # without those that fill up the last batch
            latest = torch.stack([rows.sum(), rows.new_tensor(len(rows))])
            self._total = latest if self._total is None else self._total + latest
            self._latest = None

    def take(self, prefix: str) -> dict[str, float]:
        """Return the average of the evaluation that has just ended, if any, and its perplexity; start anew."""
        total, self._total, self._latest = self._total, None, None
        if total is None:
            return {}
        loss_sum, num_rows = total.tolist()
        loss = loss_sum / num_rows
        perplexity = math.exp(loss) if loss < MAX_EXPONENT else math.inf
        return {f"{prefix}_nll_loss": loss, f"{prefix}_perplexity": perplexity}
