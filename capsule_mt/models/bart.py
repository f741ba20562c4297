"""The programs of BART's relatives: M2M100 and NLLB-200, mBART and mBART-50, BART, Pegasus, Blenderbot.

They differ in where LayerNorm stands and in their positions; `FAMILIES` lists how.
"""

import math
from typing import NamedTuple

from capsule_mt.engine.program import Positions, Program, UnsupportedModelError, Vector
from capsule_mt.models import tensors
from capsule_mt.models.parts import TIED, ModuleWriter, Parts, Writers
from capsule_mt.models.settings import FEED_FORWARD_ACTIVATIONS, ModelSettings
from capsule_mt.models.weights import Weights


class Family(NamedTuple):
    """How a family differs from the others.

    norm_first: LayerNorm precedes each sublayer and follows the last layer; else it follows each sublayer.
    norm_embeddings: LayerNorm follows the embeddings, too.
    learned_positions: positions are a table of the checkpoint; else they are sinusoids.
    first_position: the table's row for position 0; `None`: the row after the padding token's.
    """

    norm_first: bool
    norm_embeddings: bool
    learned_positions: bool
    first_position: int | None


FAMILIES = {
    "m2m_100": Family(True, False, False, None),
    "mbart": Family(True, True, True, 2),
    "bart": Family(False, True, True, 2),
    "pegasus": Family(True, False, False, 0),
    "blenderbot": Family(True, False, True, 0),
}


def bart_program(settings: ModelSettings, weights: Weights) -> tuple[Program, Parts]:
    """Return the program of a model of `FAMILIES`, and the weights that it uses."""
    parts = Parts(weights)
    return _Bart(settings, parts).program, parts


