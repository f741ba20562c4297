"""The program of Marian and of Capsule Marian, with every seam.

Most matrices that share an input are stacked. The maps of layer aggregation by routing are multiplied out: no
nonlinearity is between an input capsule F X and its votes W F X, so W F is one matrix and votes take one product
instead of two.
"""

import itertools
import math
from collections.abc import Callable
from typing import cast

from capsule_mt.engine.program import (
    ACTIVATIONS,
    Codes,
    Linear,
    Positions,
    Program,
    Tensor,
    UnsupportedModelError,
    Vector,
)
from capsule_mt.models import tensors
from capsule_mt.models.guidance import guide
from capsule_mt.models.marian_variant import SIGMOID_GELU_SCALE, MarianVariant
from capsule_mt.models.parts import EPSILON, TIED, ModuleWriter, Parts, Writers
from capsule_mt.models.settings import FEED_FORWARD_ACTIVATIONS, MAX_ITERATIONS, ModelSettings
from capsule_mt.models.weights import CheckpointError, Weights

CELL_EPSILON = 1e-9  # what Marian adds to the variance inside of a recurrent cell


def marian_program(settings: ModelSettings, weights: Weights) -> tuple[Program, Parts]:
    """Return the program of Marian or Capsule Marian, and the weights that it uses."""
    # transformers' Marian lacks this field and always uses PyTorch's default
    epsilon = settings.real("layer_norm_eps", EPSILON) if settings["model_type"] == "capsule_marian" else EPSILON
    if epsilon == 0:
        raise CheckpointError(f"{settings.origin}: `layer_norm_eps` must be above 0, got 0")
    parts = Parts(weights, epsilon)
    return _Marian(settings, parts).program, parts


