"""The program of Marian and of Capsule Marian, with every seam."""

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import nn
from transformers import MarianMTModel
from transformers.models.marian.modeling_marian import MarianDecoderLayer, MarianEncoderLayer

from hf_capsule_mt.configuration import CapsuleMarianConfig
from hf_capsule_mt.fast.programs import (
    ACTIVATIONS,
    Kind,
    Linear,
    Program,
    Space,
    UnsupportedModelError,
    Writer,
    check_plain,
    known_class,
    merged,
)
from hf_capsule_mt.modeling.head_aggregation import HeadAggregation
from hf_capsule_mt.modeling.layer_aggregation import (
    DynamicCombination,
    LayerAggregation,
    LinearCombination,
    PerCapsuleLinear,
    RoutedCombination,
    TopLayer,
)
from hf_capsule_mt.modeling.modeling_capsule_marian import (
    CapsuleMarianDecoder,
    CapsuleMarianEncoder,
    CapsuleMarianModel,
    CapsuleMarianMTModel,
)
from hf_capsule_mt.modeling.past_future_guidance import GuidedRoutingGuidance, NoGuidance
from hf_capsule_mt.modeling.transformer import DecoderLayer, EncoderLayer
from hf_capsule_mt.routing import dynamic_routing, em_lambda_schedule, em_routing

# every setting and parameter of the routings that have an operation
ROUTED_WITH: dict[Callable[..., Any], set[str]] = {
    dynamic_routing: {"num_iterations", "normalize_total_input"},
    em_routing: {"num_iterations", "lambda_final", "min_variance", "beta_a", "beta_u"},
}


def marian_program(model: CapsuleMarianMTModel | MarianMTModel) -> Program:
    """Return the program of a `CapsuleMarianMTModel` or of transformers' `MarianMTModel`."""
    config, base = cast(CapsuleMarianConfig, model.config), cast(CapsuleMarianModel, model.model)
    encoder, decoder = base.encoder, base.decoder
    encoder_layers = cast(Iterable[EncoderLayer], encoder.layers)
    decoder_layers = cast(Iterable[DecoderLayer], decoder.layers)
    if config.activation_function not in ("relu", "silu", "swish", "gelu"):
        raise UnsupportedModelError(f"`activation_function` {config.activation_function!r} has no fast form")
    program = Program(vocabulary=len(model.lm_head.weight))
    program.num_caches = len(decoder.layers)

    words = Writer(program, program.encoder, Space.WORDS)
    hidden = _embed(words, encoder, config)
    states = [_encoder_layer(words, hidden := _copy(words, hidden), layer, config) for layer in encoder_layers]
    source = _aggregate(words, states or [hidden], getattr(encoder, "layer_aggregation", None))
    projections = [layer.encoder_attn.k_proj for layer in decoder_layers]
    projections += [layer.encoder_attn.v_proj for layer in decoder_layers]
    memory = words.linear(source, *projections) if projections else source

    step = Writer(program, program.decoder, Space.HYPOTHESES)
    hidden = _embed(step, decoder, config)
    states = []
    for number, layer in enumerate(decoder_layers):
        hidden = _decoder_layer(step, _copy(step, hidden), layer, config, number, memory)
        states.append(hidden)
    hidden = _aggregate(step, states or [hidden], getattr(decoder, "layer_aggregation", None))
    hidden = guide(words, step, source, hidden, getattr(decoder, "guidance", None))
    bias = model.final_logits_bias[0] if getattr(model, "final_logits_bias", None) is not None else None
    check_plain(model.lm_head)
    program.logits = step.linear(hidden, Linear(model.lm_head.weight.detach(), bias))
    return program


def _embed(writer: Writer, stack: CapsuleMarianEncoder | CapsuleMarianDecoder, config: CapsuleMarianConfig) -> int:
    scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
    tables = (writer.program.vector(stack.embed_tokens.weight), writer.program.vector(stack.embed_positions.weight))
    return writer.run(Kind.EMBED, writer.new(config.d_model), w=tables, f=(scale,))


def _copy(writer: Writer, hidden: int) -> int:
    """A buffer of its own for the residual stream of a layer, so that the layer below keeps its output."""
    return writer.run(Kind.COPY, writer.new(writer.program.width(hidden)), a=hidden, n=(0,))


