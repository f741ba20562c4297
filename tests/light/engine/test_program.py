"""Programs: operations.def, the writer, and what the engine refuses."""

import re
import struct
from array import array
from itertools import chain

import pytest

from capsule_mt.engine.decoder import EngineDecoder
from capsule_mt.engine.engine import Engine
from capsule_mt.engine.library import NativeModel, product, rounded, widened
from capsule_mt.engine.program import (
    ACTIVATIONS,
    MAX_SLOTS,
    Codes,
    Linear,
    Operation,
    OperationKind,
    Positions,
    Program,
    Space,
    Tensor,
    UnsupportedModelError,
    Vector,
    Writer,
    operations,
)
from capsule_mt.engine.request import ForcedCall, SpecialTokens
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models.shortlist import Shortlist
from tests.light.engine.conftest import TIERS, needs_engine
from tests.light.engine.plain import positions_of
from tests.light.engine.programs import (
    END,
    PAD,
    PROGRAMS,
    SMALL_SET,
    SOURCES,
    TARGETS,
    WIDTH,
    Weights,
    program_of,
    tensor,
)


def test_operations_are_read_from_their_list():
    kinds = operations()
    assert [kind.number for kind in kinds.values()] == list(range(len(kinds)))
    assert [slot.name for slot in kinds["EMBED"].slots] == ["out", "table", "positions", "scale"]
    assert [(slot.kind, slot.default) for slot in kinds["LINEAR"].slots[2:]] == [
        ("MAP", None),
        ("NUMBER", 0),
        ("NUMBER", 1),
        ("NUMBER", 0),
    ]
    assert all(kind.help and kind.slots[0].kind == "OUT" and len(kind.slots) <= MAX_SLOTS for kind in kinds.values())


def test_slots_are_checked_by_name():
    program = Program(10, 10)
    writer = Writer(program, program.encoder, Space.WORDS)
    out = writer.new(4)
    with pytest.raises(TypeError, match="ADD needs `addend`"):
        writer.run("ADD", out)
    with pytest.raises(TypeError, match="ADD has no `added`, only `addend`"):
        writer.run("ADD", out, addend=out, added=1)
    with pytest.raises(UnsupportedModelError, match="no operation 'MULTIPLY', only EMBED, LINEAR"):
        writer.run("MULTIPLY", out)
    with pytest.raises(UnsupportedModelError, match="activation 'mish' is not known, only none, relu"):
        writer.linear(out, Weights(0).linear(3, 4), activation="mish")
    with pytest.raises(ValueError, match=r"\[4, 5\] inputs"):
        writer.linear(out, Weights(0).linear(3, 4), Weights(0).linear(3, 5))


def test_an_object_that_is_used_twice_is_stored_once():
    program, vector = Program(10, 10), Weights(0).vector(8)
    assert program.vector(vector) == program.vector(vector) == 0
    assert program.vector(Positions(2, 4)) == 1


def broken(change):
    program = program_of("plain")
    change(program)
    return program


def replaced(operation: Operation, **values: float) -> Operation:
    names = [slot.name for slot in operation.kind.slots]
    slots = list(operation.slots)
    for name, value in values.items():
        slots[names.index(name)] = value
    return Operation(operation.kind, tuple(slots))


def change(side: str, name: str, last: bool = False, **values: float):
    """A function that changes the first operation of this name, or the last."""

    def apply(program: Program) -> None:
        operations = getattr(program, side)
        index = [number for number, operation in enumerate(operations) if operation.kind.name == name][-last]
        operations[index] = replaced(operations[index], **values)

    return apply


def use_logits_again(program: Program) -> None:
    out = program.buffer(Space.HYPOTHESES, program.vocabulary)
    Writer(program, program.decoder, Space.HYPOTHESES).run("COPY", out, source=program.logits)


def widen(number: int):
    def apply(program: Program) -> None:
        program.buffers[number] = (program.buffers[number][0], program.buffers[number][1] + 1)

    return apply


