"""Layer aggregation (Dou et al. 2019): combine the outputs of all layers of a stack into its result.

Legend: B batch, S positions, L layers, d model width, N output capsules. Every method works on each position alone.
"""

from typing import Any

import torch
from torch import nn
from transformers import initialization as init

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.modeling.initial_std import set_initial_std
from hf_capsule_mt.modeling.matrices import is_bare
from hf_capsule_mt.modeling.outputs import IterationWeights
from hf_capsule_mt.modeling.router import Router

# From so many positions for each unit of all layers a backward pass without the input capsules costs little: it saves
# a product of P rows and takes up to four of L * d
POSITIONS_PER_WIDTH = 2


class TopLayer(nn.Module):
    """No aggregation: the output of the top layer."""

    def forward(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool = False
    ) -> tuple[torch.Tensor, None]:
        return layer_outputs[-1], None


class ZeroGainLayerNorm(nn.LayerNorm):
    """Layer normalisation whose gain starts at zero, so that at first it adds nothing to a residual."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        init.zeros_(self.weight)


class LayerAggregation(nn.Module):
    """H~ = LayerNorm(dropout(aggregate(H^1 ... H^L))), which replaces H^L or, with a residual, is added to it."""

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.width = config.d_model
        self.dropout = config.dropout
        self.residual = config.layer_aggregation_residual
        # Deviation: with a residual the paper's code would be LayerNorm(H^L + H~), which is not H^L for any H~. Here
        # it is H^L + LayerNorm(H~) with a gain that starts at zero: training starts exactly at the model without
        # aggregation, at the same number of parameters.
        self.layer_norm = ZeroGainLayerNorm(config.d_model) if self.residual else nn.LayerNorm(config.d_model)

    def aggregate(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        """L tensors [B, S, d] -> H~ [B, S, d] before dropout and norm, and the routing weights [B, S, L, N]."""
        raise NotImplementedError

    def forward(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool = False
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        aggregated, weights = self.aggregate(layer_outputs, output_routing_weights)
        aggregated = nn.functional.dropout(aggregated, p=self.dropout, training=self.training)
        aggregated = self.layer_norm(aggregated)
        if self.residual:
            aggregated = layer_outputs[-1] + aggregated
        return aggregated, weights


class LinearCombination(LayerAggregation):
    """Equation 3: H~ = sum_l W_l H^l, the same at every position.

    W_l = U S_l through a hidden width of 4d without nonlinearity: the only reading of "trainable parameter matrices"
    that has the paper's number of parameters.
    """

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        self.fc1 = nn.Linear(num_layers * self.width, 4 * self.width)
        self.fc2 = nn.Linear(4 * self.width, self.width)

    def aggregate(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        return self.fc2(self.fc1(torch.cat(layer_outputs, dim=-1))), None


class DynamicCombination(LayerAggregation):
    """Equation 4: H~ = sum_l G_l * H^l elementwise, with weights G = FFN(H^1 ... H^L) for each position and unit."""

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        self.fc1 = nn.Linear(num_layers * self.width, 4 * self.width)
        self.fc2 = nn.Linear(4 * self.width, num_layers * self.width)

    def aggregate(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        concatenated = torch.cat(layer_outputs, dim=-1)  # [B, S, L * d]
        gates = self.fc2(nn.functional.relu(self.fc1(concatenated)))  # [B, S, L * d]
        return (gates * concatenated).unflatten(-1, (self.num_layers, self.width)).sum(dim=-2), None


class RoutedCombination(LayerAggregation, Router):
    """Equations 5 to 16: the layers are input capsules, routed to N output capsules whose concatenation is H~."""

    def __init__(self, config: CapsuleMarianConfig, num_layers: int) -> None:
        super().__init__(config, num_layers)
        num_capsules = config.layer_aggregation_num_capsules or config.d_model
        # F_l: each input capsule, from all layers or its own
        self.input_capsules = _capsule_map(config.layer_aggregation_capsule_input, num_layers, self.width, self.width)
        # V_l->*: each input capsule's votes for all outputs, from all input capsules or its own
        self.votes = _capsule_map(config.layer_aggregation_vote_input, num_layers, self.width, self.width, bias=False)
        self.add_routing(config, config.layer_aggregation, num_capsules, config.layer_aggregation_num_iterations)
        self.input_activation: nn.Module | None = None
        if self.method.takes_input_activation and config.em_input_activation != "none":
            # Deviation: equation 10 is linear, but what it computes is called a probability: a sigmoid follows
            self.activates_each_output = config.em_input_activation == "vector"
            activations = num_capsules if self.activates_each_output else 1
            self.input_activation = _capsule_map(
                config.layer_aggregation_vote_input, num_layers, self.width, activations
            )
        if config.layer_aggregation_init_std is not None:
            for one in (self.input_capsules, self.votes, self.input_activation):
                if one is not None:
                    set_initial_std(one, config.layer_aggregation_init_std)

    def aggregate(
        self, layer_outputs: list[torch.Tensor], output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        maps = [self.votes] if self.input_activation is None else [self.votes, self.input_activation]
        if self._keeps_little(layer_outputs[0], maps):
            linears = [tensor for one in (self.input_capsules, *maps) for tensor in (one.weight, one.bias)]
            mapped = _VotesOfLayers.apply(self.num_layers, *layer_outputs, *linears)
        else:
            input_capsules = self.input_capsules(torch.cat(layer_outputs, dim=-1))  # [B, S, L * d]
            mapped = [one(input_capsules) for one in maps]
        votes = mapped[0].unflatten(-1, (self.num_layers, self.num_capsules, -1))
        activation = None
        if self.input_activation is not None:
            activation = mapped[1].sigmoid()  # [B, S, L * N], or [B, S, L] for a scalar
            if self.activates_each_output:
                activation = activation.unflatten(-1, (self.num_layers, self.num_capsules))
        routed = self.route(votes, input_activation=activation, return_weights=output_routing_weights)
        return routed.capsules.flatten(-2), routed.weights

    def _keeps_little(self, layer_output: torch.Tensor, maps: list[nn.Module]) -> bool:
        """Return whether the backward pass should compute the input capsules' gradients without the input capsules."""
        if not torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing():
            return False
        few = layer_output.shape[:-1].numel() < POSITIONS_PER_WIDTH * self.num_layers * self.width
        if few or layer_output.device.type == "meta":
            return False
        return all(is_bare(linear) for linear in (self.input_capsules, *maps))