def _encoder_layer(writer: Writer, hidden: int, layer: EncoderLayer, config: CapsuleMarianConfig) -> int:
    known_class(layer, EncoderLayer, MarianEncoderLayer)
    attention = layer.self_attn
    joined = writer.linear(hidden, attention.q_proj, attention.k_proj, attention.v_proj)
    heads = writer.run(Kind.ATTEND_WORDS, writer.new(config.d_model), a=joined, n=(config.encoder_attention_heads,))
    writer.norm(hidden, _project_heads(writer, heads, attention.out_proj), layer.self_attn_layer_norm)
    return _feed_forward(writer, hidden, layer, config)


def _decoder_layer(
    writer: Writer, hidden: int, layer: DecoderLayer, config: CapsuleMarianConfig, number: int, memory: int
) -> int:
    known_class(layer, DecoderLayer, MarianDecoderLayer)
    heads, width = config.decoder_attention_heads, config.d_model
    attention = layer.self_attn
    joined = writer.linear(hidden, attention.q_proj, attention.k_proj, attention.v_proj)
    attended = writer.run(Kind.ATTEND_PAST, writer.new(width), a=joined, n=(heads, number))
    writer.norm(hidden, _project_heads(writer, attended, attention.out_proj), layer.self_attn_layer_norm)
    attention = layer.encoder_attn
    query = writer.linear(hidden, attention.q_proj)
    values = writer.program.width(memory) // 2
    attended = writer.run(Kind.ATTEND_SOURCE, writer.new(width), a=query, b=memory, n=(heads, number * width, values))
    writer.norm(hidden, _project_heads(writer, attended, attention.out_proj), layer.encoder_attn_layer_norm)
    return _feed_forward(writer, hidden, layer, config)


def _feed_forward(writer: Writer, hidden: int, layer: EncoderLayer | DecoderLayer, config: CapsuleMarianConfig) -> int:
    inner = writer.linear(hidden, layer.fc1, activation=config.activation_function)
    return writer.norm(hidden, writer.linear(inner, layer.fc2), layer.final_layer_norm)


def _project_heads(writer: Writer, heads: int, projection: nn.Module) -> int:
    """Apply W^O, or route the heads."""
    if isinstance(projection, nn.Linear):
        return writer.linear(heads, projection)
    known_class(projection, HeadAggregation)
    routing = cast(HeadAggregation, projection)
    names: dict[Callable[[torch.Tensor], torch.Tensor], str] = {torch.relu: "relu", torch.tanh: "tanh"}
    activation = names.get(routing.activation)
    if activation is None:
        name = getattr(routing.activation, "__name__", routing.activation)
        raise UnsupportedModelError(
            f"the activation {name} of heads has no fast form, only {', '.join(names.values())}"
        )
    capsules = writer.linear(heads, routing.input_capsules, activation=activation)
    votes = writer.linear(capsules, routing.votes)
    return _route(writer, votes, routing, routing.num_heads, activations=-1)


def _aggregate(writer: Writer, states: list[int], aggregation: nn.Module | None) -> int:
    """Combine the outputs of a stack's layers."""
    if aggregation is None:
        return states[-1]
    kind = known_class(aggregation, TopLayer, LinearCombination, DynamicCombination, RoutedCombination)
    if kind is TopLayer:
        return states[-1]
    combination = cast(LayerAggregation, aggregation)
    joined = writer.concatenate(*states)
    if kind is RoutedCombination:
        aggregated = _routed_layers(writer, joined, cast(RoutedCombination, aggregation))
    elif kind is LinearCombination:
        linear = cast(LinearCombination, aggregation)
        aggregated = writer.linear(joined, merged(linear.fc1, linear.fc2))
    else:
        gated = cast(DynamicCombination, aggregation)
        gates = writer.linear(writer.linear(joined, gated.fc1, activation="relu"), gated.fc2)
        aggregated = writer.new(gated.width)
        writer.run(Kind.WEIGHTED_SUM, aggregated, a=gates, b=joined, n=(gated.num_layers,))
    writer.norm(aggregated, -1, combination.layer_norm)
    if combination.residual:
        writer.run(Kind.ADD, aggregated, a=states[-1])
    return aggregated


def _routed_layers(writer: Writer, joined: int, aggregation: RoutedCombination) -> int:
    maps = [_dense(aggregation.votes)]
    activation = getattr(aggregation, "input_activation", None)
    if activation is not None:
        maps.append(_for_each_output(_dense(activation), aggregation.num_layers * aggregation.num_capsules))
    inner = _dense(aggregation.input_capsules)
    votes = writer.linear(joined, merged(inner, *maps))
    if activation is None:
        return _route(writer, votes, aggregation, aggregation.num_layers, activations=-1)
    num_votes = len(maps[0].weight)
    writer.run(Kind.ACTIVATE, votes, n=(num_votes, ACTIVATIONS["sigmoid"]))
    return _route(writer, votes, aggregation, aggregation.num_layers, activations=num_votes)