@needs_engine
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change("encoder", "LINEAR", source=999), "slot 1 of LINEAR is 999"),
        (change("encoder", "LINEAR", activation=9), "LINEAR: .*activation"),
        (change("encoder", "LINEAR", twice=1, activation=ACTIVATIONS["relu"]), "LINEAR: .*twice"),
        (change("encoder", "ATTEND_WORDS", heads=3), "ATTEND_WORDS: .*heads"),
        (change("decoder", "ATTEND_PAST", cache=2), "ATTEND_PAST: .*cache"),
        (change("encoder", "COPY", column=1), "COPY: .*column"),
        (lambda program: program.encoder.append(Operation(OperationKind(77, "LATER", "", ()), ())), "no operation 77"),
        (lambda program: program.encoder.append(program.decoder[0]), "EMBED: rows of the decoder"),
        (lambda program: setattr(program, "logits", 0), "no linear map of the decoder writes the logits"),
        (lambda program: setattr(program, "num_caches", 1 << 40), "1099511627776 caches, of at most 1024"),
        (lambda program: program.buffers.append((4, 8)), "buffer .* is of space 4"),
        (lambda program: program.buffers.append((Space.WORDS, -8)), "buffer .* has the width -8"),
        (lambda program: program.buffers.append((Space.WORDS, 1 << 62)), "buffer .* has the width"),
        (use_logits_again, "COPY uses the buffer of the logits"),
        (change("decoder", "ATTEND_PAST", last=True, cache=0), "two operations use cache 0"),
        (lambda program: setattr(program, "vocabulary", 62), "EMBED: .*width >= model->vocabulary"),
    ],
)
def test_a_program_that_does_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Engine(broken(change), int8=True)


@needs_engine
def test_a_state_that_no_operation_uses_has_memory_of_its_own():
    """It is cleared before the first step, so without memory for its width the engine writes elsewhere."""
    program = program_of("plain")
    expected = log_probs(program, int8=False)
    program.buffer(Space.STATES, 1 << 16)
    assert log_probs(program, int8=False) == expected


