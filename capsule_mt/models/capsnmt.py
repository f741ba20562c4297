"""The program of CapsNMT: each step of its LSTM decoder reads a fixed number of capsules, or of pooled vectors."""

import math
from typing import Any

from capsule_mt.engine.program import Positions, Program, UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.parts import ModuleWriter, Parts, Writers
from capsule_mt.models.recurrent import attend, bidirectional_layer, hidden_width, logits, lookup, maps
from capsule_mt.models.settings import MAX_ITERATIONS, ModelSettings
from capsule_mt.models.weights import Weights

LONGEST_SOURCE = 1024  # tokens in the engine's table of positions; the model itself does not have a limit
NUM_POOLED_VECTORS = 4
TIED = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")


def capsnmt_program(settings: ModelSettings, weights: Weights) -> tuple[Program, Parts]:
    """Return the program of a CapsNMT, and the weights that it uses."""
    parts = Parts(weights)
    width, vocabulary = hidden_width(settings), settings.number("vocab_size", 50000)
    embedding_width = settings.number("embedding_size", width)
    scale = math.sqrt(embedding_width) if settings.flag("scale_embedding", True) else 1.0
    aggregation = settings.choice("aggregation", "capsules", ("capsules", "pooling"))
    program = Program(vocabulary=vocabulary, embeddings=vocabulary)
    words, sources, step, states = writers = Writers.for_program(parts, program)

    def embed(writer: ModuleWriter, side: str) -> int:
        embedded = lookup(writer, parts.tied(f"model.{side}.embed_tokens", *TIED), vocabulary, embedding_width, scale)
        if embedding_width == width:
            return embedded
        return writer.apply(embedded, f"model.{side}.embedding_projection", outputs=width, bias=False)

    hidden = embed(words, "encoder")
    for index in range(settings.number("encoder_layers", 4)):
        hidden = bidirectional_layer(words, hidden, f"model.encoder.layers.{index}", "norm", "lstm", width)
    if aggregation == "pooling":
        capsules = sources.run("POOL_WORDS", sources.new(NUM_POOLED_VECTORS * width), words=hidden)
    else:
        capsules = _capsules(writers, settings, hidden)
    has_short_capsules = aggregation == "capsules" and not settings.flag("normalize_capsules", False)
    projection = parts.linear(
        "model.decoder.source_projection",
        width,
        program.width(capsules),
        bias=False,
        scale=math.sqrt(width) if has_short_capsules else 1.0,
    )
    source = sources.linear(capsules, projection)

    word = embed(step, "decoder")
    top = step.run("ADD", step.copy(source), addend=word)
    for index in range(settings.number("decoder_layers", 3)):
        top = _lstm_step(step, states, top, f"model.decoder.layers.{index}")
        if index == 0 and settings.flag("source_attention", False):
            name = "model.decoder.source_attention"
            attended = attend(writers, hidden, top, f"{name}.attention")
            top = step.normalise(
                step.apply(attended, f"{name}.output", outputs=width, bias=False), top, f"{name}.norm"
            )
    table = parts.tied("lm_head", *(TIED if settings.flag("tie_word_embeddings", True) else ()))
    program.logits = logits(step, top, "output_projection", table, vocabulary, embedding_width)
    return program, parts


def _capsules(writers: Writers, settings: ModelSettings, hidden: int) -> int:
    """Route the encoder's states `hidden` [S, D] to a fixed number of capsules; return the buffer with all of them."""
    words, sources, _, _ = writers
    parts, program, name = words.parts, words.program, "model.encoder.aggregation"
    for field in ("score_scale", "compared_capsule_scale"):
        if settings.real(field, 1.0) != 1.0:
            raise UnsupportedModelError(
                f"`{field}` {shown(settings[field])} is not supported by the engine: it must be 1.0"
            )
    width, num_capsules = program.width(hidden), settings.number("num_capsules", 6)
    iterations = settings.number("num_iterations", 3, maximum=MAX_ITERATIONS)
    num_weight_sets = 1 if settings.flag("share_iteration_weights", False) else iterations
    routing: dict[str, Any] = {"capsules": num_capsules, "iterations": iterations, "sets": num_weight_sets}
    positioned = hidden
    if settings.flag("position_aware", True):
        program.longest_source = max(LONGEST_SOURCE, num_capsules)
        positioned = words.copy(hidden)
        words.run("ADD_POSITIONS", positioned, positions=Positions(program.longest_source, width))
        routing["positions"] = Positions(num_capsules, width)
    votes = words.apply(
        positioned, f"{name}.votes", outputs=num_weight_sets * num_capsules * width, bias=False, activation="relu"
    )
    if settings.flag("separable_scoring", True):
        inner = words.apply(positioned, f"{name}.inner_scoring", outputs=width, activation="relu")
        routing["scores"] = words.apply(inner, f"{name}.outer_scoring", outputs=width)
        routing |= {layer: parts.linear(f"{name}.{layer}_scoring", width, width) for layer in ("inner", "outer")}
    routed = sources.run("SEPARABLE_ROUTING", sources.new(num_capsules * width), votes=votes, **routing)
    if not settings.flag("normalize_capsules", False):
        return routed
    capsules = []
    for start in range(0, num_capsules * width, width):
        capsule = sources.run("COPY", sources.new(width), source=routed, start=start, count=width)
        capsules.append(sources.normalise(capsule, -1, f"{name}.norm"))
    return sources.concatenate(*capsules)


def _lstm_step(step: ModuleWriter, states: ModuleWriter, hidden: int, layer: str) -> int:
    """Compute LayerNorm(x + LSTM(x)) for one step of the decoder."""
    width = step.program.width(hidden)
    state, cell = states.new(width), states.new(width)
    from_input, from_state = maps(step.parts, f"{layer}.lstm", "lstm", width, width)
    gates = step.linear(hidden, from_input)
    step.run("ADD", gates, addend=step.linear(state, from_state))
    states.run("LSTM_STEP", state, cell=cell, gates=gates)
    return step.normalise(step.copy(state), hidden, f"{layer}.norm")
