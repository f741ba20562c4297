"""The programs of CapsNMT and of RNMT."""

import math
from collections.abc import Iterable
from typing import cast

import torch
from torch import nn

from hf_capsule_mt.configuration import CapsNMTConfig
from hf_capsule_mt.fast.marian_program import guide
from hf_capsule_mt.fast.programs import (
    Kind,
    Linear,
    Program,
    Space,
    UnsupportedModelError,
    Writer,
    check_plain,
    known_class,
)
from hf_capsule_mt.modeling.additive_attention import AdditiveAttention
from hf_capsule_mt.modeling.gru import GRULayer
from hf_capsule_mt.modeling.modeling_capsnmt import CapsNMTForConditionalGeneration, RecurrentStack
from hf_capsule_mt.modeling.modeling_capsule_rnmt import CapsuleRNMTForConditionalGeneration
from hf_capsule_mt.modeling.recurrent import ResidualLSTM
from hf_capsule_mt.modeling.source_aggregation import SourceCapsules, SourcePooling
from hf_capsule_mt.modeling.transformer import sinusoids


def capsnmt_program(model: CapsNMTForConditionalGeneration, longest_source: int = 1024) -> Program:
    """Return the program of a `CapsNMTForConditionalGeneration`, for sources of at most `longest_source` tokens."""
    config, encoder, decoder = model.config, model.model.encoder, model.model.decoder
    program = Program(vocabulary=len(model.lm_head.weight))
    words = Writer(program, program.encoder, Space.WORDS)
    sources = Writer(program, program.encoder, Space.SOURCES)
    hidden = _embed(words, encoder, config)
    for layer in cast(Iterable[ResidualLSTM], encoder.layers):
        hidden = _both_directions(words, hidden, layer.lstm, layer.norm, Kind.LSTM_WORDS, 4)
    if known_class(encoder.aggregation, SourcePooling, SourceCapsules) is SourcePooling:
        capsules = sources.run(Kind.POOL_WORDS, sources.new(4 * config.hidden_size), a=hidden)
    else:
        capsules = _capsules(words, sources, hidden, cast(SourceCapsules, encoder.aggregation), longest_source)
    projection = decoder.source_projection
    check_plain(projection)
    source = sources.linear(capsules, Linear(projection.weight.detach() * decoder.source_scale, projection.bias))

    step = Writer(program, program.decoder, Space.HYPOTHESES)
    states = Writer(program, program.decoder, Space.STATES)
    word = _embed(step, decoder, config)
    top = step.run(Kind.COPY, step.new(config.hidden_size), a=source, n=(0,))
    step.run(Kind.ADD, top, a=word)
    for number, layer in enumerate(cast(Iterable[ResidualLSTM], decoder.layers)):
        top = _lstm_step(step, states, top, layer)
        if number == 0 and decoder.source_attention is not None:
            attention = decoder.source_attention
            attended = _attend(words, step, hidden, top, attention.attention)
            top = step.norm(step.linear(attended, attention.output), top, attention.norm)
    program.logits = _vocabulary(step, top, model.output_projection, model.lm_head)
    return program


def rnmt_program(model: CapsuleRNMTForConditionalGeneration) -> Program:
    """Return the program of a `CapsuleRNMTForConditionalGeneration`."""
    config, encoder, decoder = model.config, model.model.encoder, model.model.decoder
    program = Program(vocabulary=len(model.lm_head.weight))
    words = Writer(program, program.encoder, Space.WORDS)
    sources = Writer(program, program.encoder, Space.SOURCES)
    hidden = words.norm(_lookup(words, encoder.embed_tokens), -1, encoder.embed_layer_norm)
    for layer in cast(Iterable[GRULayer], encoder.layers):
        hidden = _both_directions(words, hidden, layer.gru, layer.layer_norm, Kind.GRU_WORDS, 3)
    mean = sources.run(Kind.MEAN_WORDS, sources.new(config.hidden_size), a=hidden)
    first_states = sources.linear(mean, decoder.first_states, activation="tanh")

    step = Writer(program, program.decoder, Space.HYPOTHESES)
    kept = Writer(program, program.decoder, Space.STATES)
    width = config.hidden_size
    states = [
        kept.run(Kind.COPY, kept.new(width), a=first_states, n=(0, 1, number * width, width))
        for number in range(config.decoder_layers)
    ]
    word = step.norm(_lookup(step, decoder.embed_tokens), -1, decoder.embed_layer_norm)
    recurrence, attention_layer = decoder.attention_layer.recurrence, decoder.attention_layer
    between = _gru_step(step, recurrence.word_gru, word, states[0], step.new(width))
    context = _attend(words, step, hidden, between, recurrence.attention)
    _gru_step(step, recurrence.context_gru, context, between, states[0])
    joined = step.concatenate(states[0], context, word)
    top = step.norm(step.linear(joined, attention_layer.readout, activation="tanh"), -1, attention_layer.layer_norm)
    for layer, state in zip(cast(Iterable[GRULayer], decoder.layers), states[1:], strict=True):
        weights = layer.gru.weights
        from_input = step.linear(top, Linear(weights[0], weights[2]))
        from_state = step.linear(state, Linear(weights[1], weights[3]))
        step.run(Kind.GRU_STEP, state, a=from_input, b=from_state, c=state)
        output = step.run(Kind.COPY, step.new(width), a=state, n=(0,))
        top = step.norm(output, top, layer.layer_norm)
    top = guide(words, step, hidden, top, decoder.guidance)
    program.logits = _vocabulary(step, top, model.project_out, model.lm_head)
    return program