@needs_engine
def test_a_table_with_rows_of_another_width_is_refused():
    """Codes have a largest magnitude for each row: shorter rows would be more than there are magnitudes."""

    class Narrower(Program):
        @property
        def table_widths(self) -> dict[int, int]:
            return {number: width // 2 for number, width in super().table_widths.items()}

    program = program_of("pooling")
    program.__class__ = Narrower
    with pytest.raises(ValueError, match=r"EMBED: ROW_WIDTH\(EMBED_table\) == width"):
        Engine(program, int8=False)


@needs_engine
@pytest.mark.parametrize("name", SMALL_SET)
def test_no_buffer_of_another_width_passes(name):
    used = {
        int(value)
        for instruction in (*PROGRAMS[name].encoder, *PROGRAMS[name].decoder)
        for slot, value in zip(instruction.kind.slots, instruction.slots, strict=True)
        if slot.kind in ("OUT", "BUFFER")
    }
    buffers = list(PROGRAMS[name].buffers)
    for number in used:
        widen(number)(PROGRAMS[name])
        try:
            with pytest.raises(ValueError, match=r"does not hold|logits for a vocabulary|cannot have rows of"):
                Engine(PROGRAMS[name], int8=False)
        finally:
            PROGRAMS[name].buffers[:] = buffers


def log_probs(program: Program, *, int8: bool) -> list[list[float]]:
    decoder = EngineDecoder(Engine(program, int8=int8), PAD, END, PAD)
    return [forced.log_probs for forced in decoder.force(SOURCES, TARGETS, Readings())]


def as_half(values: Tensor, dtype: str) -> Tensor:
    """The tensor in half precision, towards zero for BF16."""
    if dtype == "F16":
        return Tensor(struct.pack(f"{values.size}e", *values.buffer), dtype, values.shape)
    bits = array("I", values.buffer.tobytes())
    return Tensor(array("H", [number >> 16 for number in bits]), dtype, values.shape)


def in_half(read, dtype: str, keep: bool):
    """A function that reads what `read` does in half precision, widened to floats again unless `keep`."""

    def convert(values):
        half = as_half(values, dtype)
        return half if keep else widened(half)

    def again():
        matrix = read()
        return (
            convert(matrix) if isinstance(matrix, Tensor) else (convert(matrix[0]), matrix[1] and convert(matrix[1]))
        )

    return again


@needs_engine
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_precision_gives_the_numbers_of_its_floats(dtype, int8, tier):
    results = []
    for keep in (True, False):
        program = program_of("plain")
        for weight in (*(part for parts in program.linears for part in parts), *program.vectors):
            if not isinstance(weight, Positions):
                weight.read = in_half(weight.read, dtype, keep)
        results.append(log_probs(program, int8=int8))
    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
@needs_engine
def test_every_half_is_widened_exactly(dtype, tier):
    bits = array("H", range(65536))
    values = widened(Tensor(bits, dtype, (65536,)))
    if dtype == "F16":
        expected = array("f", struct.unpack("65536e", bits.tobytes()))
    else:
        expected = array("f", array("I", [number << 16 for number in bits]).tobytes())
    numbers = memoryview(values.buffer).cast("f")
    assert all(a == b or (a != a and b != b) for a, b in zip(numbers, expected, strict=True))


def coded(weights: Weights, rows: int, columns: int) -> tuple[Codes, Tensor]:
    """Codes whose steps are powers of two, and the numbers that they stand for, which floats hold exactly."""
    codes = [weights.random.randint(-127, 127) for _ in range(rows * columns)]
    for row in range(rows):
        codes[row * columns + row % columns] = 127 if row % 2 else -127
    steps = [2.0 ** -weights.random.randint(5, 8) for _ in range(rows)]
    values = [code * steps[index // columns] for index, code in enumerate(codes)]
    packed = Codes(Tensor(array("b", codes), "I8", (rows, columns)), tensor([127 * step for step in steps]))
    return packed, tensor(values, rows, columns)


@needs_engine
@pytest.mark.parametrize("int8", [False, True])
def test_codes_are_packed_as_the_numbers_that_they_stand_for(int8):
    """Of a map and of a table: rows of codes with their largest magnitude, as an int8 checkpoint has them."""
    results = []
    for form in (0, 1):
        program, weights = program_of("plain"), Weights(9)
        first, table = program.linears[0][0], next(vector for vector in program.vectors if isinstance(vector, Vector))
        weight = coded(weights, first.outputs, first.inputs)[form]
        stored = coded(weights, table.count // WIDTH, WIDTH)[form]
        first.read = lambda weight=weight: (weight, None)
        table.read = lambda stored=stored: stored
        results.append(log_probs(program, int8=int8))
    assert results[0] == results[1]


@needs_engine
@pytest.mark.parametrize(("int8", "as_codes"), [(False, False), (True, True), (False, True), (True, False)])
def test_a_table_that_is_the_weight_of_a_map(int8, as_codes, tier):
    """Stored once where the map has the table's numbers, in int8 or in float; else apart. No bit depends on it."""
    results, weights = [], Weights(12)
    codes = array("b", [weights.random.randint(-90, 90) for _ in range(61 * WIDTH)])
    packed = Codes(Tensor(codes, "I8", (61, WIDTH)), tensor([0.3 + 0.01 * row for row in range(61)]))
    weight = packed if as_codes else widened(packed)
    for is_noted in (False, True):
        program = program_of("plain")
        table = next(vector for vector in program.vectors if isinstance(vector, Vector) and vector.count == 61 * WIDTH)
        table.read = lambda: weight
        linear = Linear(61, WIDTH, lambda: (weight, None))
        program.linears[-1] = (linear,)
        table.packed = linear if is_noted else None
        results.append(log_probs(program, int8=int8))
    assert results[0] == results[1]


@needs_engine
@pytest.mark.parametrize("as_codes", [False, True])
def test_a_head_by_row_gives_the_numbers_of_a_packed_one(as_codes, tier):
    """With a shortlist, which selects rows, and without, when it is packed; a table shares its weight."""
    weights, results = Weights(12), []
    packed = Codes(
        Tensor(array("b", [weights.random.randint(-90, 90) for _ in range(61 * WIDTH)]), "I8", (61, WIDTH)),
        tensor([0.3 + 0.01 * row for row in range(61)]),
    )
    weight = packed if as_codes else widened(packed)
    for is_by_row in (False, True):
        program = program_of("plain")
        table = next(vector for vector in program.vectors if isinstance(vector, Vector) and vector.count == 61 * WIDTH)
        table.read = lambda: weight
        table.packed = Linear(61, WIDTH, lambda: (weight, None))
        program.linears[-1] = (table.packed,)
        decoder = EngineDecoder(Engine(program, int8=True, shortlist=is_by_row), PAD, END, PAD)
        shortlist = Shortlist.of_translations({5: range(20, 40), 6: range(30, 50)}, [END, 3], (61, 61))
        limits = [6] * len(SOURCES)
        searches = [
            SearchOptions(limits, shortlist=shortlist),
            SearchOptions(limits, num_beams=3),
            SearchOptions(limits),
        ]
        results.append(
            [
                *(decoder.translate(SOURCES, search) for search in searches),
                decoder.force(SOURCES, TARGETS, Readings()),
            ]
        )
    assert results[0] == results[1]


@needs_engine
def test_a_map_by_row_that_is_not_the_head_is_refused():
    program = program_of("plain")
    last, weight = program.decoder[-1], coded(Weights(3), 61, WIDTH)[0]
    program.linears[-1] = (Linear(61, WIDTH, lambda: (weight, None)),)
    program.decoder.insert(-1, last._replace(slots=(program.buffer(Space.HYPOTHESES, 61), *last.slots[1:])))
    Engine(program, int8=True)
    with pytest.raises(ValueError, match="slot 2 of LINEAR is a map by row, which only the head may be"):
        Engine(program, int8=True, shortlist=True)


@needs_engine
def test_a_map_without_weights_is_refused():
    program = PROGRAMS["plain"]
    model = NativeModel(TIERS[0], program.vocabulary, program.num_caches)
    for parts in program.linears:
        model.add_linear(sum(part.outputs for part in parts), parts[0].inputs, "F32")
    with pytest.raises(ValueError, match="a table of the linear map 0, which has no weights"):
        model.add_packed_table(0, None)
    for vector in program.vectors:
        model.add_vector(tensor([0.0] * vector.count)) if isinstance(vector, Vector) else model.add_positions(
            3, 4, 4, 0
        )
    for space, width in program.buffers:
        model.add_buffer(int(space), width)
    only_maps = [operation for operation in program.decoder if operation.kind.name == "LINEAR"]
    packed = b"".join(operation.packed() for operation in only_maps)
    with pytest.raises(ValueError, match="slot 2 of LINEAR is a map without weights"):
        model.set_programs(b"", 0, packed, len(only_maps), program.logits)


def all_linear(program: Program, twice: int) -> None:
    for side in (program.encoder, program.decoder):
        for index, instruction in enumerate(side):
            if instruction.kind.name == "LINEAR":
                side[index] = replaced(instruction, activation=0, twice=twice)


@needs_engine
def test_what_rounding_has_left_is_multiplied_too(tier):
    """`twice` in every map: int8 comes nearer to float, whose weights are the same."""
    distances, weights = [], Weights(3)
    program = program_of("plain")
    for part in chain.from_iterable(program.linears):
        codes = coded(weights, part.outputs, part.inputs)[0]
        part.read = lambda codes=codes: (codes, None)
    all_linear(program, 0)
    exact = list(chain.from_iterable(log_probs(program, int8=False)))
    for twice in (0, 1):
        all_linear(program, twice)
        log_probs_int8 = chain.from_iterable(log_probs(program, int8=True))
        distances.append(sum(abs(a - b) for a, b in zip(log_probs_int8, exact, strict=True)))
    assert distances[1] < 0.5 * distances[0]


@needs_engine
@pytest.mark.parametrize(("width", "span", "start"), [(6, 6, 0), (6, 4, 3), (5, 3, 0)])
def test_positions_are_those_of_sin_and_cos(width, span, start):
    """The engine computes most of them by addition theorems."""
    program, weights, rows, count = program_of("plain"), Weights(1), [], 70
    for vector in program.vectors:
        if isinstance(vector, Positions):  # of the program's own embeddings
            vector.count = count * vector.width
    words = Writer(program, program.encoder, Space.WORDS)
    table, positions = tensor([0.0] * 61 * width), Positions(count, width, span, start)
    embedded = words.run(
        "EMBED", words.new(width), table=Vector(61 * width, lambda: table), positions=positions, scale=1.0
    )
    words.linear(embedded, weights.linear(3, width))
    engine = Engine(program, int8=False)

    def observe(number, numbers, num_rows):
        if number == len(program.linears) - 1:
            rows.extend([*numbers[row * width : (row + 1) * width]] for row in range(num_rows))

    engine.observe(observe)
    engine.force([[1] * count], [[1, END]], Readings(), start=PAD, end=END, pad=PAD)
    assert rows == [pytest.approx(row, abs=1e-7) for row in positions_of(count, width, span, start)]


@needs_engine
def test_the_product_of_maps_is_summed_in_double_precision():
    first, then = tensor([1e8, 1, -1e8, 2], 2, 2), tensor([1, 1], 1, 2)
    assert list(memoryview(product(first, then).buffer).cast("f")) == [0, 3]
    assert list(memoryview(product(tensor([3, 4]), then).buffer).cast("f")) == [7]
    with pytest.raises(ValueError, match="2 inputs does not follow one of 3 outputs"):
        product(tensor([1, 2, 3]), then)


@needs_engine
def test_a_tensor_of_another_size_is_refused():
    program = program_of("plain")
    program.vectors[0].read = lambda: Tensor(bytes(8), "F32", (61, WIDTH))
    with pytest.raises(ValueError, match=re.escape("[61, 20] of F32 takes 4880 bytes, got 8")):
        Engine(program, int8=True)
    program = program_of("plain")
    program.linears[0][0].read = lambda: (tensor([1.0] * WIDTH), None)
    with pytest.raises(ValueError, match=re.escape("[20, 20] was read with a weight [20]")):
        Engine(program, int8=True)


@needs_engine
@pytest.mark.parametrize("is_noted", [False, True])
@pytest.mark.parametrize("dtype", ["F32", "F16"])
def test_a_table_that_an_engine_in_int8_rounds(is_noted, dtype, monkeypatch):
    """In int8 it has the numbers of its codes, in float32 its own; whether a map shares it or not."""
    monkeypatch.setattr("capsule_mt.engine.library.WIDENED_NUMBERS", 3 * WIDTH)  # several blocks
    weights, results = Weights(13), {}
    values = [weights.random.uniform(-1, 1) for _ in range(61 * WIDTH)]
    buffer = array("f", values) if dtype == "F32" else struct.pack(f"{len(values)}e", *values)
    exact = Tensor(buffer, dtype, (61, WIDTH))
    for form in ("rounds", "codes", "exact"):
        for int8 in (False, True):
            program = program_of("plain")
            table = next(
                vector for vector in program.vectors if isinstance(vector, Vector) and vector.count == 61 * WIDTH
            )
            weight = rounded(exact) if form == "codes" else exact
            table.read, table.rounds = (lambda weight=weight: weight), form == "rounds"
            linear = Linear(61, WIDTH, lambda weight=weight: (weight, None))
            program.linears[-1] = (linear,)
            table.packed = linear if is_noted else None
            results[form, int8] = log_probs(program, int8=int8)
    assert results["rounds", True] == results["codes", True] != results["exact", True]
    assert results["rounds", False] == results["exact", False] != results["codes", False]


@needs_engine
def test_a_model_whose_second_programs_are_refused_translates_no_more():
    """The first ones are gone then."""
    program = PROGRAMS["plain"]
    engine = Engine(program, int8=False)
    sides = [b"".join(operation.packed() for operation in side) for side in (program.encoder, program.decoder)]
    without_head = sides[1][: -len(program.decoder[-1].packed())]
    counts = len(program.encoder), len(program.decoder)
    engine._model.set_programs(sides[0], counts[0], sides[1], counts[1], program.logits)  # as before
    decoder = EngineDecoder(engine, PAD, END, PAD)
    assert decoder.translate(SOURCES, SearchOptions([5] * len(SOURCES)))
    for decoder_side, count, logits, message in (
        (without_head, counts[1] - 1, program.logits, "no linear map of the decoder writes the logits"),
        (sides[1], counts[1], 10**6, "no linear map of the decoder writes the logits"),
        (sides[1] * 2, 2 * counts[1], program.logits, "LINEAR uses the buffer of the logits"),
    ):
        with pytest.raises(ValueError, match=message):
            engine._model.set_programs(sides[0], counts[0], decoder_side, count, logits)
        with pytest.raises(ValueError, match="the model has no programs"):
            decoder.translate(SOURCES, SearchOptions([5] * len(SOURCES)))


@needs_engine
def test_a_target_without_tokens_is_refused_by_its_least_length():
    engine = Engine(PROGRAMS["plain"], int8=False)
    call = ForcedCall([[5]], [[6]], Readings(), SpecialTokens(PAD, END, PAD), engine.vocabulary)
    call.numbers["num_threads"] = 1
    call.arrays["target_lengths"] = array("q", [0])
    with pytest.raises(ValueError, match="target 0 has 0 tokens, at least 1 must be there"):
        engine._model.translate(call.numbers, call.arrays)
