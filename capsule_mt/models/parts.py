"""The weights of a model by name, as parts of a program: shared by the program writers of all families."""

from typing import NamedTuple

from capsule_mt.engine.program import Codes, Linear, Program, Space, Tensor, Vector, Writer
from capsule_mt.models import tensors
from capsule_mt.models.weights import Weights

EPSILON = 1e-5  # of a LayerNorm in PyTorch
TIED = ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")


class Parts:
    """The weights of a model as linear maps and vectors, whose shapes are checked when they are named.

    used: the names of all tensors that the program reads, or that its writer leaves out.
    rounded: the names of the matrices that an int8 program uses only as codes.
    maps: linear maps by the names of their matrices; tables: the matrices with a row for each token.

    Args:
        epsilon: added to the variance by LayerNorm, except inside of Marian's recurrent cells.
    """

    def __init__(self, weights: Weights, epsilon: float = EPSILON) -> None:
        self.weights, self.epsilon = weights, epsilon
        self.used: set[str] = set()
        self.rounded: set[str] = set()
        self.maps: dict[str, Linear] = {}
        self.tables: set[str] = set()
        self._exact: set[str] = set()
        self._vectors: dict[str, Vector] = {}

    def expect(self, name: str, *shape: int) -> None:
        """Refuse a tensor whose shape differs from `shape`, which the configuration requires."""
        stored_shape = tuple(self.weights.shape(name))
        if stored_shape != shape:
            message = f"`{name}` is {list(stored_shape)}, but the configuration requires {list(shape)}"
            raise self.weights.problem(name, message)
        self.used.add(name)

    def map(self, weight: str, bias: str | None, outputs: int, inputs: int, *, scale: float = 1.0) -> Linear:
        """Return the linear map of a matrix [outputs, inputs] and a bias [outputs]."""
        self.expect(weight, outputs, inputs)
        if bias is not None:
            self.expect(bias, outputs)
        if weight not in self._exact:
            self.rounded.add(weight)

        def read() -> tuple[Tensor | Codes, Tensor | None]:
            matrix = self.weights.read(weight)
            matrix = matrix if scale == 1.0 else tensors.scaled(matrix, scale)
            return matrix, None if bias is None else self.tensor(bias)

        self.maps[weight] = Linear(outputs, inputs, read)
        return self.maps[weight]

    def linear(self, name: str, outputs: int, inputs: int, *, bias: bool = True, scale: float = 1.0) -> Linear:
        """Return the linear map of a module with `weight` and, perhaps, `bias`."""
        return self.map(f"{name}.weight", f"{name}.bias" if bias else None, outputs, inputs, scale=scale)

    def vector(self, name: str, *shape: int) -> Vector:
        """Return a tensor as a flat vector, the same object each time."""
        if name not in self._vectors:
            self.expect(name, *shape)
            self.keep_exact(name)
            size = Tensor(b"", "F32", shape).size
            self._vectors[name] = Vector(size, lambda: self.tensor(name))
        return self._vectors[name]

    def table(self, name: str, rows: int, width: int, *, rounds: bool = False) -> Vector:
        """Return the rows of a matrix for EMBED, as they are stored: in any precision, or as codes.

        rounds: quantise the rows to codes in an int8 engine.
        """
        self.tables.add(name)
        if name not in self._vectors:
            self.expect(name, rows, width)
            if rounds:
                self.rounded.add(name)
            else:
                self.keep_exact(name)
            self._vectors[name] = Vector(rows * width, lambda: self.weights.read(name), rounds=rounds)
        return self._vectors[name]

    def shared(self, name: str, linear: Linear) -> Linear:
        """Return `linear`; if there is a table of this name, let both share their numbers in memory."""
        if name in self._vectors:
            self._vectors[name].packed = linear
        return linear

    def vocabulary(self, table: str, targets: int, width: int) -> Linear:
        """Return the map to the logits of all target tokens, with `final_logits_bias` if the model has one."""
        self.tables.add(table)
        linear, bias = self.map(table, None, targets, width), "final_logits_bias"
        if bias in self.weights:
            self.expect(bias, 1, targets)
            read = linear.read
            linear = self.maps[table] = Linear(targets, width, lambda: (read()[0], self.tensor(bias)))
        return self.shared(table, linear)

    def keep_exact(self, *names: str) -> None:
        """Keep these tensors as exact numbers, not codes."""
        self._exact.update(names)
        self.rounded.difference_update(names)

    def tensor(self, name: str) -> Tensor:
        """Read a tensor; codes become the numbers that they stand for."""
        return tensors.decoded(self.weights.read(name))

    def tied(self, name: str, *tied_modules: str) -> str:
        """Return the name under which a module's matrix is stored: its own, or that of one of `tied_modules`."""
        matrices = [f"{module}.weight" for module in (name, *tied_modules)]
        return next((matrix for matrix in matrices if matrix in self.weights), matrices[0])


