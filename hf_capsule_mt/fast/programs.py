"""Programs: what a model computes for a source and for each target position, as lists of operations.

All backends run the same program: `reference.py` in PyTorch, `native/` in C. native/engine.h documents the operations.
Matrices that share an input are stacked. EM routing's maps are multiplied out: F has no nonlinearity behind it, so the
votes W F and the activations A F take two products instead of three.
"""

import enum
from dataclasses import dataclass, field

import torch
from torch import nn

from hf_capsule_mt.configuration.common import CODE_MODULE


class Space(enum.IntEnum):
    """What the rows of a buffer are."""

    WORDS = 0
    SOURCES = 1
    HYPOTHESES = 2
    STATES = 3


class Kind(enum.IntEnum):
    """The operations of native/engine.h, in its order."""

    EMBED = 0
    LINEAR = 1
    NORM = 2
    ADD = 3
    COPY = 4
    ATTEND_WORDS = 5
    ATTEND_PAST = 6
    ATTEND_SOURCE = 7
    EM_ROUTING = 8
    DYNAMIC_ROUTING = 9
    GUIDED_START = 10
    EXP_TWICE = 11
    GUIDED_ROUTING = 12
    LSTM_WORDS = 13
    LSTM_STEP = 14
    GRU_WORDS = 15
    GRU_STEP = 16
    ADDITIVE = 17
    MEAN_WORDS = 18
    POOL_WORDS = 19
    SEPARABLE_ROUTING = 20
    ADD_POSITIONS = 21
    ACTIVATE = 22
    WEIGHTED_SUM = 23


ACTIVATIONS = {"none": 0, "relu": 1, "silu": 2, "swish": 2, "gelu": 3, "tanh": 4, "sigmoid": 5}


@dataclass(frozen=True)
class Operation:
    """One operation: buffers `out` and `a` to `d`, weights `w`, settings `n` and `f`."""

    kind: Kind
    out: int
    a: int = -1
    b: int = -1
    c: int = -1
    d: int = -1
    w: tuple[int, ...] = ()
    n: tuple[int, ...] = ()
    f: tuple[float, ...] = ()


@dataclass(frozen=True)
class Linear:
    """A linear map: weight [outputs, inputs] and bias [outputs] or `None`."""

    weight: torch.Tensor
    bias: torch.Tensor | None


@dataclass
class Program:
    """Everything that a backend needs of a model; `longest_source`: how many words it has positions for."""

    vocabulary: int
    linears: list[Linear] = field(default_factory=list)
    vectors: list[torch.Tensor] = field(default_factory=list)
    buffers: list[tuple[Space, int]] = field(default_factory=list)
    encoder: list[Operation] = field(default_factory=list)
    decoder: list[Operation] = field(default_factory=list)
    num_caches: int = 0
    logits: int = -1
    longest_source: int | None = None

    def linear(self, *modules: nn.Linear | Linear) -> int:
        """Add the linear maps of one input, stacked; return their number."""
        for module in modules:
            check_plain(module)
        weights = [module.weight.detach().float() for module in modules]
        biases = [_bias(module) for module in modules]
        self.linears.append(Linear(torch.cat(weights).contiguous(), torch.cat(biases).contiguous()))
        return len(self.linears) - 1

    def vector(self, values: torch.Tensor) -> int:
        self.vectors.append(values.detach().float().contiguous().view(-1))
        return len(self.vectors) - 1

    def buffer(self, space: Space, width: int) -> int:
        self.buffers.append((space, width))
        return len(self.buffers) - 1

    def width(self, buffer: int) -> int:
        return self.buffers[buffer][1]

    @property
    def has_coverage(self) -> bool:
        """Whether the decoder follows PAST and FUTURE."""
        return any(operation.kind is Kind.GUIDED_ROUTING for operation in self.decoder)


class UnsupportedModelError(ValueError):
    """A model or a setting that no program can be written for."""


def known_class(module: object, *known: type) -> type:
    """Return which of the known classes a module is of, also by an exported checkpoint's code; refuse a subclass."""
    found = type(module)
    is_exported = found.__module__.endswith(f".{CODE_MODULE}")
    for one in known:
        if found is one or (is_exported and found.__name__ == one.__name__):
            return one
    names = ", ".join(one.__name__ for one in known)
    raise UnsupportedModelError(f"a {found.__module__}.{found.__name__} has no fast form, only {names}")


def check_plain(module: object) -> None:
    """Refuse a linear map that computes more than its weight says, such as an adapter's or a quantised one."""
    plain = type(module) in (nn.Linear, Linear) or type(module).__module__.startswith("hf_capsule_mt.fast.")
    if not plain:
        raise UnsupportedModelError(f"a {type(module).__module__}.{type(module).__name__} has no fast form")


def _bias(module: nn.Linear | Linear) -> torch.Tensor:
    if module.bias is None:
        return module.weight.new_zeros(len(module.weight), dtype=torch.float32)
    return module.bias.detach().float()


class Writer:
    """Append operations on the rows of one space to a program."""

    def __init__(self, program: Program, operations: list[Operation], space: Space) -> None:
        self.program = program
        self.operations = operations
        self.space = space

    def run(
        self,
        kind: Kind,
        out: int,
        *,
        a: int = -1,
        b: int = -1,
        c: int = -1,
        d: int = -1,
        w: tuple[int, ...] = (),
        n: tuple[int, ...] = (),
        f: tuple[float, ...] = (),
    ) -> int:
        self.operations.append(Operation(kind, out, a, b, c, d, w, n, f))
        return out

    def new(self, width: int) -> int:
        return self.program.buffer(self.space, width)

    def linear(self, source: int, *modules: nn.Linear | Linear, activation: str = "none", fold: int = 1) -> int:
        number = self.program.linear(*modules)
        outputs = len(self.program.linears[number].weight)
        out = self.new(fold * outputs)
        return self.run(Kind.LINEAR, out, a=source, w=(number,), n=(ACTIVATIONS[activation], fold))

    def norm(self, hidden: int, residual: int, norm: nn.LayerNorm) -> int:
        """Normalise `hidden` + `residual` (-1: `hidden` alone) in place."""
        if type(norm).forward is not nn.LayerNorm.forward:
            raise UnsupportedModelError(f"a {type(norm).__module__}.{type(norm).__name__} has no fast form")
        weights = (self.program.vector(norm.weight), self.program.vector(norm.bias))
        return self.run(Kind.NORM, hidden, a=residual, w=weights, f=(norm.eps,))

    def concatenate(self, *parts: int) -> int:
        out, start = self.new(sum(map(self.program.width, parts))), 0
        for part in parts:
            self.run(Kind.COPY, out, a=part, n=(start,))
            start += self.program.width(part)
        return out


def merged(first: nn.Linear | Linear, *then: nn.Linear | Linear) -> Linear:
    """The maps `then`, stacked, after the map `first`: one product, computed in float64."""
    for module in (first, *then):
        check_plain(module)
    weight = torch.cat([module.weight.detach() for module in then]).double()
    bias = torch.cat([_bias(module) for module in then]).double()
    inner_bias = _bias(first).double()
    return Linear((weight @ first.weight.detach().double()).float(), (weight @ inner_bias + bias).float())
