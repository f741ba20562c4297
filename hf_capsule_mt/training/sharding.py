"""Train with parameters, gradients and optimiser sharded over processes (FSDP2), and generate in between."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

# the decoder of RNMT projects the keys of a source with this layer's weights before it calls the layer
READ_FROM_OUTSIDE = {"ConditionalGRULayer"}


@torch.no_grad()
def gather_weights(sharded: nn.Module, plain: nn.Module) -> nn.Module:
    """Copy the weights of a model that `fully_shard` has sharded into a plain one, on every process; return that one.

    A sharded model cannot `generate()`: each step of each layer gathers weights, so all processes would have to take
    the same steps. Copy the model before you shard it, and generate with the copy, each process on its own:
    docs/training.md has the lines. Call it on all processes. It holds one gathered tensor at a time beside the copy.
    """
    state = plain.state_dict()
    for name, value in sharded.state_dict().items():
        state[name].copy_(value.full_tensor() if isinstance(value, DTensor) else value)
    return plain


def is_sharded(model: nn.Module) -> bool:
    return any(isinstance(weight, DTensor) for weight in model.parameters())


def refuse_recomputed_dropout(accelerator: Accelerator, model: nn.Module) -> None:
    """Refuse accelerate's activation checkpointing of a model with dropout.

    For FSDP2, accelerate 1.15 wraps layers with `preserve_rng_state=False`: the backward pass recomputes a layer with
    other dropout than its loss had, and the gradients are wrong.
    """
    plugin: Any = accelerator.state.fsdp_plugin
    config: Any = getattr(model, "config", None)
    dropout = {name: value for name, value in vars(config).items() if name.endswith("dropout") and value}
    if plugin.activation_checkpointing and plugin.fsdp_version == 2 and dropout:
        values = ", ".join(f"`{name}` {value}" for name, value in dropout.items())
        raise ValueError(
            f"`fsdp_config`: `activation_checkpointing` must be false for a model with dropout, got {values}: "
            "accelerate would recompute layers with other dropout, and gradients would be wrong. Set the training "
            "argument `activation_checkpointing` (`gradient_checkpointing` before transformers 5.23) instead"
        )


def let_accelerate_shard_on_cpus() -> None:
    """Make accelerate obey `fsdp` on CPUs, where it would silently train with DDP; call it before the Trainer."""
    if PartialState().distributed_type == DistributedType.MULTI_CPU:
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU


def shard_what_can_be(accelerator: Accelerator) -> None:
    """Let accelerate shard the layers that are entered through `forward` alone, and leave the rest to the whole model.

    It would make a group of the input and the output embeddings, too. Where encoder and decoder are tied to them,
    PyTorch refuses to train: a weight belongs to one group.
    """
    prepare = accelerator.prepare

    def prepare_for_sharding(*objects: Any, **settings: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for entry in objects:
                if isinstance(entry, PreTrainedModel):
                    layers = set(entry._no_split_modules or ()) - READ_FROM_OUTSIDE
                    stack.enter_context(_replaced(entry, "_no_split_modules", layers))
                    stack.enter_context(_replaced(entry, "get_input_embeddings", lambda: None))
                    stack.enter_context(_replaced(entry, "get_output_embeddings", lambda: None))
            return prepare(*objects, **settings)

    accelerator.prepare = prepare_for_sharding


@contextlib.contextmanager
def _replaced(model: nn.Module, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of one object during the block, whether it is the object's own or its class's."""
    old = model.__dict__.get(name)
    setattr(model, name, value)
    try:
        yield
    finally:
        delattr(model, name)
        if old is not None:
            setattr(model, name, old)
