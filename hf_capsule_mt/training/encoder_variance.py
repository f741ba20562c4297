"""Notice an encoder that gives all tokens of a sentence one vector, from which no decoder can tell the words apart."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from accelerate.utils import reduce
from torch import nn
from transformers.utils import logging

variance_logger = logging.get_logger("hf_capsule_mt.training")

# of an evaluation: a few hundred sentences tell 1 % from 30 %
NUM_BATCHES = 4
# of the released models it is 0.77 and more; early in a training that learns it may fall to 0.04
MIN_SHARE = 0.01


def token_variance(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Encoder states [B, S, d] and their mask [B, S] -> sums of squares [2]: around sentences' means, and of all.

    Sentences of one token have no part in it.
    """
    keep = mask.bool() & (mask.sum(dim=1, keepdim=True) > 1)  # [B, S]
    states = states.float().masked_fill(~keep.unsqueeze(-1), 0.0)
    means = states.sum(dim=1, keepdim=True) / keep.sum(dim=1).clamp(min=1).view(-1, 1, 1)  # [B, 1, d]
    between = (states - means).masked_fill(~keep.unsqueeze(-1), 0.0)
    return torch.stack([between.square().sum(), states.square().sum()])


class EncoderVariance:
    """Measure the share of the encoder's output that is variance between tokens, at each evaluation.

    A low share proves a collapse; a high one proves nothing, as tokens may differ in one direction alone.
    """

    def __init__(self) -> None:
        self._sums: torch.Tensor | None = None  # [2]
        self._num_batches = 0
        self._has_warned = False

    @contextlib.contextmanager
    def listening(self, model: nn.Module) -> Iterator[None]:
        """Look at the first batches with labels that a model gets during the block."""
        self._sums, self._num_batches = None, 0
        hook = model.register_forward_hook(self._note, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()

    def _note(self, model: nn.Module, args: Any, inputs: dict[str, Any], outputs: Any) -> None:
        states, mask = getattr(outputs, "encoder_last_hidden_state", None), inputs.get("attention_mask")
        is_wanted = self._num_batches < NUM_BATCHES and inputs.get("labels") is not None  # not a step of `generate`
        if not is_wanted or states is None or mask is None or torch.compiler.is_compiling():
            return
        if mask.shape == states.shape[:2]:
            sums = token_variance(states.detach(), mask)
            self._sums = sums if self._sums is None else self._sums + sums
            self._num_batches += 1

    def take(self, prefix: str, device: torch.device, is_main_process: bool) -> dict[str, float]:
        """Return the share in the evaluation that has just ended, under its name in the log; warn the first time."""
        sums = torch.zeros(2, device=device) if self._sums is None else self._sums
        between, total = reduce(sums, "sum").tolist()
        if total == 0:
            return {}
        share = between / total
        if share < MIN_SHARE and not self._has_warned:
            self._has_warned = True
            if is_main_process:
                variance_logger.warning(
                    f"{prefix}: the encoder has collapsed: `{prefix}_encoder_variance_share` is {share:.2g}, below "
                    f"{MIN_SHARE}, so all tokens of a sentence have nearly the same vector. If this does not change, "
                    "and a layer aggregation replaces the top layer, start from a trained plain model (`init_from`), "
                    "let it add (`layer_aggregation_placement: adds`), or set `layer_aggregation_start: top` and "
                    "`layer_aggregation_update_scale: 0.1`."
                )
        return {f"{prefix}_encoder_variance_share": share}