class _Marian:
    def __init__(self, settings: ModelSettings, parts: Parts) -> None:
        self.settings, self.parts = settings, parts
        decoder_self = settings.choice("decoder_self", "attention", DECODER_PASTS)
        self.write_past = DECODER_PASTS[decoder_self]
        self.variant = _variant(settings, decoder_self)
        if decoder_self != "attention" and self._routes_heads("decoder_self"):
            raise UnsupportedModelError(
                f'`head_aggregation` on "decoder_self" has no heads with `decoder_self` {decoder_self!r}: leave it '
                "out of `head_aggregation_sites`"
            )
        is_marian = settings.flag("marian_positions", False)
        self.width = settings.number("d_model", 1024, minimum=4 if is_marian else 1)
        if is_marian and self.width % 2 and not self.variant.odd_width:
            raise UnsupportedModelError(
                f"{settings.origin}: `marian_positions` needs an even `d_model`, got {self.width}"
            )
        self._zeros = Vector(self.width, lambda: tensors.of_floats([0.0] * self.width, (self.width,)))
        self.activation = settings.choice("activation_function", "gelu", FEED_FORWARD_ACTIVATIONS)
        self.scale = math.sqrt(self.width) if settings.flag("scale_embedding", False) else 1.0
        longest = settings.number("max_position_embeddings", 1024, maximum=2**24)
        is_shared = settings.flag("share_encoder_decoder_embeddings", True)
        vocabulary = settings.number("vocab_size", 58101)
        targets = vocabulary if is_shared else settings.number("decoder_vocab_size", vocabulary)
        self.program = Program(vocabulary=targets, embeddings=vocabulary)
        self.program.longest_source = self.program.longest_target = longest
        self.positions: Vector | Positions = Positions(longest, self.width, self.width - 2 if is_marian else None)
        if self.variant.odd_width:
            self.positions = _odd_positions(longest, self.width)
        self.writers = Writers.for_program(parts, self.program)
        encoder, decoder, output = TIED[1:]
        tied_tables = TIED if is_shared else ()
        source_table = parts.table(parts.tied(encoder, *tied_tables), vocabulary, self.width)
        target_table = parts.table(parts.tied(decoder, *tied_tables or (output,)), targets, self.width)

        words, step = self.writers.words, self.writers.step
        embedded = self._embed(words, source_table, "encoder")
        states = [self._preprocessed(words, embedded, "model.encoder.emb", self.variant.postprocess_emb)]
        for index in range(self._num_layers("encoder")):
            states.append(self._encoder_layer(self._connect(words, "encoder", states), index))
        source = self._top(words, self._aggregate(words, "encoder", states), embedded, "encoder")
        memory = self.writers.memory(source, self._num_layers("decoder"))
        embedded = self._embed(step, target_table, "decoder")
        states = [self._preprocessed(step, embedded, "model.decoder.emb", self.variant.postprocess_emb)]
        for index in range(self._num_layers("decoder")):
            states.append(self._decoder_layer(self._connect(step, "decoder", states), index, memory))
        hidden = self._top(step, self._aggregate(step, "decoder", states), embedded, "decoder")
        hidden = guide(self.writers, settings, source, hidden)
        self.program.num_caches = self._num_layers("decoder")
        table = parts.tied(output, *(tied_tables or (decoder,)) if settings.flag("tie_word_embeddings", True) else ())
        self.program.logits = step.linear(hidden, parts.vocabulary(table, targets, self.width))

    def _num_layers(self, side: str) -> int:
        return self.settings.number(f"{side}_layers", 12, minimum=0)

    def _num_heads(self, side: str) -> int:
        return self.settings.heads(side, self.width, 16)

    def _embed(self, writer: ModuleWriter, table: Vector, side: str) -> int:
        if not self.variant.has_positions:  # Marian then does not scale embeddings, either
            return writer.run("EMBED", writer.new(self.width), table=table, scale=1.0)
        positions: Vector | Positions = self.positions
        name = f"model.{side}.embed_positions.weight"
        if name in self.parts.weights:  # else sinusoids, which a checkpoint need not save
            positions = self.parts.vector(name, self.positions.count // self.width, self.width)
        return writer.run("EMBED", writer.new(self.width), table=table, positions=positions, scale=self.scale)

    def _preprocessed(self, writer: ModuleWriter, hidden: int, name: str, steps: str) -> int:
        """Return what a layer reads: its input, or a normalised copy of it; `steps` are letters of `MarianVariant`."""
        if not steps:
            return hidden
        hidden = writer.copy(hidden)
        for letter in steps:
            self._normalise(writer, hidden, f"{name}_pre_norm", letter)
        return hidden

    def _postprocess(self, writer: ModuleWriter, hidden: int, output: int, name: str, steps: str | None = None) -> int:
        """Combine a layer's output with its input, `hidden`, which receives the result."""
        steps = self.variant.postprocess if steps is None else steps
        if steps == "an":  # one operation for both
            return writer.normalise(hidden, output, f"{name}_layer_norm")
        for letter in steps:
            if letter == "a":
                writer.run("ADD", output, addend=hidden)
            elif letter == "h":
                output = self._highway(writer, hidden, output, f"{name}_gate")
            else:
                self._normalise(writer, output, f"{name}_layer_norm", letter)
        return writer.run("COPY", hidden, source=output)

    def _top(self, writer: ModuleWriter, hidden: int, embedded: int, side: str) -> int:
        """Apply the steps after the last layer, in which the embeddings count as the layer's input."""
        steps = self.variant.postprocess_top
        if not steps:
            return hidden
        return self._postprocess(writer, writer.copy(embedded), writer.copy(hidden), f"model.{side}.top", steps)

    def _normalise(self, writer: ModuleWriter, hidden: int, name: str, letter: str) -> None:
        if letter == "n":
            writer.normalise(hidden, -1, name)
            return
        gain = self.parts.vector(f"{name}_rms.weight", self.width)
        writer.run("RMS_NORM", hidden, gain=gain, epsilon=self.parts.epsilon)

    def _highway(self, writer: ModuleWriter, hidden: int, output: int, name: str) -> int:
        """Return g output + (1 - g) hidden for the gate g = sigmoid(W hidden + b)."""
        gate = self.parts.linear(name, self.width, self.width)
        gates = writer.linear(hidden, gate, _scaled(gate, -1.0, -1.0), activation="sigmoid")  # g, 1 - g
        return self._weighted(writer, gates, writer.concatenate(output, hidden))

    def _weighted(self, writer: ModuleWriter, gates: int, parts: int) -> int:
        return writer.run("WEIGHTED_SUM", writer.new(self.width), weights=gates, parts=parts, count=2)

    def _encoder_layer(self, below: int, index: int) -> int:
        words, layer = self.writers.words, f"model.encoder.layers.{index}"
        hidden = words.copy(below)
        joined = self._queries_keys_values(words, hidden, f"{layer}.self_attn")
        attended = words.run("ATTEND_WORDS", words.new(self.width), joined=joined, heads=self._num_heads("encoder"))
        self._project_heads(words, hidden, attended, f"{layer}.self_attn", "encoder_self", index)
        return self._feed_forward(words, hidden, layer, "encoder")

    def _queries_keys_values(self, writer: ModuleWriter, hidden: int, name: str) -> int:
        layer_input = self._preprocessed(writer, hidden, name, self.variant.preprocess)
        names = [f"{name}.{letter}_proj" for letter in "qkv"]
        if self.variant.normalises_keys or layer_input == hidden:
            return writer.apply(layer_input, *names, outputs=self.width)
        queries = writer.apply(layer_input, names[0], outputs=self.width)
        return writer.concatenate(queries, writer.apply(hidden, *names[1:], outputs=self.width))

    def _decoder_layer(self, below: int, index: int, memory: int) -> int:
        step, layer, heads = self.writers.step, f"model.decoder.layers.{index}", self._num_heads("decoder")
        hidden = step.copy(below)
        self.write_past(self, hidden, layer, index)
        layer_input = self._preprocessed(step, hidden, f"{layer}.encoder_attn", self.variant.preprocess)
        attended = step.attend_source(layer_input, memory, f"{layer}.encoder_attn", heads, index)
        self._project_heads(step, hidden, attended, f"{layer}.encoder_attn", "cross", index)
        return self._feed_forward(step, hidden, layer, "decoder")

    def _attend_past(self, hidden: int, layer: str, index: int) -> None:
        step, heads = self.writers.step, self._num_heads("decoder")
        joined = self._queries_keys_values(step, hidden, f"{layer}.self_attn")
        attended = step.run("ATTEND_PAST", step.new(self.width), joined=joined, heads=heads, cache=index)
        self._project_heads(step, hidden, attended, f"{layer}.self_attn", "decoder_self", index)

    def _recur(self, hidden: int, layer: str, index: int) -> None:
        """Apply the SSRU (Kim et al. 2019), the recurrent unit that replaces self-attention."""
        step, states = self.writers.step, self.writers.states
        name = f"{layer}.self_attn"
        layer_input = self._preprocessed(step, hidden, name, self.variant.preprocess)
        gates_of = self._normalised_gates if self.variant.ssru_layer_norm else self._gates
        gates = gates_of(layer_input, name)
        output = step.run("SSRU", step.new(self.width), gates=gates, state=states.new(self.width))
        self._leave_recurrence(hidden, output, name)

    def _gates(self, layer_input: int, name: str) -> int:
        forget = self.parts.linear(f"{name}.forget_gate", self.width, self.width)
        fresh = self.parts.linear(f"{name}.input_map", self.width, self.width, bias=False)
        return self.writers.step.linear(layer_input, forget, fresh)

    def _normalised_gates(self, layer_input: int, name: str) -> int:
        """Return the gates of an SSRU with `layer-normalization`: the bias follows the normalisation."""
        step, gates = self.writers.step, []
        for gate, norm, bias in (
            ("forget_gate", "forget_norm", self.parts.vector(f"{name}.forget_gate.bias", self.width)),
            ("input_map", "input_norm", self._zeros),
        ):
            gates.append(step.apply(layer_input, f"{name}.{gate}", outputs=self.width, bias=False))
            gain = self.parts.vector(f"{name}.{norm}.weight", self.width)
            step.norm(gates[-1], -1, gain, bias, CELL_EPSILON)
        return step.concatenate(*gates)

    def _recur_gated(self, hidden: int, layer: str, index: int) -> None:
        """Apply the GRU of Marian's `dec-cell` "gru"."""
        step, states = self.writers.step, self.writers.states
        name, width = f"{layer}.self_attn", self.width
        layer_input = self._preprocessed(step, hidden, name, self.variant.preprocess)
        state = states.new(width)

        def gates(side: str, bias: bool) -> list[Linear]:
            sizes = (("gates", 2 * width), ("candidate", width))
            return [self.parts.linear(f"{name}.{side}_{part}", size, width, bias=bias) for part, size in sizes]

        from_input = step.linear(layer_input, *gates("input", True))
        from_state = step.linear(state, *gates("state", False))
        step.run("GRU_STEP", state, from_input=from_input, from_state=from_state, state=state)
        self._leave_recurrence(hidden, step.copy(state), name)

    def _leave_recurrence(self, hidden: int, output: int, name: str) -> None:
        if self.variant.rnn_projection:
            output = self.writers.step.apply(output, f"{name}.out_proj", outputs=self.width)
        self._postprocess(self.writers.step, hidden, output, name)

    def _average(self, hidden: int, layer: str, index: int) -> None:
        """Apply average attention (Zhang et al. 2018): the mean of all inputs so far, through layers and gates."""
        step, states = self.writers.step, self.writers.states
        variant, name = self.variant, f"{layer}.self_attn"
        average = step.run("MEAN_PAST", step.new(self.width), source=hidden, state=states.new(self.width))
        output = self._preprocessed(step, average, name, variant.preprocess)
        for number in range(1, variant.average_ffn_depth):
            output = step.apply(
                output,
                f"{name}.fc{number}",
                outputs=variant.average_ffn_dim,
                activation=variant.average_activation,
            )
        if self.program.width(output) != self.width:
            output = step.apply(output, f"{name}.fc{variant.average_ffn_depth}", outputs=self.width)
        if variant.average_gates:
            gates = [
                step.apply(gate_input, f"{name}.{gate}_gate", outputs=self.width, activation="sigmoid")
                for gate, gate_input in (("input", hidden), ("forget", output))
            ]
            output = self._weighted(step, step.concatenate(*gates), step.concatenate(hidden, output))
        self._postprocess(step, hidden, output, name)

    def _feed_forward(self, writer: ModuleWriter, hidden: int, layer: str, side: str) -> int:
        width, depth = self.settings.number(f"{side}_ffn_dim", 4096), getattr(self.variant, f"{side}_ffn_depth")
        output, activation, scale = hidden, self.activation, 1.0
        if self.variant.sigmoid_gelu:  # x sigmoid(s x) = silu(s x) / s
            activation, scale = "silu", SIGMOID_GELU_SCALE
        output = self._preprocessed(writer, hidden, f"{layer}.final", self.variant.preprocess)
        for number in range(1, depth + 1):
            is_last, inputs = number == depth, self.program.width(output)
            linear = self.parts.linear(f"{layer}.fc{number}", self.width if is_last else width, inputs)
            if scale != 1.0:
                bias_scale = 1.0 if is_last else scale
                linear = _scaled(linear, bias_scale if number == 1 else bias_scale / scale, bias_scale)
            output = writer.linear(output, linear, activation="none" if is_last else activation)
        return self._postprocess(writer, hidden, output, f"{layer}.final")

    def _project_heads(
        self, writer: ModuleWriter, hidden: int, attended: int, attention: str, site: str, index: int
    ) -> None:
        """Add the heads of an attention, mapped by W^O or routed, to the residual stream."""
        layers = self.settings["head_aggregation_layers"]
        is_routed = self._routes_heads(site) and (layers is None or index in layers)
        aggregate = HEAD_AGGREGATIONS[self.settings["head_aggregation"] if is_routed else "concat"]
        output = attended
        if self.variant.attention_projection:
            output = aggregate(self, writer, attended, attention, site)
        self._postprocess(writer, hidden, output, attention)

    def _routes_heads(self, site: str) -> bool:
        method = self.settings.choice("head_aggregation", "concat", HEAD_AGGREGATIONS)
        sites = self.settings["head_aggregation_sites"]
        return method != "concat" and site in (["encoder_self"] if sites is None else sites)

    def _map_heads(self, writer: ModuleWriter, heads: int, attention: str, site: str) -> int:
        return writer.apply(heads, f"{attention}.out_proj", outputs=self.width)

    def _route_heads(self, writer: ModuleWriter, heads: int, attention: str, site: str) -> int:
        """Route the heads as input capsules (Li et al. 2019), in place of their linear map or beside it."""
        adds = self.settings.choice("head_aggregation_placement", "replaces", ("replaces", "adds")) == "adds"
        if not adds:
            return self._capsules_of_heads(writer, heads, f"{attention}.out_proj", site)
        output = self._capsules_of_heads(writer, heads, f"{attention}.added_routing", site)
        writer.normalise(output, -1, f"{attention}.added_routing.layer_norm")
        writer.run("ADD", output, addend=self._map_heads(writer, heads, attention, site))
        return output

    def _capsules_of_heads(self, writer: ModuleWriter, heads: int, name: str, site: str) -> int:
        activation = self.settings.choice("head_aggregation_activation", "relu", ("relu", "tanh"))
        num_heads = self._num_heads("encoder" if site == "encoder_self" else "decoder")
        capsules = writer.apply(heads, f"{name}.input_capsules", outputs=self.width, activation=activation)
        maps = self._capsule_map(
            f"{name}.votes", "head_aggregation_vote_input", num_heads, self.width // num_heads, self.width, bias=False
        )
        votes = writer.linear(capsules, maps)
        return self._route(writer, "head_aggregation", name, votes, num_heads)

    def _aggregates(self, side: str) -> bool:
        sides = self.settings.choice("layer_aggregation_side", "both", ("both", "encoder", "decoder"))
        return self._method != "none" and sides in ("both", side)

    @property
    def _method(self) -> str:
        return self.settings.choice("layer_aggregation", "none", ("none", *LAYER_AGGREGATIONS, *DEPTH_SUMS))

    def _aggregate(self, writer: ModuleWriter, side: str, states: list[int]) -> int:
        """Combine the embedding and the outputs of a stack's layers to its result."""
        if not self._aggregates(side):
            return states[-1]
        name = f"model.{side}.layer_aggregation"
        return self._combine(writer, name, states if self._method in DEPTH_SUMS else states[1:] or states)

    def _connect(self, writer: ModuleWriter, side: str, states: list[int]) -> int:
        """Return what the next layer of a stack reads: with `depth_connections`, a sum of all below it."""
        if not (self.settings.flag("depth_connections", False) and self._aggregates(side) and len(states) > 1):
            return states[-1]
        return self._combine(writer, f"model.{side}.depth_connections.{len(states) - 1}", states)

    def _combine(self, writer: ModuleWriter, name: str, sources: list[int]) -> int:
        """Combine the outputs of layers (Dou et al. 2019, and successors)."""
        adds, is_sum = self._adds(), self._method in DEPTH_SUMS
        combine = DEPTH_SUMS[self._method] if is_sum else LAYER_AGGREGATIONS[self._method]
        combined = combine(self, writer, name, writer.concatenate(*sources), len(sources))
        if adds or not is_sum:
            writer.normalise(combined, -1, f"{name}.layer_norm")
        if adds:
            writer.run("ADD", combined, addend=sources[-1])
        return combined

    def _adds(self) -> bool:
        """Return whether an aggregation is added to the top layer's output, and does not replace it."""
        placement, old_name = "layer_aggregation_placement", "layer_aggregation_residual"
        residual = self.settings.flag(old_name, False)
        adds = self.settings.choice(placement, "adds" if residual else "replaces", ("replaces", "adds")) == "adds"
        if self.settings[old_name] is not None and residual != adds:
            other = f"`{placement}` {self.settings[placement]!r}"
            raise CheckpointError(f"{self.settings.origin}: `{old_name}` {residual} contradicts {other}")
        return adds

    def _sum_densely(self, writer: ModuleWriter, name: str, joined: int, count: int) -> int:
        return self._sum(writer, joined, count, offsets=self.parts.vector(f"{name}.weights", count))

    def _attend_over_depth(self, writer: ModuleWriter, name: str, joined: int, count: int) -> int:
        normalized = self._rms_norm(writer, joined, count, gain=self.parts.vector(f"{name}.gain", self.width))
        weights = writer.linear(normalized, self.parts.map(f"{name}.query", None, 1, self.width), fold=count)
        return self._sum(writer, joined, count, weights=writer.run("SOFTMAX", weights))

    def _sum_by_network(self, writer: ModuleWriter, name: str, joined: int, count: int) -> int:
        top = writer.run(
            "COPY", writer.new(self.width), source=joined, start=(count - 1) * self.width, count=self.width
        )
        inner = self.parts.map(f"{name}.inner", None, count, self.width)
        hidden = writer.linear(self._rms_norm(writer, top, 1), inner, activation="gelu")
        outer = self.parts.map(f"{name}.outer", f"{name}.offsets", count, count)
        return self._sum(writer, joined, count, weights=writer.linear(hidden, outer))

    def _sum_by_units(self, writer: ModuleWriter, name: str, joined: int, count: int) -> int:
        direction = self.parts.map(f"{name}.direction", None, 1, self.width)
        weights = writer.linear(self._rms_norm(writer, joined, count), direction, activation="relu", fold=count)
        offsets = self.parts.vector(f"{name}.offsets", count, self.width)
        return self._sum(writer, joined, count, weights=weights, offsets=offsets)

    def _sum(self, writer: ModuleWriter, joined: int, count: int, **factors: int | Vector) -> int:
        return writer.run("WEIGHTED_SUM", writer.new(self.width), parts=joined, count=count, **factors)

    def _rms_norm(self, writer: ModuleWriter, hidden: int, parts: int, **gain: Vector) -> int:
        """Return a copy of a buffer in which each part has a root mean square of 1."""
        return writer.run("RMS_NORM", writer.copy(hidden), parts=parts, epsilon=self.parts.epsilon, **gain)

    def _combine_linearly(self, writer: ModuleWriter, name: str, joined: int, num_layers: int) -> int:
        inner, inputs = 4 * self.width, num_layers * self.width
        first = self._updated(self.parts.linear(f"{name}.fc1", inner, inputs))
        second = self._updated(self.parts.linear(f"{name}.fc2", self.width, inner))
        return writer.linear(joined, self._composed(first, second, name))

    def _combine_dynamically(self, writer: ModuleWriter, name: str, joined: int, num_layers: int) -> int:
        width, inputs = 4 * self.width, num_layers * self.width
        first = self._updated(self.parts.linear(f"{name}.fc1", width, inputs))
        second = self._updated(self.parts.linear(f"{name}.fc2", inputs, width))
        gates = writer.linear(writer.linear(joined, first, activation="relu"), second)
        return writer.run("WEIGHTED_SUM", writer.new(self.width), weights=gates, parts=joined, count=num_layers)

    def _route_layers(self, writer: ModuleWriter, name: str, joined: int, num_layers: int) -> int:
        """Route the layers as input capsules (Dou et al. 2019)."""
        settings, width = self.settings, self.width
        num_capsules = settings.divisor("layer_aggregation_num_capsules", "d_model", width)
        inner = self._updated(
            self._capsule_map(f"{name}.input_capsules", "layer_aggregation_capsule_input", num_layers, width, width)
        )
        votes = self._updated(
            self._capsule_map(f"{name}.votes", "layer_aggregation_vote_input", num_layers, width, width, bias=False)
        )
        maps, activation = [self._composed(inner, votes, name)], "none"
        if settings["layer_aggregation"] == "em_routing":
            activation = settings.choice("em_input_activation", "vector", ("vector", "scalar", "none"))
        if activation == "none":
            return self._route(writer, "layer_aggregation", name, writer.linear(joined, *maps), num_layers)
        outputs = num_capsules if activation == "vector" else 1
        activate = self._updated(
            self._capsule_map(f"{name}.input_activation", "layer_aggregation_vote_input", num_layers, width, outputs)
        )
        maps.append(_repeated(self._composed(inner, activate, name), num_capsules // outputs))
        mapped = writer.linear(joined, *maps)
        writer.run("ACTIVATE", mapped, column=num_layers * width, activation=ACTIVATIONS["sigmoid"])
        return self._route(writer, "layer_aggregation", name, mapped, num_layers, activations=num_layers * width)

    def _updated(self, linear: Linear) -> Linear:
        """Return a map of a layer aggregation, whose weights are stored divided by its update scale."""
        scale = self.settings.real("layer_aggregation_update_scale", 1.0)
        return linear if scale == 1.0 else _scaled(linear, scale, scale)

    def _capsule_map(
        self, name: str, field: str, num_capsules: int, inputs: int, outputs: int, *, bias: bool = True
    ) -> Linear:
        """Return the map to each capsule's outputs: from the inputs of all capsules, or only its own.

        field: the setting that says which: "all" or "own".
        """
        rows, columns = num_capsules * outputs, num_capsules * inputs
        if self.settings.choice(field, "all", ("all", "own")) == "all":
            return self.parts.linear(name, rows, columns, bias=bias)
        self.parts.expect(f"{name}.weight", num_capsules, outputs, inputs)
        if bias:
            self.parts.expect(f"{name}.bias", rows)

        def read() -> tuple[Tensor, Tensor | None]:
            matrix = tensors.block_diagonal(self.parts.tensor(f"{name}.weight"))
            return matrix, self.parts.tensor(f"{name}.bias") if bias else None

        return Linear(rows, columns, read)

    def _composed(self, first: Linear, second: Linear, name: str) -> Linear:
        """Return the product of two maps as one map; `name` is the module that holds both."""
        self.parts.keep_exact(*(tensor for tensor in self.parts.used if tensor.startswith(f"{name}.")))

        def read() -> tuple[Tensor, Tensor | None]:
            (inner, inner_bias), (outer, bias) = first.read(), second.read()
            return tensors.composed((tensors.decoded(inner), cast(Tensor, inner_bias)), (tensors.decoded(outer), bias))

        return Linear(second.outputs, first.inputs, read)

    def _route(
        self, writer: ModuleWriter, seam: str, name: str, votes: int, num_inputs: int, activations: int = -1
    ) -> int:
        """Route votes [inputs, capsules, width] by the method of a seam."""
        num_capsules = self.settings.divisor(f"{seam}_num_capsules", "d_model", self.width)
        iterations = self.settings.number(f"{seam}_num_iterations", 3, maximum=MAX_ITERATIONS)
        sizes = {"inputs": num_inputs, "capsules": num_capsules, "width": self.width // num_capsules}
        sizes["iterations"], out, method = iterations, writer.new(self.width), self.settings[seam]
        if method == "em_routing":
            final = self.settings.real("em_lambda_final", 0.01)
            lambdas = [final * (1 - 0.95 ** (index + 1)) for index in range(iterations)]
            betas = {beta: self.parts.vector(f"{name}.{beta}", num_capsules) for beta in ("beta_a", "beta_u")}
            schedule = Vector(iterations, lambda: tensors.of_floats(lambdas, (iterations,)))
            min_variance = self.settings.real("em_min_variance", 5e-4)
            sizes["activations"] = activations
            return writer.run(
                "EM_ROUTING", out, votes=votes, **betas, lambdas=schedule, **sizes, min_variance=min_variance
            )
        normalize = method == "simple_routing" or self.settings.flag("layer_aggregation_normalize_total_input", True)
        return writer.run("DYNAMIC_ROUTING", out, votes=votes, **sizes, normalize=int(normalize))


def _variant(settings: ModelSettings, decoder_self: str) -> MarianVariant:
    """Return the variant of a model that Marian wrote; a checkpoint of transformers does not have one."""
    variant = settings["marian_variant"]
    if variant is None and decoder_self in ("attention", "ssru"):
        return MarianVariant(decoder_self=decoder_self)
    if not isinstance(variant, MarianVariant):
        raise UnsupportedModelError(
            f"{settings.origin}: `decoder_self` {decoder_self!r} and `marian_variant` are for files of Marian"
        )
    return variant


def _odd_positions(count: int, width: int) -> Vector:
    """Return Marian's positions of an odd width: the last column repeats the first cosine."""

    def read() -> Tensor:
        frequencies = [10000 ** (-2 * index / (width - 2)) for index in range(width // 2)]
        angles = ([position * frequency for frequency in frequencies] for position in range(count))
        rows = ([*map(math.sin, row), *map(math.cos, [*row, row[0]])] for row in angles)
        return tensors.of_floats(itertools.chain.from_iterable(rows), (count, width))

    return Vector(count * width, read)


def _scaled(linear: Linear, weight_scale: float, bias_scale: float) -> Linear:
    """Return a map whose weight and bias are multiplied by numbers."""

    def read() -> tuple[Tensor | Codes, Tensor | None]:
        weight, bias = linear.read()
        return tensors.scaled(weight, weight_scale), bias and cast(Tensor, tensors.scaled(bias, bias_scale))

    return Linear(linear.outputs, linear.inputs, read)


def _repeated(linear: Linear, times: int) -> Linear:
    """Return a map that gives each output `times` times in a row: an input's activation for every output capsule."""

    def read() -> tuple[Tensor, Tensor | None]:
        weight, bias = linear.read()
        return tensors.repeated(tensors.decoded(weight), times), bias and tensors.repeated(bias, times)

    return linear if times == 1 else Linear(times * linear.outputs, linear.inputs, read)


LayerAggregation = Callable[[_Marian, ModuleWriter, str, int, int], int]
LAYER_AGGREGATIONS: dict[str, LayerAggregation] = {
    "linear": _Marian._combine_linearly,
    "dynamic_combination": _Marian._combine_dynamically,
    "dynamic_routing": _Marian._route_layers,
    "em_routing": _Marian._route_layers,
}
# sums of the embedding and the outputs of the layers
DEPTH_SUMS: dict[str, LayerAggregation] = {
    "dense": _Marian._sum_densely,
    "depth_attention": _Marian._attend_over_depth,
    "mudd": _Marian._sum_by_network,
    "grn": _Marian._sum_by_units,
}
HEAD_AGGREGATIONS = {
    "concat": _Marian._map_heads,
    "simple_routing": _Marian._route_heads,
    "em_routing": _Marian._route_heads,
}
# how a decoder layer reads the past
DECODER_PASTS = {
    "attention": _Marian._attend_past,
    "ssru": _Marian._recur,
    "average": _Marian._average,
    "gru": _Marian._recur_gated,
}
