"""The programs of encoders without a decoder: BERT and XLM-R, with which MiniLM and E5 share their layers."""

from array import array
from collections.abc import Sequence
from itertools import cycle
from operator import add

from capsule_mt.engine.program import Program, Tensor, UnsupportedModelError, Vector
from capsule_mt.messages import shown
from capsule_mt.models import tensors
from capsule_mt.models.parts import ModuleWriter, Parts, Writers
from capsule_mt.models.settings import FEED_FORWARD_ACTIVATIONS, ModelSettings
from capsule_mt.models.weights import Weights

EPSILON = 1e-12  # of every LayerNorm, where the configuration does not say
PREFIXES = {"bert": "bert.", "xlm-roberta": "roberta."}  # of the weights of a model with a head


def bert_program(
    settings: ModelSettings, weights: Weights, layers: Sequence[int] | None = None
) -> tuple[Program, Parts]:
    """Return the program of an encoder, and the weights that it uses.

    Args:
        layers: the layers whose output the program returns side by side, ascending: 0 is the output of the embeddings,
            `None` stands for the last layer. What follows the highest of them is left out.
    """
    encoder = _Bert(settings, Parts(weights, settings.real("layer_norm_eps", EPSILON)))
    encoder.write(layers)
    return encoder.program, encoder.parts


class _Bert:
    def __init__(self, settings: ModelSettings, parts: Parts) -> None:
        self.settings, self.parts = settings, parts
        settings.choice("position_embedding_type", "absolute", ("absolute",))
        for name in ("is_decoder", "add_cross_attention"):
            if settings.flag(name, False):
                raise UnsupportedModelError(f"{settings.origin}: `{name}` true is not supported by the engine")
        self.width = settings.number("hidden_size")
        self.inner_width = settings.number("intermediate_size")
        self.num_layers = settings.number("num_hidden_layers", minimum=0)
        self.heads = settings.divisor("num_attention_heads", "hidden_size", self.width)
        self.activation = settings.choice("hidden_act", "gelu", FEED_FORWARD_ACTIVATIONS)
        prefix = PREFIXES[settings["model_type"]]
        has_prefix = f"{prefix}embeddings.word_embeddings.weight" in parts.weights
        self.prefix = prefix if has_prefix else ""
        vocabulary_size = settings.number("vocab_size")
        self.program = Program(vocabulary=vocabulary_size, embeddings=vocabulary_size)

    def write(self, layers: Sequence[int] | None) -> None:
        layers = self._checked(layers)
        words: ModuleWriter = Writers.for_program(self.parts, self.program).words
        hidden = self._embed(words)
        self.program.logits = returned = hidden if len(layers) == 1 else words.new(len(layers) * self.width)
        for layer in range(layers[-1] + 1):
            if layer:
                self._layer(words, hidden, f"{self.prefix}encoder.layer.{layer - 1}")
            if layer in layers and returned != hidden:
                words.run("COPY", returned, source=hidden, column=layers.index(layer) * self.width)
        unused = tuple(f"{self.prefix}encoder.layer.{layer}." for layer in range(layers[-1], self.num_layers))
        self.parts.used.update(name for name in self.parts.weights if unused and name.startswith(unused))

    def _checked(self, layers: Sequence[int] | None) -> list[int]:
        if layers is None:
            return [self.num_layers]
        are_layers = all(type(layer) is int and 0 <= layer <= self.num_layers for layer in layers)
        if not layers or not are_layers or list(layers) != sorted(set(layers)):
            raise ValueError(
                f"`layers` must be ascending numbers from 0, the embeddings, to {self.num_layers}, the last layer, "
                f"got {shown(list(layers))}"
            )
        return list(layers)

    def _embed(self, words: ModuleWriter) -> int:
        embeddings = f"{self.prefix}embeddings"
        table = f"{embeddings}.word_embeddings.weight"
        hidden = words.run(
            "EMBED",
            words.new(self.width),
            table=self.parts.table(table, self.program.embeddings, self.width, rounds=True),
            positions=self._positions(embeddings),
            scale=1.0,
        )
        return words.normalise(hidden, -1, f"{embeddings}.LayerNorm")

    def _positions(self, embeddings: str) -> Vector:
        """Return the rows of positions, to which the row of the first segment is added: there is no second one."""
        total, num_types = self.settings.number("max_position_embeddings"), self.settings.number("type_vocab_size", 2)
        # XLM-R counts positions from the row after the padding token's
        is_bert = self.settings["model_type"] == "bert"
        first = 0 if is_bert else self.settings.number("pad_token_id", 1, minimum=0) + 1
        if first >= total:
            raise UnsupportedModelError(
                f"{self.settings.origin}: `max_position_embeddings` ({total}) must be larger than `pad_token_id` + 1 "
                f"({first})"
            )
        positions, types = (f"{embeddings}.{kind}_embeddings.weight" for kind in ("position", "token_type"))
        self.parts.expect(positions, total, self.width)
        self.parts.expect(types, num_types, self.width)
        self.parts.keep_exact(positions, types)
        self.program.longest_source = count = total - first

        def read() -> Tensor:
            first_type = tensors.floats(self.parts.tensor(types))[: self.width]
            rows = tensors.floats(tensors.without_rows(self.parts.tensor(positions), first))
            return Tensor(array("f", map(add, rows, cycle(first_type))), "F32", (count, self.width))

        return Vector(count * self.width, read)

    def _layer(self, words: ModuleWriter, hidden: int, layer: str) -> None:
        names = (f"{layer}.attention.self.{name}" for name in ("query", "key", "value"))
        joined = words.apply(hidden, *names, outputs=self.width)
        attended = words.run("ATTEND_WORDS", words.new(self.width), joined=joined, heads=self.heads)
        output = words.apply(attended, f"{layer}.attention.output.dense", outputs=self.width)
        words.normalise(hidden, output, f"{layer}.attention.output.LayerNorm")
        inner = words.apply(
            hidden, f"{layer}.intermediate.dense", outputs=self.inner_width, activation=self.activation
        )
        words.normalise(
            hidden, words.apply(inner, f"{layer}.output.dense", outputs=self.width), f"{layer}.output.LayerNorm"
        )
