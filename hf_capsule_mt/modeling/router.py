"""The routing of a seam of Capsule Marian: its method, its settings, and what it learns.

Legend: N input capsules, M output capsules, D width of an output capsule.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import nn
from transformers import initialization as init

from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.routing.common import RoutingOutput
from hf_capsule_mt.routing.dynamic import dynamic_routing
from hf_capsule_mt.routing.em import em_routing


class RoutingMethod(NamedTuple):
    """How a router calls one routing function.

    route: a function of votes [..., N, M, D], of `num_iterations` and `return_weights`, and of the arguments below.
    settings: its keyword arguments that come from the configuration, and the fields that hold them.
    constants: its keyword arguments that this method fixes.
    parameters: its keyword arguments that are learned, each a tensor [M] that starts at zero.
    """

    route: Callable[..., RoutingOutput]
    settings: Mapping[str, str] = {}
    constants: Mapping[str, bool] = {}
    parameters: tuple[str, ...] = ()


# Every routing method that `layer_aggregation` and `head_aggregation` can name
ROUTING_METHODS: dict[str, RoutingMethod] = {
    # Algorithm 1 of Dou et al. 2019.
    # Deviation: the total input is divided by its total weight by default, as Li et al. do. Equation 6 of Dou et al.
    # does not divide, which leaves C uniform to 1e-2 at the 512 capsules of their best setting.
    "dynamic_routing": RoutingMethod(
        dynamic_routing, settings={"normalize_total_input": "layer_aggregation_normalize_total_input"}
    ),
    # Algorithm 1 of Li et al. 2019, which normalises the total input before it is squashed
    "simple_routing": RoutingMethod(dynamic_routing, constants={"normalize_total_input": True}),
    # Algorithm 2 of Dou et al. and of Li et al. The betas start at zero: Hinton et al. start with half the capsules
    # active.
    "em_routing": RoutingMethod(
        em_routing,
        settings={"lambda_final": "em_lambda_final", "min_variance": "em_min_variance"},
        parameters=("beta_a", "beta_u"),
    ),
}


class Router(nn.Module):
    """Base of the modules that route votes to output capsules by one of `ROUTING_METHODS`.

    A seam inherits from it and calls `add_routing` in its `__init__`. So the parameters of the method are the seam's
    own, and a checkpoint names them after the seam: `encoder.layer_aggregation.beta_a`.
    """

    method: RoutingMethod
    num_capsules: int

    def add_routing(self, config: CapsuleMarianConfig, method: str, num_capsules: int, num_iterations: int) -> None:
        """Set up routing by `method` to `num_capsules` output capsules, and register the method's parameters."""
        self.method = ROUTING_METHODS[method]
        self.num_capsules = num_capsules
        settings = {argument: getattr(config, field) for argument, field in self.method.settings.items()}
        self.arguments = {"num_iterations": num_iterations, **self.method.constants, **settings}
        for name in self.method.parameters:
            self.register_parameter(name, nn.Parameter(torch.zeros(num_capsules)))

    def reset_parameters(self) -> None:
        """Initialise the parameters of the method, and no other of the seam."""
        for name in self.method.parameters:
            init.zeros_(getattr(self, name))

    def route(
        self, votes: torch.Tensor, *, input_activation: torch.Tensor | None = None, return_weights: bool = False
    ) -> RoutingOutput:
        """Route votes [..., N, M, D] to capsules [..., M, D], with routing weights [..., N, M] if asked for.

        Args:
            input_activation: [..., N] or [..., N, M], for methods that take one.
        """
        tensors = {name: getattr(self, name) for name in self.method.parameters}
        if input_activation is not None:
            tensors["input_activation"] = input_activation
        return self.method.route(votes, return_weights=return_weights, **self.arguments, **tensors)
