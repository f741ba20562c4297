"""Give any translation model faster products where no gradient is asked for, and take them away again."""

from typing import TypeVar

import torch
from torch import nn

from hf_capsule_mt.fast.int8 import int8_or_packed, largest_exact_weight
from hf_capsule_mt.fast.linear import PackedWeight
from hf_capsule_mt.modeling.gru import FusedGRU, GRUCell
from hf_capsule_mt.modeling.recurrent import ResidualLSTM

Model = TypeVar("Model", bound=nn.Module)


class FastLinear(nn.Linear):
    """An `nn.Linear` after `use_fast_linears`: `packed` computes its product."""

    packed: PackedWeight

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.packed(input, self.weight, self.bias)


class FastGRUCell(GRUCell):
    """A `GRUCell` after `use_fast_linears`."""

    packed_input: PackedWeight
    packed_state: PackedWeight

    def project_input(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.packed_input(inputs, self.weight_ih, self.bias_ih)

    def project_state(self, state: torch.Tensor) -> torch.Tensor:
        return self.packed_state(state, self.weight_hh, self.bias_hh)


class FastFusedGRU(FusedGRU):
    """A `FusedGRU` of one direction after `use_fast_linears`: its single steps are products."""

    packed_input: PackedWeight
    packed_state: PackedWeight

    def project_input(self, hidden: torch.Tensor, direction: int = 0) -> torch.Tensor:
        return self.packed_input(hidden, self.weights[0], self.weights[2])

    def project_state(self, state: torch.Tensor, direction: int = 0) -> torch.Tensor:
        return self.packed_state(state, self.weights[1], self.weights[3])


class FastResidualLSTM(ResidualLSTM):
    """A `ResidualLSTM` of one direction after `use_fast_linears`: its single steps are products."""

    packed_input: PackedWeight
    packed_state: PackedWeight

    def project_input(self, hidden: torch.Tensor) -> torch.Tensor:
        weight, _, bias, _ = self.lstm.all_weights[0]
        return self.packed_input(hidden, weight, bias)

    def project_state(self, state: torch.Tensor) -> torch.Tensor:
        _, weight, _, bias = self.lstm.all_weights[0]
        return self.packed_state(state, weight, bias)


# each class and the subclass that takes its place
FAST_CLASSES: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: FastLinear,
    GRUCell: FastGRUCell,
    FusedGRU: FastFusedGRU,
    ResidualLSTM: FastResidualLSTM,
}
PLAIN_CLASSES = {fast: plain for plain, fast in FAST_CLASSES.items()}


def use_fast_linears(model: Model, *, int8: bool = False) -> Model:
    """Replace the products of a model on a CPU in float32, where no gradient is asked for, by faster ones.

    For any model, transformers' own included. Parameters, the state dict, training, saving and tied embeddings stay as
    they are, and an `nn.Linear` stays one. Results differ in the last bits, or with int8 by about a hundredth.

    Packed copies of the weights are made when they are first needed and follow the weights when these change. They
    take as much memory again as the weights, or with int8 a quarter of it.

    Args:
        int8: multiply by int8 copies of the large matrices. The small ones, and the LSTM and GRU layers of encoders,
            stay float32. A change through `.data` is not seen.

    Returns:
        The model, which is changed in place.
    """
    largest: int | None = None
    if int8:
        first = next(model.parameters())
        if not first.is_cpu or first.dtype != torch.float32:
            raise ValueError(f"int8 is for float32 models on a CPU, got {first.dtype} on {first.device}")
        largest = largest_exact_weight()
    undo_fast_linears(model)
    for module in model.modules():
        weights = _replaceable_weights(module)
        if weights:
            module.__class__ = FAST_CLASSES[type(module)]
            for name, weight in weights.items():
                product = PackedWeight() if largest is None else int8_or_packed(weight, largest)
                setattr(module, name, product)
    return model


def undo_fast_linears(model: Model) -> Model:
    """Give a model its own products back.

    Returns:
        The model, which is changed in place.
    """
    for module in model.modules():
        if type(module) in PLAIN_CLASSES:
            module.__class__ = PLAIN_CLASSES[type(module)]
            for name in ("packed", "packed_input", "packed_state"):
                vars(module).pop(name, None)
    return model


def _replaceable_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """The matrices of a module that get a product of their own, by the attribute that holds it."""
    if type(module) is nn.Linear:
        return {"packed": module.weight}
    if type(module) is GRUCell:
        return {"packed_input": module.weight_ih, "packed_state": module.weight_hh}
    if type(module) is FusedGRU and not module.bidirectional:
        return {"packed_input": module.weights[0], "packed_state": module.weights[1]}
    if type(module) is ResidualLSTM and not module.lstm.bidirectional:
        return dict(zip(("packed_input", "packed_state"), module.lstm.all_weights[0][:2], strict=True))
    return {}
