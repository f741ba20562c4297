"""Programs: what a model computes for a source and for each target position, as lists of operations.

operations.def lists the operations. Weights are read when the engine packs them, one map or vector after the other.
"""

import enum
import functools
import math
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

MAX_SLOTS = 12  # of an operation: as native/engine.h has it
DTYPES = {"F32": 4, "F16": 2, "BF16": 2, "I8": 1}  # bytes of a number
ACTIVATIONS = {"none": 0, "relu": 1, "silu": 2, "swish": 2, "gelu": 3, "tanh": 4, "sigmoid": 5}


class UnsupportedModelError(ValueError):
    """A model, a setting or a file that the engine or a conversion does not support."""


class Space(enum.IntEnum):
    """What the rows of a buffer are; STATES are kept from one target position to the next."""

    WORDS = 0
    SOURCES = 1
    HYPOTHESES = 2
    STATES = 3


class Tensor(NamedTuple):
    """Numbers in row-major order.

    buffer: an object with the buffer protocol.
    dtype: a key of `DTYPES`; in a file, another type of safetensors, too.
    """

    buffer: Any
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return math.prod(self.shape)


class Codes(NamedTuple):
    """A weight in int8: codes [outputs, inputs] of dtype I8, and the largest magnitude of each row [outputs], F32."""

    codes: Tensor
    magnitudes: Tensor  # `NAME.largest` in files


class Linear:
    """A linear map. `read` gives its weight [outputs, inputs], and its bias [outputs] or `None`."""

    def __init__(self, outputs: int, inputs: int, read: Callable[[], tuple[Tensor | Codes, Tensor | None]]) -> None:
        self.outputs, self.inputs, self.read = outputs, inputs, read


class Vector:
    """A tensor of any shape, read as a row of numbers. One object that is used twice is stored once.

    The table of an EMBED may be in `Codes`. `packed` is the linear map that has the same numbers for its weight, if
    there is one: the engine then takes the rows from there, where that is as exact.

    rounds: whether an engine in int8 rounds this table to codes. It shares those of `packed`, if that is not stacked.
    """

    def __init__(self, count: int, read: Callable[[], Tensor | Codes], *, rounds: bool = False) -> None:
        self.count, self.read, self.rounds = count, read, rounds
        self.packed: Linear | None = None


class Positions:
    """Sinusoids for `count` positions: sines in the first half of the width, then cosines.

    span: number k of either has the frequency 10000^(-2 k / span). It is the width by default, as in transformers'
        Marian; in Marian itself and in M2M100, the width minus two.
    start: the number of the first position.
    """

    def __init__(self, count: int, width: int, span: int | None = None, start: int = 0) -> None:
        self.count, self.width, self.span = count * width, width, width if span is None else span
        self.start = start


class Slot(NamedTuple):
    """An argument of an operation: `default` is `None` where it must be given."""

    name: str
    kind: str
    default: int | None


class OperationKind(NamedTuple):
    """An operation of operations.def."""

    number: int
    name: str
    help: str
    slots: tuple[Slot, ...]


@functools.cache
def operations() -> dict[str, OperationKind]:
    """Return the engine's operations, in the order of their numbers."""
    with open(os.path.join(os.path.dirname(__file__), "operations.def"), encoding="utf-8") as stream:
        text = stream.read().partition("*/")[2]
    kinds: dict[str, OperationKind] = {}
    for number, entry in enumerate(text.split("OPERATION(")[1:]):
        name, _, body = entry.partition(",")
        parts = body.split('"')
        slots = [_slot(name, part) for part in parts[-1].split(",\n", 2)[2].replace("\n", " ").split("),")]
        kinds[name] = OperationKind(number, name, "".join(parts[1::2]), tuple(slots))
    return kinds


def _slot(operation: str, text: str) -> Slot:
    """Return the slot of a text like `OPTION(LINEAR_fold, 1`."""
    kind, _, inside = text.strip(" ,)").partition("(")
    name, _, default = inside.partition(",")
    name = name.removeprefix(f"{operation}_")
    if default:
        return Slot(name, "NUMBER", int(default))
    return Slot(name, kind.removeprefix("MAYBE_"), -1 if kind.startswith("MAYBE_") else None)


class Operation(NamedTuple):
    """One operation: a value for each slot of its kind."""

    kind: OperationKind
    slots: tuple[float, ...]

    def value(self, slot: str) -> float:
        """Return the value of the slot of this name."""
        return self.slots[[entry.name for entry in self.kind.slots].index(slot)]

    def packed(self) -> bytes:
        """Return what engine.h calls an `operation_t`."""
        formats = ["f" if slot.kind == "REAL" else "i" for slot in self.kind.slots]
        values = [value if letter == "f" else int(value) for value, letter in zip(self.slots, formats, strict=True)]
        return struct.pack(f"i{''.join(formats)}", self.kind.number, *values).ljust(4 + 4 * MAX_SLOTS, b"\0")


