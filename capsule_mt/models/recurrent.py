"""What CapsNMT and RNMT share: recurrent layers, additive attention and the output projection, as operations."""

from capsule_mt.engine.program import Linear
from capsule_mt.models.parts import Parts, Rows, Writers
from capsule_mt.models.settings import Settings
from capsule_mt.models.weights import CheckpointError

GATES = {"lstm": 4, "gru": 3}


def even_width(settings: Settings) -> int:
    """Return the width of the states, half of it for each direction of the encoder."""
    width = settings.number("hidden_size", 512, least=2)
    if width % 2:
        raise CheckpointError(f"{settings.place}: `hidden_size` must be even, got {width}")
    return width


def lookup(rows: Rows, table: str, num_tokens: int, width: int, scale: float = 1.0) -> int:
    """Look tokens up in a table [tokens, width]."""
    return rows.run("EMBED", rows.new(width), table=rows.parts.table(table, num_tokens, width), scale=scale)


def maps(parts: Parts, name: str, kind: str, width: int, inputs: int, suffix: str = "_l0") -> tuple[Linear, Linear]:
    """Return what maps the input of a recurrent layer to its gates, and what maps its state to them."""
    outputs = GATES[kind] * width
    from_input, from_state = (
        parts.map(f"{name}.weight_{side}{suffix}", f"{name}.bias_{side}{suffix}", outputs, size)
        for side, size in (("ih", inputs), ("hh", width))
    )
    return from_input, from_state


def both_directions(words: Rows, hidden: int, layer: str, norm: str, kind: str, width: int) -> int:
    """A bidirectional recurrent layer, added to what it reads where both are of one width, and normalised."""
    outputs, inputs, half = words.new(width), words.program.width(hidden), width // 2
    for number, suffix in enumerate(("_l0", "_l0_reverse")):
        from_input, from_state = maps(words.parts, f"{layer}.{kind}", kind, half, inputs, suffix)
        gates = words.linear(hidden, from_input)
        words.run(
            f"{kind.upper()}_WORDS", outputs, gates=gates, map=from_state, backwards=number, column=number * half
        )
    return words.normalise(outputs, hidden if inputs == width else -1, f"{layer}.{norm}")


def gru_step(step: Rows, cell: str, hidden: int, state: int, out: int, suffix: str = "") -> int:
    """Write the next state of a GRU to `out`."""
    program = step.program
    from_input, from_state = maps(step.parts, cell, "gru", program.width(state), program.width(hidden), suffix)
    parts = {"from_input": step.linear(hidden, from_input), "from_state": step.linear(state, from_state)}
    return step.run("GRU_STEP", out, **parts, state=state)


def attend(writers: Writers, source: int, hidden: int, name: str) -> int:
    """Additive attention of the states to the words."""
    words, _, step, _ = writers
    width = words.program.width(source)
    keys = words.run("EXP_TWICE", words.apply(source, f"{name}.key_projection", outputs=width))
    query = step.run("EXP_TWICE", step.apply(hidden, f"{name}.query_projection", outputs=width, bias=False))
    score = step.parts.vector(f"{name}.score.weight", 1, width)
    return step.run("ADDITIVE", step.new(width), query=query, keys=keys, values=source, score=score)


def logits(step: Rows, hidden: int, projection: str, table: str, num_tokens: int, width: int) -> int:
    """Project states to the width of embeddings, if that is another, and to the vocabulary."""
    if step.program.width(hidden) != width:
        hidden = step.apply(hidden, projection, outputs=width, bias=False)
    return step.linear(hidden, step.parts.map(table, None, num_tokens, width))