class _VotesOfLayers(torch.autograd.Function):
    """The maps W_k (F X + b) + b_k of the concatenated layers X [P, L * d], which keeps nothing of that size but X.

    With the gradient g_k [P, out] by the result of map k, G_k = g_k^T X and s_k = sum_p g_k, the gradients are

        by W_k: G_k F^T + s_k b^T       by F: sum_k W_k^T G_k       by b: sum_k W_k^T s_k       by b_k: s_k

    so the input capsules F X + b are not needed: one product of P rows less, and two more of matrices for each map.
    """

    @staticmethod
    def forward(ctx: Any, num_layers: int, *tensors: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """L layers [B, S, d], F, b, and W_k, b_k of every map -> its result [B, S, out]."""
        concatenated = torch.cat(tensors[:num_layers], dim=-1)  # type: ignore[arg-type]
        device = concatenated.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else concatenated.dtype
        # without autocast the layers keep their outputs anyway, else a copy in the dtype of the products
        kept = tensors[:num_layers] if dtype == concatenated.dtype else (concatenated.to(dtype),)
        ctx.save_for_backward(*kept, *tensors[num_layers:])
        ctx.num_kept, ctx.dtype = len(kept), dtype
        weight, bias, *maps = (None if tensor is None else tensor.to(dtype) for tensor in tensors[num_layers:])
        capsules = nn.functional.linear(concatenated.to(dtype), weight, bias)  # type: ignore[arg-type]
        return tuple(
            nn.functional.linear(capsules, matrix, vector)  # type: ignore[arg-type]
            for matrix, vector in zip(maps[::2], maps[1::2], strict=True)
        )

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        kept, linears = ctx.saved_tensors[: ctx.num_kept], ctx.saved_tensors[ctx.num_kept :]
        weight, bias = (tensor.to(ctx.dtype) for tensor in linears[:2])
        grad_capsules: Any = 0
        grad_weight: Any = 0
        grad_bias: Any = 0
        grads_of_maps: list[torch.Tensor | None] = []
        concatenated = torch.cat(kept, dim=-1).flatten(0, -2)  # X [P, L * d]
        for grad, map_weight, map_bias in zip(grads, linears[2::2], linears[3::2], strict=True):
            matrix, by_rows = map_weight.to(ctx.dtype), grad.flatten(0, -2)  # [out, L * d], [P, out]
            product, total = by_rows.t() @ concatenated, by_rows.sum(dim=0)  # G_k, s_k
            grads_of_maps += [torch.addr(product @ weight.t(), total, bias), None if map_bias is None else total]
            grad_weight = grad_weight + matrix.t() @ product
            grad_bias = grad_bias + matrix.t() @ total
            grad_capsules = grad_capsules + grad @ matrix
        grad_layers = (grad_capsules @ weight).chunk(len(ctx.needs_input_grad) - len(linears) - 1, dim=-1)
        return None, *grad_layers, grad_weight, grad_bias, *grads_of_maps


class PerCapsuleLinear(nn.Module):
    """A linear map of its own for each of L capsules: [..., L * in] -> [..., L * out]."""

    def __init__(self, num_capsules: int, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.num_capsules = num_capsules
        self.weight = nn.Parameter(torch.empty(num_capsules, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(num_capsules * out_features)) if bias else None

    def reset_parameters(self, std: float) -> None:
        """Initialise as transformers initialises a linear map."""
        init.normal_(self.weight, mean=0.0, std=std)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        capsules = hidden.unflatten(-1, (self.num_capsules, -1))  # [..., L, in]
        mapped = torch.einsum("...li,loi->...lo", capsules, self.weight).flatten(-2)  # [..., L * out]
        return mapped if self.bias is None else mapped + self.bias


def _capsule_map(source: str, num_capsules: int, in_features: int, out_features: int, bias: bool = True) -> nn.Module:
    """L * in -> L * out: each result from "all" capsules, or from its "own"."""
    if source == "own":
        return PerCapsuleLinear(num_capsules, in_features, out_features, bias)
    return nn.Linear(num_capsules * in_features, num_capsules * out_features, bias)


# Every method that is not one of `ROUTING_METHODS`
COMBINATIONS: dict[str, type[LayerAggregation]] = {
    "linear": LinearCombination,
    "dynamic_combination": DynamicCombination,
}


def build_layer_aggregation(config: CapsuleMarianConfig, num_layers: int, enabled: bool) -> nn.Module:
    """Return what follows a stack of layers: the configured aggregation, or the top layer's output as it is."""
    if not enabled:
        return TopLayer()
    return COMBINATIONS.get(config.layer_aggregation, RoutedCombination)(config, num_layers)
