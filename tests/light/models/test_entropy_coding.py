"""Entropy-coded matrices: the C coder compared with one in plain Python, and with Shannon's entropy."""

import math
import random
from array import array
from collections import Counter

import pytest

from capsule_mt.engine.library import compressed, expand
from capsule_mt.engine.program import Codes, Tensor
from capsule_mt.models.entropy_coding import MAX_FREQUENCY, PARTS, TOTAL, coded, decoded, fault_of, frequencies_of

LANES, LOWEST = 4, 1 << 31


def random_matrix(rows: int, columns: int, deviation: float, num_scales: int, seed: int = 0) -> Codes:
    generator = random.Random(seed)
    numbers = [
        max(-127, min(127, round(generator.gauss(0, deviation * (1 + row * 3 // rows)))))
        for row in range(rows)
        for _ in range(columns)
    ]
    largest = array("f", [1.5 + row * num_scales // rows for row in range(rows)])
    return Codes(Tensor(array("b", numbers).tobytes(), "I8", (rows, columns)), Tensor(largest, "F32", (rows,)))


def contents(tensors):
    return {part: memoryview(tensor.buffer).cast("B") for part, tensor in tensors.items()}


def shapes(tensors):
    return {part: (tensor.dtype, tensor.shape) for part, tensor in tensors.items()}


# ---- the coder in Duda's words: an integer that grows by what a symbol carries


def plainly_compressed(rows: list[list[int]], frequencies: list[int]) -> bytes:
    largest = len(frequencies) // 2
    starts = [sum(frequencies[:symbol]) for symbol in range(len(frequencies))]
    states, words = [LOWEST] * LANES, []
    for row in reversed(rows):
        for column, code in reversed(list(enumerate(row))):
            state, frequency = states[column % LANES], frequencies[code + largest]
            if (state // frequency) * TOTAL >= LOWEST << 32:  # the next state would not fit
                words.append(state % (1 << 32))
                state >>= 32
            states[column % LANES] = state // frequency * TOTAL + starts[code + largest] + state % frequency
    content = b"".join(state.to_bytes(8, "little") for state in states)
    return content + b"".join(word.to_bytes(4, "little") for word in reversed(words))


def plainly_expanded(stream: bytes, frequencies: list[int], rows: int, columns: int) -> list[list[int]]:
    symbols = [symbol for symbol, frequency in enumerate(frequencies) for _ in range(frequency)]
    states = [int.from_bytes(stream[8 * lane : 8 * lane + 8], "little") for lane in range(LANES)]
    position, matrix = 8 * LANES, []
    for _ in range(rows):
        matrix.append([])
        for column in range(columns):
            state = states[column % LANES]
            symbol = symbols[state % TOTAL]
            state = state // TOTAL * frequencies[symbol] + state % TOTAL - sum(frequencies[:symbol])
            if state < LOWEST:
                state = (state << 32) + int.from_bytes(stream[position : position + 4], "little")
                position += 4
            states[column % LANES] = state
            matrix[-1].append(symbol - len(frequencies) // 2)
    assert states == [LOWEST] * LANES
    assert position == len(stream)
    return matrix


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (7, 5), (40, 64), (3, 0)])
@pytest.mark.parametrize("deviation", [0.0, 0.2, 4.0, 60.0])
def test_streams_are_those_of_the_plain_coder(shape, deviation):
    codes = random_matrix(*shape, deviation, 1).codes
    numbers = array("b", codes.buffer)
    matrix = [numbers[start : start + shape[1]].tolist() for start in range(0, len(numbers), shape[1] or 1)]
    matrix = matrix or [[] for _ in range(shape[0])]
    frequencies = frequencies_of(codes.buffer) if shape[1] else array("H", [TOTAL])
    stream = compressed(codes, frequencies.tobytes())
    assert stream == plainly_compressed(matrix, frequencies.tolist())
    assert plainly_expanded(stream, frequencies.tolist(), *shape) == matrix
    again = Tensor(bytearray(codes.size), "I8", shape)
    expand(stream, frequencies.tobytes(), again, None)
    assert again.buffer == codes.buffer


@pytest.mark.parametrize("rows", [1, 511, 1024, 1537, 8200])
@pytest.mark.parametrize("num_scales", [1, 3, 5000])
def test_a_matrix_comes_back(rows, num_scales):
    matrix = random_matrix(rows, 13, 3.0, num_scales)
    tensors = coded(matrix)
    assert {part: tensor.dtype for part, tensor in tensors.items()} == PARTS
    assert fault_of(shapes(tensors), contents(tensors)) is None
    result = decoded(contents(tensors))
    assert result.codes.shape == matrix.codes.shape
    assert bytes(result.codes.buffer) == matrix.codes.buffer
    assert array("f", bytes(result.magnitudes.buffer)) == matrix.magnitudes.buffer


def test_a_stream_takes_what_shannon_says():
    for deviation in (0.7, 4.5, 30.0):
        codes = random_matrix(400, 256, deviation, 1).codes
        counts, size = Counter(codes.buffer), codes.size
        bits = -sum(count * math.log2(count / size) for count in counts.values())
        length = len(compressed(codes, frequencies_of(codes.buffer).tobytes()))
        assert bits / 8 <= length <= 1.001 * bits / 8 + 8 * LANES


def test_frequencies():
    for codes in (b"\0" * 1000, b"\x7f", b"\x81" * 9, bytes(range(128)) * 3, bytes(100000) + b"\1\2\3"):
        frequencies = frequencies_of(codes)
        assert sum(frequencies) == TOTAL
        assert max(frequencies) <= MAX_FREQUENCY
        largest = len(frequencies) // 2
        assert all(frequencies[(number ^ 128) - 128 + largest] for number in set(codes))


@pytest.mark.parametrize("change", ["cut", "longer", "flipped", "frequencies", "short"])
def test_a_damaged_stream_is_refused(change):
    codes = random_matrix(20, 8, 5.0, 1).codes
    frequencies = frequencies_of(codes.buffer)
    stream = compressed(codes, frequencies.tobytes())
    if change == "frequencies":
        frequencies[3] += 1
    elif change == "flipped":
        stream = bytes([stream[0] ^ 1]) + stream[1:]
    else:
        stream = {"cut": stream[:-4], "longer": stream + bytes(4), "short": stream[:31]}[change]
    with pytest.raises(ValueError, match="a damaged stream of codes"):
        expand(stream, frequencies.tobytes(), Tensor(bytearray(160), "I8", (20, 8)), None)


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("stream", ("U8", b""), r"`\.runs` has 1100 rows of 4 codes, in 0 bytes"),
        ("layout", ("I32", [4]), r"`\.layout` has \[4\] for 2 classes"),
        ("layout", ("I32", [0, 5, 5]), r"`\.layout` has \[0, 5, 5\]"),
        ("layout", ("I32", [4, -1, 5]), r"`\.layout` has \[4, -1, 5\]"),
        ("layout", ("I32", [4, 5, 5]), r"`\.stream` has \d+ bytes, but `\.layout` 10"),
        ("layout", ("I32", []), r"`\.layout` has \[\] for 2 classes"),
        ("runs", ("I32", [0, 1100]), r"`\.runs` has 1100 rows"),
        ("runs", ("I32", []), r"`\.runs` has 0 rows"),
        ("runs", ("I32", [1 << 30]), r"`\.runs` has 1073741824 rows of 4 codes"),
        ("runs", ("F32", [0, 1100]), r"`\.runs` is F32 \[2\]"),
        ("classes", ("U8", b"\0"), r"`\.classes` has 1 bytes"),
        ("classes", ("U8", b"\x02" * 550), r"the classes \[0, 2\] of 2"),
        ("largest", ("F32", [1, 2, 3]), r"`\.largest` has 3 numbers for 2 runs"),
        ("frequencies", ("U16", [1, 2]), r"`\.frequencies` is U16 \[2\]"),
        ("largest", None, r"lacks `\.largest`"),
    ],
)
def test_what_is_wrong_with_the_tensors_of_a_matrix(part, content, message):
    tensors = coded(random_matrix(1100, 4, 5.0, 2))
    described, values = shapes(tensors), contents(tensors)
    if content is None:
        del described[part]
    else:
        dtype, numbers = content
        described[part] = dtype, (len(numbers),)
        values[part] = numbers if isinstance(numbers, bytes) else array("i", numbers).tobytes()
    with pytest.raises(AssertionError, match=message):
        assert fault_of(described, values) is None, fault_of(described, values)
