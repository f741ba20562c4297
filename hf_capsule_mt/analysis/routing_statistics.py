"""Entropy and diversity of routing assignments (equations 17 and 18 of Dou et al. 2019).

Legend: N input capsules, M output capsules, C the assignment probabilities [..., N, M] of one iteration. A masked
input capsule is a row of zeros.
"""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.modeling.aggregation_base import weighted_layers
from hf_capsule_mt.modeling.outputs import RoutingWeights
from hf_capsule_mt.modeling.summed_losses import IGNORE_INDEX

DECIDED = 0.9  # an assignment above this is one to a single output capsule
# Routings whose input capsules are source words, not layers or heads
ROUTINGS_OF_WORDS = ("decoder.guidance", "encoder.aggregation")


def assignment_entropy(weights: torch.Tensor) -> torch.Tensor:
    """Return the mean entropy of the input capsules' assignments, in nats: C [..., N, M] -> [...].

        H = (1 / N) sum_n -sum_m C_nm ln C_nm

    0 if every input goes to one output, ln M if all outputs get the same. Masked inputs do not count.

    Deviation: equation 17 is printed without the minus sign and divided by the number of outputs as well, which gives
    -0.012 where the text says 6.24 = ln 512.
    """
    weights = weights.double()
    by_input = torch.special.entr(weights).sum(dim=-1)  # [..., N]
    is_kept = weights.sum(dim=-1) > 0
    return by_input.sum(dim=-1) / is_kept.sum(dim=-1).clamp(min=1)


def assignment_diversity(weights: torch.Tensor) -> torch.Tensor:
    """Return how much the output capsules' inputs differ: C [..., N, M] -> [...], 0 (all the same) to 1.

        1 - mean over pairs i < j of cos(C_i, C_j),    C_m in R^N the assignments to output capsule m

    0 for a single output capsule.

    Deviation: equation 18 is printed without "1 -", which gives 1 for the uniform first iteration, where the text says
    0.0 and that a higher score means more difference.
    """
    columns = torch.nn.functional.normalize(weights.double(), dim=-2)  # [..., N, M], unit columns
    number = columns.shape[-1]
    if number == 1:
        return columns.new_zeros(columns.shape[:-2])
    squared_sum = columns.sum(dim=-1).square().sum(dim=-1)  # |sum of columns|^2 = M + 2 (sum of all pairs' cosines)
    self_products = columns.square().sum(dim=(-2, -1))  # M, minus the number of zero columns
    return (1 - (squared_sum - self_products) / (number * (number - 1))).clamp(min=0)  # rounding may go below 0


def capsule_shares(weights: torch.Tensor) -> torch.Tensor:
    """Return the share of the inputs that each output capsule gets: C [..., N, M] -> [..., M], which sums to 1."""
    shares = weights.double().sum(dim=-2)
    return shares / shares.sum(dim=-1, keepdim=True)


def decided_share(weights: torch.Tensor) -> torch.Tensor:
    """[..., N, M] -> [...]: the share of the inputs whose largest weight is above `DECIDED`, without masked inputs."""
    is_real = weights.sum(dim=-1) > 0
    decided = (weights.amax(dim=-1) > DECIDED) & is_real
    return decided.double().sum(dim=-1) / is_real.sum(dim=-1).clamp(min=1)


def effective_number(shares: torch.Tensor) -> float:
    """Return how many capsules are in use: exp of the entropy of their mean shares [M].

    M if all get the same, 1 if one gets everything: routing has then collapsed.
    """
    return float(torch.special.entr(shares).sum().exp())


@dataclass
class IterationStatistics:
    """Means over the positions of one routing at one iteration."""

    entropy: float = 0.0
    diversity: float = 0.0
    decided: float = 0.0  # share of the inputs of which one output capsule gets more than 0.9
    positions: int = 0
    shares: torch.Tensor | None = field(default=None, repr=False)  # [M], of the inputs for each output capsule
    average: torch.Tensor | None = field(default=None, repr=False)  # [N, M], unless the inputs are words

    def add(self, weights: torch.Tensor, inputs_are_words: bool) -> None:
        """Add assignments [positions, N, M]; do not average them over sentences if the inputs are words."""
        self.positions += len(weights)
        share = len(weights) / max(self.positions, 1)
        self.entropy += share * (float(assignment_entropy(weights).mean()) - self.entropy)
        self.diversity += share * (float(assignment_diversity(weights).mean()) - self.diversity)
        self.decided += share * (float(decided_share(weights).mean()) - self.decided)
        shares = capsule_shares(weights).mean(dim=0)
        self.shares = shares if self.shares is None else self.shares + share * (shares - self.shares)
        if not inputs_are_words:
            average = weights.double().mean(dim=0)
            self.average = average if self.average is None else self.average + share * (average - self.average)

    @property
    def num_capsules(self) -> int:
        return 0 if self.shares is None else len(self.shares)

    @property
    def effective_capsules(self) -> float:
        return 0.0 if self.shares is None else effective_number(self.shares)

    def as_dict(self) -> dict[str, Any]:
        return {
            "entropy": self.entropy,
            "diversity": self.diversity,
            "effective_capsules": self.effective_capsules,
            "decided": self.decided,
            "positions": self.positions,
        }