class ModuleWriter(Writer):
    """A writer that takes weights by the names of their modules."""

    def __init__(self, parts: Parts, program: Program, space: Space, *, decodes: bool) -> None:
        super().__init__(program, program.decoder if decodes else program.encoder, space)
        self.parts = parts

    def apply(
        self, source: int, *names: str, outputs: int, bias: bool = True, activation: str = "none", fold: int = 1
    ) -> int:
        """Apply the stacked linear maps of these modules to a buffer; return a new buffer."""
        inputs = self.program.width(source) // fold
        maps = (self.parts.linear(name, outputs, inputs, bias=bias) for name in names)
        return self.linear(source, *maps, activation=activation, fold=fold)

    def attend_source(self, hidden: int, memory: int, attention: str, heads: int, layer: int) -> int:
        """Let each hypothesis attend to its source in decoder layer `layer`; `memory` comes from `Writers.memory`."""
        width = self.program.width(hidden)
        return self.run(
            "ATTEND_SOURCE",
            self.new(width),
            query=self.apply(hidden, f"{attention}.q_proj", outputs=width),
            memory=memory,
            heads=heads,
            keys=layer * width,
            values=self.program.width(memory) // 2,
            layer=layer,
        )

    def normalise(self, hidden: int, residual: int, name: str) -> int:
        """Apply the LayerNorm of a module to `hidden` + `residual` (-1: `hidden` alone) in place."""
        width = self.program.width(hidden)
        gain, bias = (self.parts.vector(f"{name}.{parameter}", width) for parameter in ("weight", "bias"))
        return self.norm(hidden, residual, gain, bias, self.parts.epsilon)


class Writers(NamedTuple):
    """The writers of a program: of the encoder's words and sources, and of the decoder's steps and states."""

    words: ModuleWriter
    sources: ModuleWriter
    step: ModuleWriter
    states: ModuleWriter

    def memory(self, source: int, num_layers: int) -> int:
        """Return the keys and the values of all decoder layers for the words of the source, if there are any."""
        layers = [f"model.decoder.layers.{index}.encoder_attn" for index in range(num_layers)]
        names = [f"{layer}.{letter}_proj" for letter in "kv" for layer in layers]
        width = self.words.program.width(source)
        maps = (self.words.parts.linear(name, width, width) for name in names)
        # of all int8 products, this one loses most by quantising its input: `twice` also quantises the residual
        return self.words.linear(source, *maps, twice=True) if names else source

    @classmethod
    def for_program(cls, parts: Parts, program: Program) -> "Writers":
        """Return the four writers of a program, which share the weights in `parts`."""
        spaces = ((Space.WORDS, False), (Space.SOURCES, False), (Space.HYPOTHESES, True), (Space.STATES, True))
        return cls(*(ModuleWriter(parts, program, space, decodes=decodes) for space, decodes in spaces))
