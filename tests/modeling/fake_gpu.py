"""Training and decoding on a GPU that is not there: every tensor is on it, and none is read or moved.

    python -m tests.modeling.fake_gpu            # a mix or two of each family
    python -m tests.modeling.fake_gpu --all

PyTorch's fake tensors know device, dtype and shape and no values. The device is one that Python registers, because a
PyTorch without CUDA has no gradients on "cuda"; registering it changes the whole process, hence a process of its own.
Prints every copy between host and device; exits with an error at two devices in one operation, or at a read.
"""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hf_capsule_mt.modeling import matrices
from tests.modeling import test_capsnmt, test_capsule_marian, test_capsule_rnmt
from tests.modeling.model_checks import QUICK_MIXES

DEVICE = "gpu"
FAMILIES = (test_capsule_marian.TestCapsuleMarian, test_capsule_rnmt.TestCapsuleRNMT, test_capsnmt.TestCapsNMT)


class Device(backend_registration._DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


def register() -> None:
    """Register the device, and what fake tensors lack for it."""
    backend_registration._setup_privateuseone_for_python_backend(DEVICE, backend_module=Device())
    library = torch.library.Library("aten", "IMPL")
    library.impl("_thnn_fused_gru_cell", gru_cell, "Meta")
    library.impl("_thnn_fused_gru_cell_backward", gru_cell_backward, "Meta")
    register.library = library  # type: ignore[attr-defined]  # it is undone with the object
    torch.tensor = tensor  # type: ignore[assignment]
    matrices.is_plain = lambda linear: True  # a fake parameter has another type than a parameter


def gru_cell(from_input: Any, from_state: Any, state: Any, *biases: Any) -> Any:
    return torch.empty_like(state), state.new_empty(len(state), 5 * state.shape[1])


def gru_cell_backward(grad: Any, workspace: Any, has_bias: bool) -> Any:
    rows, width = grad.shape
    shapes = ((rows, 3 * width), (rows, 3 * width), (rows, width), (3 * width,), (3 * width,))
    return tuple(grad.new_empty(shape) for shape in shapes)


def tensor(
    data: Any, *, device: Any = None, _tensor: Callable[..., torch.Tensor] = torch.tensor, **settings: Any
) -> Any:
    """Stand in for `torch.tensor`, which computes on the device itself."""
    made = _tensor(data, **settings)
    return made if device is None else torch.empty(made.shape, dtype=made.dtype, device=device)


def on_device(values: torch.Tensor) -> torch.Tensor:
    return torch.empty(values.shape, dtype=values.dtype, device=DEVICE)


def move(model: nn.Module) -> nn.Module:
    """Give a model parameters and buffers on the device; tied ones stay tied."""
    moved: dict[torch.Tensor, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                if parameter not in moved:
                    moved[parameter] = nn.Parameter(on_device(parameter), parameter.requires_grad)
                setattr(module, name, moved[parameter])
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = on_device(buffer)
    return model


class Copies(TorchDispatchMode):
    """Note the operations that touch two devices, by the line of their caller."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        touched = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        if len({tensor.device.type for tensor in touched if tensor.dim() or tensor.device.type != "cpu"}) > 1:
            frame: Any = sys._getframe()
            while "/torch/" in frame.f_code.co_filename or frame.f_code.co_filename == __file__:
                frame = frame.f_back
            self.found[f"{func} in {frame.f_code.co_filename}:{frame.f_lineno}"] += 1
        return result


def run_model(model: Any) -> None:
    """Train a step, and decode three with rows that change places, with both caches."""
    shapes = {"input_ids": (3, 7), "attention_mask": (3, 7), "labels": (3, 6)}
    batch = {name: torch.empty(shape, dtype=torch.long, device=DEVICE) for name, shape in shapes.items()}
    model.train()(**batch).loss.backward()
    assert all(parameter.grad.device.type == DEVICE for parameter in model.parameters() if parameter.grad is not None)
    model.eval()
    mask = batch["attention_mask"]
    with torch.no_grad():
        encoded = model.get_encoder()(batch["input_ids"], attention_mask=mask)
        caches = [None, model.new_cache(static=True)] if hasattr(model, "new_cache") else [None]
        for cache in caches:
            for word in batch["labels"][:, :3].split(1, dim=1):
                output = model(
                    attention_mask=mask, encoder_outputs=encoded, decoder_input_ids=word, cache=cache,
                    use_cache=True,
                )  # fmt: skip
                cache = output.cache
                cache.reorder_cache(torch.empty(3, dtype=torch.long, device=DEVICE))


def main() -> None:
    all_mixes = "--all" in sys.argv
    cases = [(family, name) for family in FAMILIES for name in family.mixes if all_mixes or name in QUICK_MIXES]
    models = {f"{family.__name__[4:]}, {name}": family().model(family.mixes[name]) for family, name in cases}
    register()
    failed = False
    for title, model in models.items():
        with FakeTensorMode(), Copies() as copies:
            run_model(move(model))
        print(title, *copies.found, sep="\n  ", flush=True)
        failed = failed or bool(copies.found)
    sys.exit("there were copies between host and device" if failed else 0)


if __name__ == "__main__":
    main()
