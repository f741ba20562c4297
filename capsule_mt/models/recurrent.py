"""Operations of CapsNMT and RNMT: recurrent layers, additive attention and the output projection."""

from capsule_mt.engine.program import Linear
from capsule_mt.models.parts import ModuleWriter, Parts, Writers
from capsule_mt.models.settings import ModelSettings
from capsule_mt.models.weights import CheckpointError

GATES = {"lstm": 4, "gru": 3}


def hidden_width(settings: ModelSettings) -> int:
    """Return the width of the states, which must be even: each direction of the encoder has half of it."""
    width = settings.number("hidden_size", 512, minimum=2)
    if width % 2:
        raise CheckpointError(f"{settings.origin}: `hidden_size` must be even, got {width}")
    return width


def lookup(writer: ModuleWriter, table: str, num_tokens: int, width: int, scale: float = 1.0) -> int:
    """Look up the embeddings of tokens in a table [tokens, width]."""
    return writer.run("EMBED", writer.new(width), table=writer.parts.table(table, num_tokens, width), scale=scale)


def maps(parts: Parts, name: str, kind: str, width: int, inputs: int, suffix: str = "_l0") -> tuple[Linear, Linear]:
    """Return the linear maps of a recurrent layer from its input and from its state to its gates."""
    outputs = GATES[kind] * width
    from_input, from_state = (
        parts.map(f"{name}.weight_{side}{suffix}", f"{name}.bias_{side}{suffix}", outputs, size)
        for side, size in (("ih", inputs), ("hh", width))
    )
    return from_input, from_state


def bidirectional_layer(words: ModuleWriter, hidden: int, layer: str, norm: str, kind: str, width: int) -> int:
    """Apply a bidirectional recurrent layer and its LayerNorm, with a residual connection if both widths are equal."""
    outputs, inputs, half = words.new(width), words.program.width(hidden), width // 2
    for direction, suffix in enumerate(("_l0", "_l0_reverse")):
        from_input, from_state = maps(words.parts, f"{layer}.{kind}", kind, half, inputs, suffix)
        gates = words.linear(hidden, from_input)
        words.run(
            f"{kind.upper()}_WORDS", outputs, gates=gates, map=from_state, backwards=direction, column=direction * half
        )
    return words.normalise(outputs, hidden if inputs == width else -1, f"{layer}.{norm}")


def gru_step(step: ModuleWriter, cell: str, hidden: int, state: int, out: int, suffix: str = "") -> int:
    """Write the next state of a GRU to `out`."""
    program = step.program
    from_input, from_state = maps(step.parts, cell, "gru", program.width(state), program.width(hidden), suffix)
    parts = {"from_input": step.linear(hidden, from_input), "from_state": step.linear(state, from_state)}
    return step.run("GRU_STEP", out, **parts, state=state)


def attend(writers: Writers, source: int, hidden: int, name: str) -> int:
    """Attend from the decoder's state `hidden` to the words `source` by additive attention."""
    words, _, step, _ = writers
    width = words.program.width(source)
    keys = words.run("EXP_TWICE", words.apply(source, f"{name}.key_projection", outputs=width))
    query = step.run("EXP_TWICE", step.apply(hidden, f"{name}.query_projection", outputs=width, bias=False))
    score = step.parts.vector(f"{name}.score.weight", 1, width)
    return step.run("ADDITIVE", step.new(width), query=query, keys=keys, values=source, score=score)


def logits(step: ModuleWriter, hidden: int, projection: str, table: str, num_tokens: int, width: int) -> int:
    """Project states to the vocabulary. If embeddings have another `width`, project states to it first."""
    if step.program.width(hidden) != width:
        hidden = step.apply(hidden, projection, outputs=width, bias=False)
    return step.linear(hidden, step.parts.map(table, None, num_tokens, width))
