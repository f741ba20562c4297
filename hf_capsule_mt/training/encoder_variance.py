"""Notice an encoder that gives all tokens of a sentence one vector, from which no decoder can tell the words apart."""

import contextlib
import math
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
# trainings that failed had 1.5 to 3, those that learnt 4.7 and more, and released models 25 to 41
MIN_DIRECTIONS = 3.75
# of its directions, an encoder narrower than 60 may use fewer: untrained ones of 16 have about 4
MIN_SHARE_OF_DIRECTIONS = 1 / 16


def token_variance(states: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Encoder states [B, S, d], mask [B, S] -> their sum of squares [], their scatter around sentences' means [d, d].

    Sentences of one token have no part in it.
    """
    keep = mask.bool() & (mask.sum(dim=1, keepdim=True) > 1)  # [B, S]
    states = states.float().masked_fill(~keep.unsqueeze(-1), 0.0)
    means = states.sum(dim=1, keepdim=True) / keep.sum(dim=1).clamp(min=1).view(-1, 1, 1)  # [B, 1, d]
    between = (states - means).masked_fill(~keep.unsqueeze(-1), 0.0).flatten(0, 1)  # [B S, d]
    return states.square().sum(), between.mT @ between


def directions(scatter: torch.Tensor) -> float:
    """Return the participation ratio of a scatter matrix [d, d]: in how many directions its variance lies.

        (sum_i l_i)^2 / sum_i l_i^2,    l_i the eigenvalues

    1 if all lies in one direction, d if every direction has the same.
    """
    return float(scatter.trace().square() / scatter.square().sum())


_WARNING = (
    "{prefix}: the encoder has collapsed: `{name}` is {value:.2g}, below {minimum}, so the tokens of a sentence have "
    "nearly the same vector, or differ in few directions. If this does not change, and a layer aggregation replaces "
    "the top layer, start from a trained plain model (`init_from`), let it add (`layer_aggregation_placement: adds`), "
    "or set `layer_aggregation_start: top` and `layer_aggregation_update_scale: 0.1`."
)


class EncoderVariance:
    """Measure how the encoder tells tokens apart, at each evaluation.

    - the share of its output that is variance between the tokens of a sentence. A low share proves a collapse; a high
      one proves nothing, as tokens may differ in one direction alone;
    - in how many directions they differ (`directions`).
    """

    def __init__(self) -> None:
        self._sums: torch.Tensor | None = None  # [1 + d^2]
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
            total, scatter = token_variance(states.detach(), mask)
            sums = torch.cat([total.view(1), scatter.flatten()])
            self._sums = sums if self._sums is None else self._sums + sums
            self._num_batches += 1

    def take(self, prefix: str, device: torch.device, is_main_process: bool) -> dict[str, float]:
        """Return the numbers of the evaluation that has just ended, if any, by their names in the log; warn once."""
        # a process may have had no batch, and must still take part in the sums
        size = 0 if self._sums is None else len(self._sums)
        sizes, num_processes = reduce(torch.tensor([size, size > 0], device=device), "sum").tolist()
        if num_processes == 0:
            return {}
        own = torch.zeros(int(sizes / num_processes), device=device) if self._sums is None else self._sums
        sums = reduce(own, "sum")
        if sums[0] == 0:
            return {}
        total, scatter = sums[0], sums[1:].view(math.isqrt(len(sums) - 1), -1)
        share = float(scatter.trace() / total)
        measured = {f"{prefix}_encoder_variance_share": share}
        if scatter.trace() > 0:
            measured[f"{prefix}_encoder_directions"] = directions(scatter)
        limits = (MIN_SHARE, min(MIN_DIRECTIONS, MIN_SHARE_OF_DIRECTIONS * len(scatter)))
        for (name, value), minimum in zip(measured.items(), limits, strict=False):
            if value < minimum and not self._has_warned:
                self._has_warned = True
                if is_main_process:
                    variance_logger.warning(_WARNING.format(prefix=prefix, name=name, value=value, minimum=minimum))
        return measured
