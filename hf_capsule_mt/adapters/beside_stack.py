"""What hangs on a stack: its adapters, and hooks that note what each layer gives and put the combination in.

No module of the base is replaced: its weights keep their names, LoRA goes in before or after, and `detach` leaves no
trace. Hooks run outside of checkpointed layers from transformers 5.24 on.
"""

from collections.abc import Iterator
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import initialization as init
from transformers.utils import logging

from hf_capsule_mt.adapters.config import CapsuleConfig
from hf_capsule_mt.adapters.stacks import layers_of
from hf_capsule_mt.modeling.layer_aggregation import build_layer_aggregation, initialize_part
from hf_capsule_mt.modeling.modeling_capsule_marian import TransformerStack
from hf_capsule_mt.modeling.outputs import IterationWeights

adapter_logger = logging.get_logger("hf_capsule_mt.adapters")


def run_every_layer(probability: float) -> bool:
    """Replace `drops_layer` of one stack of a Capsule Marian: both stacks share the configuration that it reads."""
    if probability > 0.0:
        warn_of_layer_drop()
    return False


def warn_of_layer_drop() -> None:
    adapter_logger.warning_once("LayerDrop is switched off: an adapter aggregates the layers.")


@torch.no_grad()
def initialize(aggregation: nn.Module, std: float) -> None:
    """Initialise an aggregation as the models of this package do theirs."""
    for module in aggregation.modules():
        if isinstance(module, nn.Linear):
            init.normal_(module.weight, std=std)
            if module.bias is not None:
                init.zeros_(module.bias)
        initialize_part(module, std)


class Aggregations(nn.ModuleList):
    """The aggregations of one adapter in one stack: at its top, or before each layer from the second on, too."""

    def __init__(self, config: CapsuleConfig, num_layers: int, width: int) -> None:
        settings = config.aggregation_settings(width)
        numbers = range(1, num_layers + 1) if config.where == "every" else [num_layers]
        super().__init__(build_layer_aggregation(settings, number, True) for number in numbers)
        self.is_everywhere = config.where == "every"
        self.adds = config.placement == "adds"
        initialize(self, config.init_std)

    def after(self, layer: int) -> nn.Module:
        """Return the aggregation of the outputs of the first `layer` layers."""
        return self[layer - 1] if self.is_everywhere else self[-1]


