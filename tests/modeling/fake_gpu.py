"""Every mix on a GPU that computes nothing: tensors with shapes, types and a device, on any machine.

    python -m tests.modeling.fake_gpu everything guided      # one line for each mix

Whoever asks for the value of such a tensor, as a host does that waits for its GPU, gets an error; so does whoever
mixes it with one on the CPU. It is a program, as PyTorch takes its device for an accelerator from then on.
"""

import sys
import types
from typing import Any, NamedTuple

import numpy
import torch
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from hf_capsule_mt.modeling.cache_names import cache_field
from hf_capsule_mt.routing import common
from tests.mixes import FAMILIES, MIXES
from tests.modeling.model_checks import QUICK_MIXES
from tests.modeling.test_capsnmt import TestCapsNMT
from tests.modeling.test_capsule_marian import TestCapsuleMarian
from tests.modeling.test_capsule_rnmt import TestCapsuleRNMT

DEVICE = "fakegpu"
aten = torch.ops.aten
NOT_LINEAR = {aten.exp, aten.log, aten._softmax, aten._log_softmax, aten.sqrt, aten.tanh, aten.logsumexp}
CHECKS = {"capsule_marian": TestCapsuleMarian(), "capsnmt": TestCapsNMT(), "capsule_rnmt": TestCapsuleRNMT()}
COMPILED = (*QUICK_MIXES, "plain")  # the others differ in what a graph does not show


class Device(types.ModuleType):
    """What PyTorch asks of a device's module."""

    is_available = is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: 0)
    _is_in_bad_fork = staticmethod(lambda: False)
    manual_seed_all = staticmethod(lambda seed: None)
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16])


class DeviceOnly(TorchDispatchMode):
    """Refuse every operation whose result is not on the device."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type != DEVICE:
                raise AssertionError(f"{operation} makes a tensor {list(tensor.shape)} on {tensor.device}")
        return result


class NewTensors(TorchFunctionMode):
    """Make what `torch.tensor` makes without its values: it would write them into memory that a device lacks."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is torch.tensor and torch.device(kwargs.get("device") or "cpu").type == DEVICE:
            return torch.empty(numpy.shape(args[0]), **kwargs)
        return function(*args, **kwargs)


class RoutingTypes(TorchDispatchMode):
    """Collect the types in which the functions of `routing` compute what is not linear."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        if operation.overloadpacket in NOT_LINEAR and _is_called_in_routing():
            self.seen.add(result.dtype)
        return result


def _is_called_in_routing() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(common.__package__):
            return True
        frame = frame.f_back
    return False


def model_of(name: str, device: str) -> Any:
    family = FAMILIES[name]
    checks = CHECKS[family]
    return moved(checks.family.generation_class(checks.config(MIXES[family][name])), device)


def moved(model: nn.Module, device: str) -> nn.Module:
    """Move a model, whose tied weights stay tied; `Module.to` needs tensors that can be swapped."""
    on_device: dict[int, Any] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                if id(weight) not in on_device:
                    on_device[id(weight)] = nn.Parameter(weight.detach().to(device), weight.requires_grad)
                module._parameters[name] = on_device[id(weight)]
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.to(device)
    return model


def batch(device: str, sentences: int = 3, tokens: int = 7) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    source = torch.ones(sentences, tokens, dtype=torch.long, device=device)
    return {"input_ids": source, "attention_mask": source}, source[:, 1:]


def check_steps(name: str) -> None:
    """Take a step of training and two of decoding."""
    with FakeTensorMode():
        model = model_of(name, DEVICE).train()
        source, labels = batch(DEVICE)
        with DeviceOnly():
            model(**source, labels=labels).loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
        model.eval()
        with torch.no_grad(), NewTensors(), DeviceOnly():
            encoded = model.get_encoder()(**source)
            inputs = {"encoder_outputs": encoded, "attention_mask": source["attention_mask"], "use_cache": True}
            first = model(**inputs, decoder_input_ids=labels[:, :1])
            following = model(**inputs, decoder_input_ids=labels[:, 1:2], **cache_field(first.cache))
        assert following.logits.shape == (3, 1, 31)
        assert following.logits.device.type == DEVICE


def check_types(name: str) -> None:
    """Route in float32 where autocast multiplies in bfloat16, on the way of an accelerator."""
    host, common.HOST = common.HOST, "another device"
    try:
        with FakeTensorMode(), torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            source, labels = batch("cpu")
            model = model_of(name, "cpu").eval()
            with RoutingTypes() as types:
                model(**source, decoder_input_ids=labels, output_routing_weights=True)
    finally:
        common.HOST = host
    assert types.seen <= {torch.float32}, types.seen
    assert types.seen or name not in QUICK_MIXES  # all of which route


def check_one_graph(name: str) -> None:
    """Compile a forward pass with its loss, without a break in its graph."""
    with FakeTensorMode():
        model = model_of(name, DEVICE).eval()
        source, labels = batch(DEVICE)
        torch.compile(model, backend="eager", fullgraph=True)(**source, labels=labels)


class Memory(NamedTuple):
    """The bytes that a step of training takes at its peak: weights, and activations with the gradients so far."""

    weights: int
    activations: int
    total: int


def memory_of_a_step(model: Any, sentences: int, tokens: int) -> Memory:
    """Return what a step of training takes of a model on the device, whose tensors are fake."""
    model.train()
    for module in model.modules():  # `MemTracker` wants a gradient of every parameter
        for weight in [name for name, weight in module.named_parameters(recurse=False) if not weight.requires_grad]:
            module.register_buffer(weight, module._parameters.pop(weight).detach())
    source, labels = batch(DEVICE, sentences, tokens)
    tracker = MemTracker()
    tracker.track_external(model)
    with tracker:
        model(**source, labels=labels).loss.backward()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    sizes = {getattr(kind, "value", kind): size for kind, size in peak.items()}
    weights = sizes["Parameter"] + sizes["Buffer"]
    return Memory(weights, sizes["Total"] - weights, sizes["Total"])


def on_a_fake_gpu() -> None:
    """Let PyTorch take the device for an accelerator, from now on."""
    _setup_privateuseone_for_python_backend(DEVICE, Device(DEVICE))


def main() -> None:
    on_a_fake_gpu()
    with enable_python_dispatcher():  # which takes recurrent layers apart, whose fused forms are those of real devices
        for name in sys.argv[1:]:
            check_steps(name)
            check_types(name)
            if name in COMPILED:
                check_one_graph(name)
            print(name, flush=True)


if __name__ == "__main__":
    main()
