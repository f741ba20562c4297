"""The weights of a live model, for the writers of `capsule_mt.models`."""

from collections.abc import Iterator

import torch
from torch import nn
from transformers import PreTrainedModel

from capsule_mt.engine.program import Program, Tensor, UnsupportedModelError
from capsule_mt.models.parts import Parts
from capsule_mt.models.registry import write_program

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
PLAIN = (nn.Parameter, torch.Tensor)  # subclasses may be quantised


class StateDict:
    """Implements `capsule_mt.models.weights.Weights`; of tied weights the first name alone is here."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        names: dict[int, str] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        for name, tensor in model.state_dict(keep_vars=True).items():
            if isinstance(tensor, torch.Tensor) and names.setdefault(id(tensor), name) == name:
                self.tensors[name] = tensor

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        module, tensor = _module_at(self.model, name.rpartition(".")[0]), self.tensors.get(name)
        is_changed = isinstance(module, nn.Linear) and type(module) is not nn.Linear
        if tensor is None or is_changed or type(tensor) not in PLAIN or not tensor.is_floating_point():
            raise self.problem(name, f"a {type(module).__module__}.{type(module).__name__} has no fast form")
        return tuple(tensor.shape)

    def read(self, name: str) -> Tensor:
        tensor = self.tensors[name].detach()
        tensor = (tensor if tensor.dtype in DTYPES else tensor.float()).contiguous()
        return Tensor(tensor.view(-1).view(torch.uint8).numpy(), DTYPES[tensor.dtype], tuple(tensor.shape))

    def problem(self, name: str, message: str) -> ValueError:
        return UnsupportedModelError(f"{message} (`{name}` of the model)")


def _module_at(model: nn.Module, place: str) -> nn.Module:
    """Return the module of this name, or the last one on the way to it that there is."""
    for child in filter(None, place.split(".")):
        found = getattr(model, child, None)
        if not isinstance(found, nn.Module):
            break
        model = found
    return model


def program_of(model: PreTrainedModel) -> tuple[Program, Parts]:
    """Write the program of a live model; refuse what no program can say."""
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
        raise UnsupportedModelError("a model with forward hooks has no fast form")
    return write_program(model.config.to_dict(), StateDict(model))
