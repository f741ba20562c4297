"""The weights of a live model, for the writers of `capsule_mt.models`."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from capsule_mt.engine.program import Program, Tensor, UnsupportedModelError
from capsule_mt.models.parts import Parts
from capsule_mt.models.registry import WRITERS, write_program

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
PACKAGES = ("hf_capsule_mt", "transformers", "transformers_modules")  # whose models the writers know
# endings of the names of attributes that matter in training only
TRAINING = ("training", "gradient_checkpointing", "name_or_path", "dropout", "layerdrop")
PLAIN = (nn.Parameter, torch.Tensor)  # subclasses may be quantised


class StateDict:
    """Implements `capsule_mt.models.weights.Weights` as a file does: without sinusoids, and tied weights once."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        names: dict[int, str] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        unsaved = set(getattr(model, "_keys_to_ignore_on_save", None) or ())  # Pegasus saves its sinusoids
        for name, tensor in model.state_dict(keep_vars=True).items():
            if not isinstance(tensor, torch.Tensor) or names.setdefault(id(tensor), name) != name:
                continue
            create = getattr(model.get_submodule(name.rpartition(".")[0]), "create_weight", None)
            if create is None or name not in unsaved or not torch.equal(tensor, create().to(tensor.dtype)):
                self.tensors[name] = tensor

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self.tensors:
            raise self.problem(name, f"lacks `{name}`, which the configuration requires")
        tensor = self.tensors[name]
        if type(tensor) not in PLAIN or not tensor.is_floating_point():
            raise self.problem(name, f"a {type(tensor).__name__} of {tensor.dtype} is not supported by the engine")
        return tuple(tensor.shape)

    def read(self, name: str) -> Tensor:
        tensor = self.tensors[name].detach()
        tensor = (tensor if tensor.dtype in DTYPES else tensor.float()).contiguous()
        return Tensor(tensor.view(-1).view(torch.uint8).numpy(), DTYPES[tensor.dtype], tuple(tensor.shape))

    def problem(self, name: str, message: str) -> ValueError:
        return UnsupportedModelError(f"{message} (`{name}` of the model)")


def _check_modules(model: PreTrainedModel) -> None:
    """Refuse a model whose modules differ from its configuration, from which the program is written."""
    if type(model).__module__.partition(".")[0] not in PACKAGES:
        raise UnsupportedModelError(f"{_name_of(model)} is not supported by the engine")
    if model.config.model_type not in WRITERS:
        return  # the error names it
    with torch.device("meta"):
        described = dict(type(model)(copy.deepcopy(model.config)).named_modules(remove_duplicate=False))
    for path, module in model.named_modules(remove_duplicate=False):
        counterpart = described.pop(path, None)
        if type(module) is not type(counterpart):
            raise UnsupportedModelError(f"{_name_of(module)} is not supported by the engine (`{path}` of the model)")
        if type(module) in (nn.Linear, nn.Embedding, nn.Dropout):
            continue  # their weights describe them
        ours, theirs = vars(module), vars(counterpart)
        for name in [name for name in ours if name in theirs or callable(ours[name])]:
            if not name.startswith("_") and not name.endswith(TRAINING) and _differ(ours[name], theirs.get(name)):
                setting = getattr(ours[name], "__name__", repr(ours[name]))
                raise UnsupportedModelError(
                    f"`{path}.{name}` {setting} differs from the configuration, so the engine does not support it"
                )
    for path, module in described.items():
        raise UnsupportedModelError(f"a model without `{path}`, a {_name_of(module)}, is not supported by the engine")


def _differ(value: Any, described: Any) -> bool:
    """Whether an attribute that changes what a module computes differs from the described one."""
    is_setting = callable(value) or isinstance(value, (bool, int, float, str, tuple, dict))
    return is_setting and not isinstance(value, nn.Module) and bool(value != described)


def _name_of(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__name__}"


def program_of(model: PreTrainedModel) -> tuple[Program, Parts]:
    """Write the program of a live model; refuse what programs cannot express."""
    if not isinstance(model, PreTrainedModel):
        raise UnsupportedModelError(
            f"`to_fast` takes transformers models, got a {type(model).__name__}: merge_and_unload() merges peft's"
        )
    weight = next(model.parameters())
    if not weight.is_floating_point() or any(not parameter.is_cpu for parameter in model.parameters()):
        raise UnsupportedModelError(
            f"the native engine is for floating point models on a CPU, got {weight.dtype} on {weight.device}"
        )
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        raise UnsupportedModelError("a model with forward hooks is not supported by the engine")
    _check_modules(model)
    return write_program(model.config.to_dict(), StateDict(model))