def _lookup(writer: Writer, embedding: nn.Embedding, scale: float = 1.0) -> int:
    table = writer.program.vector(embedding.weight)
    return writer.run(Kind.EMBED, writer.new(embedding.embedding_dim), w=(table, -1), f=(scale,))


def _embed(writer: Writer, stack: RecurrentStack, config: CapsNMTConfig) -> int:
    scale = math.sqrt(stack.embed_tokens.embedding_dim) if config.scale_embedding else 1.0
    embedded = _lookup(writer, stack.embed_tokens, scale)
    projection = stack.embedding_projection
    return embedded if isinstance(projection, nn.Identity) else writer.linear(embedded, cast(nn.Linear, projection))


def _both_directions(
    words: Writer, hidden: int, layer: nn.RNNBase, norm: nn.LayerNorm, kind: Kind, num_gates: int
) -> int:
    """A bidirectional recurrent layer, added to what it reads where both are of one width, and normalised."""
    outputs = words.new(2 * layer.hidden_size)
    for number, suffix in enumerate(("", "_reverse")):
        input_weight, input_bias = getattr(layer, f"weight_ih_l0{suffix}"), getattr(layer, f"bias_ih_l0{suffix}")
        state_weight, state_bias = getattr(layer, f"weight_hh_l0{suffix}"), getattr(layer, f"bias_hh_l0{suffix}")
        from_input = words.linear(hidden, Linear(input_weight.detach(), input_bias))
        state = words.program.linear(Linear(state_weight.detach(), state_bias))
        words.run(kind, outputs, a=from_input, w=(state,), n=(number, number * layer.hidden_size))
    is_residual = words.program.width(hidden) == words.program.width(outputs)
    return words.norm(outputs, hidden if is_residual else -1, norm)


def _capsules(words: Writer, sources: Writer, hidden: int, aggregation: SourceCapsules, longest_source: int) -> int:
    """Route the words to capsules, with votes, positions and scores of their own."""
    if aggregation.has_scales:
        raise UnsupportedModelError("CapsNMT with scaled scores has no fast form")
    program, width = words.program, words.program.width(hidden)
    num_capsules, num_iterations = aggregation.num_capsules, aggregation.num_iterations
    placed, positions = hidden, -1
    if aggregation.position_aware:
        table = sinusoids(max(longest_source, num_capsules), width, aggregation.votes.weight.device)
        positions = program.vector(table[:num_capsules])
        placed = words.run(Kind.COPY, words.new(width), a=hidden, n=(0,))
        words.run(Kind.ADD_POSITIONS, placed, w=(program.vector(table),))
        program.longest_source = len(table)
    votes = words.linear(placed, aggregation.votes, activation="relu")
    scores, scoring = -1, (-1, -1)
    if aggregation.scores_separately:
        inner, outer = aggregation.inner_scoring, aggregation.outer_scoring
        scores = words.linear(words.linear(placed, inner, activation="relu"), outer)
        scoring = (program.linear(inner), program.linear(outer))
    routed = sources.run(
        Kind.SEPARABLE_ROUTING,
        sources.new(num_capsules * width),
        b=votes,
        c=scores,
        w=(positions, *scoring),
        n=(num_capsules, num_iterations, aggregation.num_weights),
    )
    if isinstance(aggregation.norm, nn.Identity):
        return routed
    columns = range(0, num_capsules * width, width)
    each = [sources.run(Kind.COPY, sources.new(width), a=routed, n=(0, 0, start, width)) for start in columns]
    return sources.concatenate(*(sources.norm(capsule, -1, aggregation.norm) for capsule in each))


def _lstm_step(step: Writer, states: Writer, hidden: int, layer: ResidualLSTM) -> int:
    """LayerNorm(x + LSTM(x))."""
    lstm, width = layer.lstm, layer.lstm.hidden_size
    state, cell = states.new(width), states.new(width)
    input_weight, input_bias = cast(torch.Tensor, lstm.weight_ih_l0), cast(torch.Tensor, lstm.bias_ih_l0)
    state_weight, state_bias = cast(torch.Tensor, lstm.weight_hh_l0), cast(torch.Tensor, lstm.bias_hh_l0)
    gates = step.linear(hidden, Linear(input_weight.detach(), input_bias))
    from_state = step.linear(state, Linear(state_weight.detach(), state_bias))
    step.run(Kind.ADD, gates, a=from_state)
    states.run(Kind.LSTM_STEP, state, a=gates, b=cell)
    output = step.run(Kind.COPY, step.new(width), a=state, n=(0,))
    return step.norm(output, hidden, layer.norm)


def _gru_step(step: Writer, cell: nn.GRUCell, hidden: int, state: int, out: int) -> int:
    from_input = step.linear(hidden, Linear(cell.weight_ih.detach(), cell.bias_ih))
    from_state = step.linear(state, Linear(cell.weight_hh.detach(), cell.bias_hh))
    return step.run(Kind.GRU_STEP, out, a=from_input, b=from_state, c=state)


def _attend(words: Writer, step: Writer, source: int, hidden: int, attention: AdditiveAttention) -> int:
    """Additive attention of the states to the words."""
    keys = words.run(Kind.EXP_TWICE, words.linear(source, attention.key_projection))
    query = step.run(Kind.EXP_TWICE, step.linear(hidden, attention.query_projection))
    score = step.program.vector(attention.score.weight)
    out = step.new(step.program.width(source))
    return step.run(Kind.ADDITIVE, out, a=query, b=keys, c=source, w=(-1, score))


def _vocabulary(step: Writer, hidden: int, projection: nn.Module, lm_head: nn.Linear) -> int:
    if isinstance(projection, nn.Linear):
        hidden = step.linear(hidden, projection)
    return step.linear(hidden, lm_head)