class Program:
    """Everything that the engine needs of a model.

    vocabulary: the number of target tokens; `embeddings`: of source tokens.
    linears: what each linear map stacks.
    logits: the buffer that holds the logits after the decoder's operations; without a decoder, the buffer of words
        that `Engine.encode` returns.
    longest_source, longest_target: the most tokens of a source and of a translation; `None` where there is no limit.
    """

    def __init__(self, vocabulary: int, embeddings: int) -> None:
        self.vocabulary, self.embeddings = vocabulary, embeddings
        self.linears: list[tuple[Linear, ...]] = []
        self.vectors: list[Vector | Positions] = []
        self.buffers: list[tuple[Space, int]] = []
        self.encoder: list[Operation] = []
        self.decoder: list[Operation] = []
        self.num_caches = 0
        self.logits = -1
        self.longest_source: int | None = None
        self.longest_target: int | None = None

    def linear(self, *linears: Linear) -> int:
        """Add the linear maps of one input, stacked; return their number."""
        inputs = {linear.inputs for linear in linears}
        if len(inputs) != 1:
            raise ValueError(f"linear maps of one input were stacked, with {sorted(inputs)} inputs")
        self.linears.append(linears)
        return len(self.linears) - 1

    def outputs(self, linear: int) -> int:
        return sum(part.outputs for part in self.linears[linear])

    def vector(self, vector: Vector | Positions) -> int:
        """Add a vector, unless this object was added before; return its number."""
        for number, existing in enumerate(self.vectors):
            if existing is vector:
                return number
        self.vectors.append(vector)
        return len(self.vectors) - 1

    def buffer(self, space: Space, width: int) -> int:
        self.buffers.append((space, width))
        return len(self.buffers) - 1

    def width(self, buffer: int) -> int:
        return self.buffers[buffer][1]

    @property
    def table_widths(self) -> dict[int, int]:
        """The width of the rows of each vector that EMBED reads."""
        return {
            int(operation.value(slot.name)): self.width(int(operation.slots[0]))
            for operation in (*self.encoder, *self.decoder)
            for slot in operation.kind.slots
            if slot.kind == "TABLE"
        }

    @property
    def head(self) -> int | None:
        """The number of the linear map that writes the logits; `None` without one."""
        for operation in reversed(self.decoder):
            if operation.kind.name == "LINEAR" and operation.slots[0] == self.logits:
                return int(operation.value("map"))
        return None

    @property
    def head_shape(self) -> tuple[int, int]:
        """How many layers attend to the source, and with how many heads each; (0, 0) if none can be read."""
        layers = [step for step in self.decoder if step.kind.name == "ATTEND_SOURCE" and step.value("layer") >= 0]
        return len(layers), min((int(layer.value("heads")) for layer in layers), default=0)


class Writer:
    """Append operations on the rows of one space to a program."""

    def __init__(self, program: Program, operations: list[Operation], space: Space) -> None:
        self.program = program
        self.operations = operations
        self.space = space

    def run(self, name: str, out: int, **values: "float | Linear | Vector | Positions | Sequence[Linear]") -> int:
        """Append an operation; return `out`. Slots are named arguments; a weight is its number or itself."""
        kind = operations().get(name)
        if kind is None:
            raise UnsupportedModelError(f"there is no operation {name!r}, only {', '.join(operations())}")
        slots = []
        for slot in kind.slots[1:]:
            value = values.pop(slot.name, slot.default)
            if value is None:
                raise TypeError(f"{name} needs `{slot.name}`")
            if isinstance(value, (Vector, Positions)):
                value = self.program.vector(value)
            elif isinstance(value, Linear):
                value = self.program.linear(value)
            elif not isinstance(value, (int, float)):
                value = self.program.linear(*value)
            slots.append(value)
        if values:
            names = ", ".join(f"`{slot.name}`" for slot in kind.slots[1:])
            raise TypeError(f"{name} has no `{next(iter(values))}`, only {names}")
        self.operations.append(Operation(kind, (out, *slots)))
        return out

    def new(self, width: int) -> int:
        return self.program.buffer(self.space, width)

    def linear(
        self, source: int, *linears: Linear, activation: str = "none", fold: int = 1, twice: bool = False
    ) -> int:
        """Apply linear maps, stacked, to a buffer; return a new one. See operations.def for `fold` and `twice`."""
        if activation not in ACTIVATIONS:
            raise UnsupportedModelError(f"the activation {activation!r} is not known, only {', '.join(ACTIVATIONS)}")
        out = self.new(fold * sum(linear.outputs for linear in linears))
        number = ACTIVATIONS[activation]
        return self.run("LINEAR", out, source=source, map=linears, activation=number, fold=fold, twice=int(twice))

    def norm(self, hidden: int, residual: int, gain: Vector, bias: Vector, epsilon: float) -> int:
        """Normalise `hidden` + `residual` (-1: `hidden` alone) in place."""
        return self.run("NORM", hidden, residual=residual, gain=gain, bias=bias, epsilon=epsilon)

    def copy(self, source: int) -> int:
        """Copy a buffer, so that what is done to the copy leaves it alone."""
        return self.run("COPY", self.new(self.program.width(source)), source=source)

    def concatenate(self, *parts: int) -> int:
        out, start = self.new(sum(map(self.program.width, parts))), 0
        for part in parts:
            self.run("COPY", out, source=part, column=start)
            start += self.program.width(part)
        return out