def _dense(module: nn.Module) -> Linear:
    """A linear map, or the maps of each capsule as one block-diagonal map."""
    if isinstance(module, nn.Linear):
        check_plain(module)
        return Linear(module.weight.detach(), None if module.bias is None else module.bias.detach())
    known_class(module, PerCapsuleLinear)
    maps = cast(PerCapsuleLinear, module)
    bias = None if maps.bias is None else maps.bias.detach()
    return Linear(torch.block_diag(*maps.weight.detach()), bias)


def _for_each_output(activation: Linear, num_votes: int) -> Linear:
    """The map of an input's activation, once for each output that the input votes for."""
    times = num_votes // len(activation.weight)
    bias = None if activation.bias is None else activation.bias.repeat_interleave(times)
    return Linear(activation.weight.repeat_interleave(times, dim=0), bias)


def _route(
    writer: Writer, votes: int, routing: HeadAggregation | RoutedCombination, num_inputs: int, activations: int
) -> int:
    """Route votes [inputs, capsules, width] with the settings of a module of `layer_` or `head_aggregation.py`."""
    num_capsules, program, settings = routing.num_capsules, writer.program, routing.arguments
    width = program.width(votes) // num_inputs if activations < 0 else activations // num_inputs
    out, num_iterations = writer.new(width), settings["num_iterations"]
    shape = (num_inputs, num_capsules, width // num_capsules, num_iterations)
    route = routing.method.route
    if route not in ROUTED_WITH or ROUTED_WITH[route] != settings.keys() | set(routing.method.parameters):
        named = ", ".join(sorted(settings.keys() | set(routing.method.parameters)))
        raise UnsupportedModelError(f"routing by {route.__name__} with {named} has no fast form")
    if route is dynamic_routing:
        normalize = int(settings["normalize_total_input"])
        return writer.run(Kind.DYNAMIC_ROUTING, out, a=votes, n=(*shape, normalize))
    betas = cast(torch.Tensor, routing.beta_a), cast(torch.Tensor, routing.beta_u)
    lambdas = torch.tensor(em_lambda_schedule(num_iterations, settings["lambda_final"]), device=betas[0].device)
    weights = tuple(map(program.vector, (*betas, lambdas)))
    return writer.run(Kind.EM_ROUTING, out, a=votes, w=weights, n=(*shape, activations), f=(settings["min_variance"],))


def guide(words: Writer, step: Writer, source: int, hidden: int, guidance: nn.Module | None) -> int:
    """Add PAST and FUTURE to the decoder's states."""
    if guidance is None or known_class(guidance, NoGuidance, GuidedRoutingGuidance) is NoGuidance:
        return hidden
    guidance = cast(GuidedRoutingGuidance, guidance)
    program, width = words.program, guidance.capsule_dim
    num_outputs, kept = guidance.num_outputs, 2 * guidance.num_capsules
    votes = words.linear(source, guidance.votes)
    sources = Writer(program, words.operations, Space.SOURCES)
    start = sources.run(Kind.GUIDED_START, sources.new(num_outputs * width), a=votes, n=(num_outputs, width))
    if guidance.num_iterations == 1:
        capsules = step.run(Kind.COPY, step.new(kept * width), a=start, n=(0, 0, 0, kept * width))
    else:
        projected = words.linear(votes, guidance.vote_projection, fold=num_outputs)
        words.run(Kind.EXP_TWICE, projected)
        start = sources.linear(start, guidance.capsule_projection, fold=num_outputs)
        weights = (program.linear(guidance.capsule_projection), program.vector(guidance.score.weight))
        capsules = step.run(
            Kind.GUIDED_ROUTING,
            step.new(kept * width),
            a=step.linear(hidden, guidance.query_projection),
            b=votes,
            c=projected,
            d=start,
            w=weights,
            n=(num_outputs, width, guidance.num_iterations, kept),
        )
    inner = step.linear(step.concatenate(hidden, capsules), guidance.fc1, activation="relu")
    guided = step.linear(inner, guidance.fc2)
    return step.run(Kind.ADD, guided, a=hidden)