class BesideStack(nn.Module, BaseTunerLayer):
    """The adapters of one stack.

    sources: in a forward pass, the embedding (0) and the outputs of the layers so far (1 ... L), [B, S, d].
    is_combined: whether a norm has read the top's combination in this forward pass.
    routing_weights: those of the last forward pass, if they are kept.
    """

    adapter_layer_names = ("capsule_layers",)

    def __init__(self, stack: nn.Module) -> None:
        super().__init__()
        self.capsule_layers = nn.ModuleDict()
        layers, _, self.width = layers_of(stack)
        self.num_layers = len(layers)
        self.sources: dict[int, torch.Tensor] = {}
        self.is_combined = False
        self.keeps_weights = False
        self.routing_weights: IterationWeights | None = None
        self.merged_adapters: list[str] = []
        self.handles = list(self.hook(stack))
        self.layerdrop: float | None = None  # of the stack, before it was switched off

    def update_layer(self, adapter_name: str, config: CapsuleConfig) -> None:
        """Add an adapter."""
        self.capsule_layers[adapter_name] = Aggregations(config, self.num_layers, self.width)
        self.set_adapter(adapter_name, inference_mode=config.inference_mode)

    @property
    def active_aggregations(self) -> list[Any]:
        if self.disable_adapters:
            return []
        return [self.capsule_layers[name] for name in self.active_adapters if name in self.capsule_layers]

    def is_top(self, states: Any) -> bool:
        """Return whether these are the last layer's output: as it is, or moved or cast by a wrapper such as FSDP."""
        top = self.sources.get(self.num_layers)
        if top is None or not isinstance(states, torch.Tensor):
            return False
        return states is top or (states.shape == top.shape and torch.equal(states, top.to(states)))

    def combine(self, layer: int) -> torch.Tensor | None:
        """Return what the active adapters make of the first `layer` layers' outputs [B, S, d]; `None`: nothing."""
        is_top = layer == self.num_layers
        adapters = [adapter for adapter in self.active_aggregations if is_top or adapter.is_everywhere]
        if not adapters:
            return None
        if len(adapters) > 1 and not all(adapter.adds for adapter in adapters):
            raise ValueError('adapters that are active together must have `placement` "adds"')
        missing = [str(number) for number in range(layer + 1) if number not in self.sources]
        if missing:
            raise ValueError(
                f"an adapter needs the embedding (0) and the outputs of layers 1 to {layer}, but has none of "
                f"{', '.join(missing)}: either the stack skipped these layers (switch that off), or gradient "
                'checkpointing runs them again, which with `where` "every" needs transformers 5.24 or newer'
            )
        top = result = self.sources[layer]
        for adapter in adapters:
            aggregation = adapter.after(layer)
            weight = next(aggregation.parameters())
            first = 0 if aggregation.reads_embedding else 1
            states = [self.sources[number].to(weight) for number in range(first, layer + 1)]
            combined, weights = aggregation(states, self.keeps_weights)
            if weights is not None:
                self.routing_weights = weights
            combined = combined.to(top)
            result = combined if len(adapters) == 1 else result + (combined - top)
        return result

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Do nothing: a sum of layers has no place in the base's weights (`merging.py`). LoRA beside it merges."""

    def unmerge(self) -> None:
        """Do nothing."""

    def detach(self, stack: Any) -> None:
        """Leave the stack as it was before it had adapters."""
        for handle in self.handles:
            handle.remove()
        if self.layerdrop is not None:
            stack.layerdrop = self.layerdrop
        vars(stack).pop("drops_layer", None)

    # ---- hooks
    def hook(self, stack: nn.Module) -> Iterator[Any]:
        layers, norms, _ = layers_of(stack)
        yield stack.register_forward_pre_hook(self.before_stack)
        for number, layer in enumerate(layers):
            yield layer.register_forward_pre_hook(BeforeLayer(self, number), with_kwargs=True)
            yield layer.register_forward_hook(AfterLayer(self, number + 1))
        for norm in norms:
            yield norm.register_forward_pre_hook(self.before_norm)
        yield stack.register_forward_hook(self.after_stack)

    def before_stack(self, stack: Any, args: Any) -> None:
        if getattr(stack, "_is_replica", False):
            raise ValueError(
                "an adapter cannot run under nn.DataParallel, whose threads share what it notes of the layers: start "
                "a process for each device (torchrun, accelerate launch), or show a Trainer one device "
                "(CUDA_VISIBLE_DEVICES=0)"
            )
        self.sources.clear()
        self.is_combined = False
        if not stack.training or not self.active_aggregations:
            return
        if getattr(stack, "layerdrop", 0.0) > 0.0:
            warn_of_layer_drop()
            self.layerdrop, stack.layerdrop = stack.layerdrop, 0.0
        if isinstance(stack, TransformerStack):
            stack.drops_layer = run_every_layer  # type: ignore[method-assign]

    def before_norm(self, norm: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Put the combination into a norm that reads the last layer's output."""
        if self.is_combined or not args or not self.is_top(args[0]):
            return None
        self.is_combined = True
        result = self.combine(self.num_layers)
        return None if result is None else (result, *args[1:])

    def after_stack(self, stack: nn.Module, args: Any, output: Any) -> Any:
        """Put the combination in the place of what leaves the stack, if no norm has read it."""
        result = None
        if self.active_aggregations and not self.is_combined:
            last = output[0] if isinstance(output, tuple) else getattr(output, "last_hidden_state", None)
            self.check_end(stack, last)
            result = self.combine(self.num_layers)
        self.sources.clear()
        if result is None:
            return None
        if isinstance(output, tuple):
            return (result, *output[1:])
        output["last_hidden_state"] = result
        if output.get("hidden_states") is not None:
            output["hidden_states"] = (*output["hidden_states"][:-1], result)
        return output

    def check_end(self, stack: nn.Module, states: Any) -> None:
        """Raise a `ValueError` unless what leaves the stack is the last layer's output, which an adapter replaces."""
        if self.num_layers in self.sources and not self.is_top(states):
            shape = list(states.shape) if isinstance(states, torch.Tensor) else f"a {type(states).__name__}"
            top_shape = list(self.sources[self.num_layers].shape)
            raise ValueError(
                f"{type(stack).__name__} must end with its last layer's output {top_shape}, or a norm of it, but ends "
                f"with something else, {shape}: an adapter cannot stand there. Choose another `side`, or another model"
            )


class BeforeLayer:
    """A hook: note the embedding, and give the layer the sum of all below where an adapter makes one."""

    def __init__(self, beside: BesideStack, layers_below: int) -> None:
        self.beside, self.layers_below = beside, layers_below

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.layers_below == 0:
            self.beside.sources[0] = args[0] if args else kwargs["hidden_states"]
            return None
        combined = self.beside.combine(self.layers_below)
        if combined is None:
            return None
        return ((combined, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": combined})


class AfterLayer:
    """A hook: note the layer's output."""

    def __init__(self, beside: BesideStack, number: int) -> None:
        self.beside, self.number = beside, number

    def __call__(self, layer: nn.Module, args: Any, output: Any) -> None:
        self.beside.sources[self.number] = output[0] if isinstance(output, tuple) else output