class _Bart:
    def __init__(self, settings: ModelSettings, parts: Parts) -> None:
        self.settings, self.parts = settings, parts
        self.family = FAMILIES[settings["model_type"]]
        self.width = settings.number("d_model", minimum=4)
        if self.width % 2 and not self.family.learned_positions:
            raise UnsupportedModelError(f"{settings.origin}: sinusoids need an even `d_model`, got {self.width}")
        self.activation = settings.choice("activation_function", None, FEED_FORWARD_ACTIVATIONS)
        self.scale = math.sqrt(self.width) if settings.flag("scale_embedding") else 1.0
        self.max_positions = settings.number("max_position_embeddings", maximum=2**24)
        vocabulary_size = settings.number("vocab_size")
        self.program = Program(vocabulary=vocabulary_size, embeddings=vocabulary_size)
        self.program.longest_source = self.program.longest_target = self.max_positions
        self.writers = Writers.for_program(parts, self.program)
        self.sinusoids = self._sinusoids()  # one object for both sides, so that the program has one table
        shared, encoder, decoder, head = TIED
        is_tied = settings.flag("tie_word_embeddings", True)
        source_matrix, target_matrix, head_matrix = (
            parts.tied(shared, *TIED) if is_tied else parts.tied(module, shared) for module in (encoder, decoder, head)
        )
        # a table of 256,206 rows in float16 would take as much memory as everything else in int8
        source_table, target_table = (
            parts.table(matrix, vocabulary_size, self.width, rounds=True) for matrix in (source_matrix, target_matrix)
        )

        words, _, step, _ = self.writers
        hidden = self._embed(words, source_table, "encoder")
        for index in range(self._num_layers("encoder")):
            self._encoder_layer(hidden, f"model.encoder.layers.{index}")
        self._norm_last(words, hidden, "encoder")
        memory = self.writers.memory(hidden, self._num_layers("decoder"))
        hidden = self._embed(step, target_table, "decoder")
        for index in range(self._num_layers("decoder")):
            self._decoder_layer(hidden, f"model.decoder.layers.{index}", index, memory)
        self._norm_last(step, hidden, "decoder")
        self.program.num_caches = self._num_layers("decoder")
        self.program.logits = step.linear(hidden, parts.vocabulary(head_matrix, vocabulary_size, self.width))

    def _sinusoids(self) -> Positions:
        if self.family.first_position is not None:
            return Positions(self.max_positions, self.width, start=self.family.first_position)
        pad = self.settings.number("pad_token_id", 1, minimum=0)
        # transformers does not add a sinusoid to padding tokens; the engine adds one to every token
        if self.settings["decoder_start_token_id"] == pad:
            raise UnsupportedModelError(
                f"{self.settings.origin}: `decoder_start_token_id` must not be the padding token, {pad}"
            )
        # a span of `width` - 2 gives tensor2tensor's frequencies, which Marian also uses
        return Positions(self.max_positions, self.width, span=self.width - 2, start=pad + 1)

    def _num_layers(self, side: str) -> int:
        return self.settings.number(f"{side}_layers", minimum=0)

    def _embed(self, writer: ModuleWriter, table: Vector, side: str) -> int:
        name = f"model.{side}.embed_positions.weight"
        positions: Positions | Vector = self.sinusoids
        if self.family.learned_positions or name in self.parts.weights:
            positions = self._stored_positions(name, self.family.first_position or 0)
        hidden = writer.run("EMBED", writer.new(self.width), table=table, positions=positions, scale=self.scale)
        if self.family.norm_embeddings:
            writer.normalise(hidden, -1, f"model.{side}.layernorm_embedding")
        return hidden

    def _stored_positions(self, name: str, first: int) -> Vector:
        """Return the checkpoint's table of positions without the rows before `first`."""
        self.parts.expect(name, first + self.max_positions, self.width)
        self.parts.keep_exact(name)
        size = self.max_positions * self.width
        return Vector(size, lambda: tensors.without_rows(self.parts.tensor(name), first))

    # ---- a sublayer reads the residual stream, and adds its output to the stream
    def _sublayer_input(self, writer: ModuleWriter, hidden: int, norm: str) -> int:
        return writer.normalise(writer.copy(hidden), -1, norm) if self.family.norm_first else hidden

    def _add(self, writer: ModuleWriter, hidden: int, output: int, norm: str) -> None:
        if self.family.norm_first:
            writer.run("ADD", hidden, addend=output)
        else:
            writer.normalise(hidden, output, norm)

    def _norm_last(self, writer: ModuleWriter, hidden: int, side: str) -> None:
        if self.family.norm_first:
            writer.normalise(hidden, -1, f"model.{side}.layer_norm")

    # ---- layers change the residual stream in place
    def _encoder_layer(self, hidden: int, layer: str) -> None:
        words = self.writers.words
        self._self_attention(words, hidden, layer, "encoder", "ATTEND_WORDS")
        self._feed_forward(words, hidden, layer, "encoder")

    def _decoder_layer(self, hidden: int, layer: str, index: int, memory: int) -> None:
        step, heads = self.writers.step, self.settings.heads("decoder", self.width)
        self._self_attention(step, hidden, layer, "decoder", "ATTEND_PAST", cache=index)
        attention, norm = f"{layer}.encoder_attn", f"{layer}.encoder_attn_layer_norm"
        attended = step.attend_source(self._sublayer_input(step, hidden, norm), memory, attention, heads, index)
        self._add(step, hidden, step.apply(attended, f"{attention}.out_proj", outputs=self.width), norm)
        self._feed_forward(step, hidden, layer, "decoder")

    def _self_attention(
        self, writer: ModuleWriter, hidden: int, layer: str, side: str, operation: str, **fields: int
    ) -> None:
        attention, norm = f"{layer}.self_attn", f"{layer}.self_attn_layer_norm"
        sublayer_input, heads = self._sublayer_input(writer, hidden, norm), self.settings.heads(side, self.width)
        joined = writer.apply(sublayer_input, *(f"{attention}.{letter}_proj" for letter in "qkv"), outputs=self.width)
        attended = writer.run(operation, writer.new(self.width), joined=joined, heads=heads, **fields)
        self._add(writer, hidden, writer.apply(attended, f"{attention}.out_proj", outputs=self.width), norm)

    def _feed_forward(self, writer: ModuleWriter, hidden: int, layer: str, side: str) -> None:
        norm, inner_width = f"{layer}.final_layer_norm", self.settings.number(f"{side}_ffn_dim")
        sublayer_input = self._sublayer_input(writer, hidden, norm)
        inner = writer.apply(sublayer_input, f"{layer}.fc1", outputs=inner_width, activation=self.activation)
        self._add(writer, hidden, writer.apply(inner, f"{layer}.fc2", outputs=self.width), norm)