def real_positions(routing: str, weights: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the assignments [positions, N, M] without padding.

    Routings of a stack have one position a token: [B, T, N, M]. A routing of a whole sentence has none: [B, N, M].
    """
    if weights.dim() == 3:
        return weights
    keep = batch["attention_mask"].bool() if routing.startswith("encoder") else batch["labels"].ne(IGNORE_INDEX)
    return weights[keep.to(weights.device)]


@torch.no_grad()
def routings_of(model: PreTrainedModel, batch: dict[str, torch.Tensor]) -> RoutingWeights:
    """Return the assignments of every routing of a model during forced decoding of the batch's labels.

    {} for a model without routing that has weights of layers (`layer_weights.py`). A model with neither is refused.
    """
    weights = _forced_weights(model.eval(), batch)
    if not weights and not weighted_layers(model):
        method = getattr(model.config, "layer_aggregation", "none")
        reason = f"; {method} multiplies each layer by a matrix" if method == "linear" else ""
        raise ValueError(
            f"{type(model).__name__} with this configuration has nothing to analyse: no routing, and no weights of "
            f"layers, as `layer_aggregation` dynamic_combination, dense, depth_attention, mudd and grn have{reason}"
        )
    return weights or {}


def _forced_weights(model: PreTrainedModel, batch: dict[str, torch.Tensor]) -> RoutingWeights | None:
    """Return the routing weights of a model of this package, or of adapters beside another."""
    if "output_routing_weights" in inspect.signature(model.forward).parameters:
        weights: RoutingWeights | None = model(**batch, output_routing_weights=True).routing_weights
        return weights
    if not any(name.endswith(".depth_adapter") for name, _ in model.named_modules()):
        return None
    from hf_capsule_mt.adapters import routing_weights  # late: it needs peft

    with routing_weights(model) as stacks:
        model(**batch)
        by_stack = {name.split(".")[-2]: beside.routing_weights for name, beside in stacks.items()}
    return {f"{stack}.adapter": weights for stack, weights in by_stack.items() if weights is not None}


def routing_statistics(
    model: PreTrainedModel, batches: Iterable[dict[str, torch.Tensor]]
) -> dict[str, tuple[IterationStatistics, ...]]:
    """Return entropy, diversity and, but for routings of words, average assignments of every routing and iteration."""
    statistics: dict[str, tuple[IterationStatistics, ...]] = {}
    has_batches = False
    for batch in batches:
        has_batches = True
        for routing, iterations in routings_of(model, batch).items():
            entries = statistics.setdefault(routing, tuple(IterationStatistics() for _ in iterations))
            for entry, weights in zip(entries, iterations, strict=True):
                entry.add(real_positions(routing, weights, batch), inputs_are_words=routing in ROUTINGS_OF_WORDS)
    if not has_batches:
        raise ValueError("`batches` must have at least one batch")
    return statistics


def encoded_batches(
    tokenizer: PreTrainedTokenizerBase,
    sources: list[str],
    targets: list[str],
    batch_size: int = 16,
    device: str = "cpu",
    max_length: int | None = None,
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield sentence pairs as model inputs with labels; truncate both sides to `max_length` tokens if given."""
    for start in range(0, len(sources), batch_size):
        batch = tokenizer(
            sources[start : start + batch_size],
            text_target=targets[start : start + batch_size],
            return_tensors="pt",
            padding=True,
            truncation=max_length is not None,
            max_length=max_length,
        )
        labels = batch["labels"].masked_fill(batch["labels"] == tokenizer.pad_token_id, IGNORE_INDEX)
        yield {
            name: tensor.to(device)
            for name, tensor in {**batch, "labels": labels}.items()
            if name in ("input_ids", "attention_mask", "labels")
        }
