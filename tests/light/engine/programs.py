"""Small programs with random weights, which together have every operation."""

import random
from array import array

from capsule_mt.engine.program import Linear, Positions, Program, Space, Tensor, Vector, Writer

VOCABULARY, PAD, END, POSITIONS = 61, 60, 0, 30
SOURCES = [[5, 6, 7, 8, END], [9, END], [11, 12, 13, 14, 15, 16, 17, 18, END], [20, 21, 22, END]]
TARGETS = [[30, 31, END], [32, 33, 34, 35, 36, 37, END], [END], [40, 41, 42, 43]]
WIDTH, HEADS = 20, 2


def tensor(values: list[float], *shape: int) -> Tensor:
    return Tensor(array("f", values), "F32", shape or (len(values),))


class Weights:
    """Random weights, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def numbers(self, count: int, scale: float) -> list[float]:
        return [self.random.gauss(0, scale) for _ in range(count)]

    def vector(self, count: int, scale: float = 0.3, around: float = 0.0) -> Vector:
        values = tensor([around + number for number in self.numbers(count, scale)])
        return Vector(count, lambda: values)

    def linear(self, outputs: int, inputs: int, with_bias: bool = True) -> Linear:
        weight = tensor(self.numbers(outputs * inputs, 1.5 * inputs**-0.5), outputs, inputs)
        bias = tensor(self.numbers(outputs, 0.3)) if with_bias else None
        return Linear(outputs, inputs, lambda: (weight, bias))

    def norm(self, writer: Writer, hidden: int, residual: int) -> int:
        width = writer.program.width(hidden)
        return writer.norm(hidden, residual, self.vector(width, around=1.0), self.vector(width), 1e-5)


def attention(seed: int = 1, *, routed: bool = False, guided: bool = False, recurs: bool = False) -> Program:
    """A transformer of two layers; with routing of heads and layers, with PAST and FUTURE, or an SSRU for its past."""
    weights = Weights(seed)
    program = Program(VOCABULARY, VOCABULARY)
    program.num_caches, program.longest_source, program.longest_target = 2, POSITIONS, POSITIONS
    words = Writer(program, program.encoder, Space.WORDS)
    step = Writer(program, program.decoder, Space.HYPOTHESES)
    table, places = weights.vector(VOCABULARY * WIDTH), Positions(POSITIONS, WIDTH, WIDTH - 2 * recurs)
    hidden = words.run("EMBED", words.new(WIDTH), table=table, positions=places, scale=WIDTH**0.5)
    for _ in range(2):
        joined = words.linear(hidden, *(weights.linear(WIDTH, WIDTH) for _ in range(3)))
        attended = words.run("ATTEND_WORDS", words.new(WIDTH), joined=joined, heads=HEADS)
        hidden = weights.norm(words, words.copy(hidden), words.linear(attended, weights.linear(WIDTH, WIDTH)))
        inner = words.linear(hidden, weights.linear(30, WIDTH), activation="gelu")
        weights.norm(words, hidden, words.linear(inner, weights.linear(WIDTH, 30)))
    memory = words.linear(hidden, *(weights.linear(WIDTH, WIDTH) for _ in range(4)))
    source, states = hidden, []
    hidden = step.run("EMBED", step.new(WIDTH), table=table, positions=places, scale=WIDTH**0.5)
    for layer in range(2):
        joined = step.linear(hidden, *(weights.linear(WIDTH, WIDTH) for _ in range(2 if recurs else 3)))
        if recurs:
            state = program.buffer(Space.STATES, WIDTH)
            attended = step.run("SSRU", step.new(WIDTH), gates=joined, state=state)
        else:
            attended = step.run("ATTEND_PAST", step.new(WIDTH), joined=joined, heads=HEADS, cache=layer)
        if routed:
            votes = step.linear(attended, weights.linear(WIDTH, WIDTH), weights.linear(WIDTH, WIDTH))
            attended = step.new(WIDTH)
            shape = {"inputs": 2, "capsules": 5, "width": 4, "iterations": 3}
            step.run("DYNAMIC_ROUTING", attended, votes=votes, normalize=layer, **shape)
        hidden = weights.norm(step, step.copy(hidden), attended)
        query = step.linear(hidden, weights.linear(WIDTH, WIDTH))
        attended = step.new(WIDTH)
        places_of = {"keys": layer * WIDTH, "values": 2 * WIDTH, "layer": layer}
        step.run("ATTEND_SOURCE", attended, query=query, memory=memory, heads=HEADS, **places_of)
        hidden = weights.norm(step, hidden, step.linear(attended, weights.linear(WIDTH, WIDTH)))
        states.append(hidden)
    if routed:
        hidden = route_layers(step, weights, states)
    if guided:
        hidden = guide(words, step, weights, source, hidden)
    program.logits = step.linear(hidden, weights.linear(VOCABULARY, WIDTH, with_bias=False))
    return program


def route_layers(step: Writer, weights: Weights, states: list[int]) -> int:
    """EM routing of capsules of width 4, of width 1 with activations, and a sum with weights of its own."""
    joined = step.concatenate(*states)
    votes = step.linear(joined, weights.linear(2 * WIDTH, 2 * WIDTH))
    betas = {"beta_a": weights.vector(5), "beta_u": weights.vector(5), "lambdas": weights.vector(3, 0, 0.01)}
    shape = {"inputs": 2, "capsules": 5, "width": 4, "iterations": 3, "min_variance": 5e-4}
    wide = step.run("EM_ROUTING", step.new(WIDTH), votes=votes, **betas, **shape)
    votes = step.linear(joined, weights.linear(4 * WIDTH, 2 * WIDTH))
    step.run("ACTIVATE", votes, column=2 * WIDTH, activation=5)
    betas = {"beta_a": weights.vector(WIDTH), "beta_u": weights.vector(WIDTH), "lambdas": betas["lambdas"]}
    shape |= {"capsules": WIDTH, "width": 1, "activations": 2 * WIDTH}
    narrow = step.run("EM_ROUTING", step.new(WIDTH), votes=votes, **betas, **shape)
    gates = step.linear(step.concatenate(wide, narrow), weights.linear(2 * WIDTH, 2 * WIDTH), activation="relu")
    return step.run("WEIGHTED_SUM", step.new(WIDTH), weights=gates, parts=joined, count=2)


def guide(words: Writer, step: Writer, weights: Weights, source: int, hidden: int) -> int:
    """Four capsules of width 6, of which one each follows PAST and FUTURE."""
    program, capsules, width = words.program, 4, 6
    sources = Writer(program, words.operations, Space.SOURCES)
    votes = words.linear(source, weights.linear(capsules * width, WIDTH))
    start = sources.new(capsules * width)
    sources.run("GUIDED_START", start, votes=votes, capsules=capsules, width=width)
    projected = words.linear(votes, weights.linear(width, width), fold=capsules)
    words.run("EXP_TWICE", projected)
    projection = weights.linear(width, width)
    start = sources.linear(start, projection, fold=capsules)
    routed = step.run(
        "GUIDED_ROUTING",
        step.new(2 * width),
        query=step.linear(hidden, weights.linear(width, WIDTH)),
        votes=votes,
        projected=projected,
        start=start,
        map=projection,
        score=weights.vector(width, 1.0),
        capsules=capsules,
        width=width,
        iterations=3,
        kept=2,
    )
    inner = step.linear(step.concatenate(hidden, routed), weights.linear(WIDTH, WIDTH + 2 * width), activation="silu")
    return step.run("ADD", inner, addend=hidden)


def recurrent(seed: int = 2, *, capsules: bool = False) -> Program:
    """LSTM and GRU over the words, then a GRU with additive attention and PAST and FUTURE; or routed words."""
    weights = Weights(seed)
    program = Program(VOCABULARY, VOCABULARY)
    program.longest_source = POSITIONS if capsules else None
    words = Writer(program, program.encoder, Space.WORDS)
    sources = Writer(program, program.encoder, Space.SOURCES)
    step = Writer(program, program.decoder, Space.HYPOTHESES)
    kept = Writer(program, program.decoder, Space.STATES)
    hidden = words.run("EMBED", words.new(WIDTH), table=weights.vector(VOCABULARY * WIDTH), scale=1.0)
    for kind, gates in (("LSTM_WORDS", 4), ("GRU_WORDS", 3)):
        out = words.new(WIDTH)
        for backwards in (0, 1):
            inputs = words.linear(hidden, weights.linear(gates * WIDTH // 2, WIDTH))
            state = weights.linear(gates * WIDTH // 2, WIDTH // 2)
            words.run(kind, out, gates=inputs, map=state, backwards=backwards, column=backwards * WIDTH // 2)
        hidden = weights.norm(words, out, hidden)
    if capsules:
        first = route_words(words, sources, weights, hidden)
    else:
        pooled = sources.run("POOL_WORDS", sources.new(4 * WIDTH), words=hidden)
        mean = sources.run("MEAN_WORDS", sources.new(WIDTH), words=hidden)
        first = sources.linear(sources.concatenate(pooled, mean), weights.linear(WIDTH, 5 * WIDTH), activation="tanh")
    state = kept.run("COPY", kept.new(WIDTH), source=first, once=1)
    word = step.run("EMBED", step.new(WIDTH), table=weights.vector(VOCABULARY * WIDTH), scale=2.0)
    from_input = step.linear(word, weights.linear(3 * WIDTH, WIDTH))
    from_state = step.linear(state, weights.linear(3 * WIDTH, WIDTH))
    kept.run("GRU_STEP", state, from_input=from_input, from_state=from_state, state=state)
    keys = words.run("EXP_TWICE", words.linear(hidden, weights.linear(WIDTH, WIDTH)))
    query = step.run("EXP_TWICE", step.linear(state, weights.linear(WIDTH, WIDTH)))
    context = step.new(WIDTH)
    step.run("ADDITIVE", context, query=query, keys=keys, values=hidden, score=weights.vector(WIDTH, 1.0))
    gates = step.linear(step.concatenate(context, word), weights.linear(4 * WIDTH, 2 * WIDTH))
    step.run("ADD", gates, addend=step.linear(state, weights.linear(4 * WIDTH, WIDTH)))
    top = kept.run("LSTM_STEP", kept.new(WIDTH), cell=kept.new(WIDTH), gates=gates)
    if not capsules:
        top = guide(words, step, weights, hidden, step.copy(top))
    program.logits = step.linear(top, weights.linear(VOCABULARY, WIDTH))
    return program


def route_words(words: Writer, sources: Writer, weights: Weights, hidden: int) -> int:
    """Three capsules of the words, with and without scores and votes of their own."""
    count, sets = 3, 2
    placed = words.run("ADD_POSITIONS", words.copy(hidden), positions=Positions(POSITIONS, WIDTH))
    routed = []
    for with_scores in (False, True):
        votes = words.linear(placed, weights.linear((sets if with_scores else 1) * count * WIDTH, WIDTH))
        scoring = {}
        if with_scores:
            scores = words.linear(placed, weights.linear(WIDTH, WIDTH))
            maps = {"inner": weights.linear(12, WIDTH), "outer": weights.linear(WIDTH, 12)}
            scoring = {"scores": scores, "positions": Positions(count, WIDTH), **maps}
        out = sources.new(count * WIDTH)
        shape = {"capsules": count, "iterations": sets, "sets": sets if with_scores else 1}
        routed.append(sources.run("SEPARABLE_ROUTING", out, votes=votes, **scoring, **shape))
    return sources.linear(sources.concatenate(*routed), weights.linear(WIDTH, 2 * count * WIDTH))


PROGRAMS = {
    "attention": attention(),
    "routed": attention(3, routed=True),
    "guided": attention(4, guided=True),
    "ssru": attention(6, recurs=True),
    "recurrent": recurrent(),
    "capsules": recurrent(5, capsules=True),
}
