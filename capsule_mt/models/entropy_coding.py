"""Matrices of codes in as many bits as they carry, by an entropy coder (native/entropy.c).

A matrix NAME [rows, columns] is these tensors of a file. Rows of a class hold codes of about the same size.

- `NAME.stream`: U8, the codes of the rows of each class, one class after the other;
- `NAME.layout`: I32, the columns, and the bytes of each class in the stream;
- `NAME.frequencies`: U16 [classes, 2 n + 1], the frequency of each code from -n to n, as a number of 16,384ths;
- `NAME.classes`: U8, the class of each row in four bits, the lower ones first; empty if there is one class;
- `NAME.runs`: I32, how many consecutive rows have the same scale; or how many rows there are;
- `NAME.largest`: F32, what the code 127 stands for in each run; or, with one run, in each row.
"""

import sys
from array import array
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate, groupby

from capsule_mt.engine.library import compressed, expand
from capsule_mt.engine.program import Codes, Tensor

Content = bytes | memoryview
PARTS = {"stream": "U8", "layout": "I32", "frequencies": "U16", "classes": "U8", "runs": "I32", "largest": "F32"}
TOTAL = 1 << 14  # of the frequencies of a class
# The largest frequency of a code: so each code takes at least an eighth of a bit, and a small file little memory.
MAX_FREQUENCY, MAX_CODES_PER_BYTE = 15_000, 64
LARGEST_CODE = 127
MAX_RUNS = 64  # a matrix with more has a scale for each row
MAX_CLASSES, ROWS_OF_CLASS = 16, 512  # a class of fewer rows saves less than its frequencies take
MAGNITUDES = bytes(min(number, 256 - number) for number in range(256))  # of the bytes of codes


def coded(matrix: Codes) -> dict[str, Tensor]:
    """Return the tensors of a matrix by the last parts of their names; `decoded` returns the same codes."""
    rows, columns = matrix.codes.shape
    codes = bytes(matrix.codes.buffer)
    matrix_rows = [codes[start : start + columns] for start in range(0, rows * columns, columns)]
    class_of_row = _classes_of(matrix_rows)
    streams, tables = [], []
    for class_index in range(max(class_of_row) + 1):
        rows_of_class = [row for row, index in zip(matrix_rows, class_of_row, strict=True) if index == class_index]
        content = b"".join(rows_of_class)
        tables.append(frequencies_of(content))
        part = Tensor(content, "I8", (len(rows_of_class), columns))
        streams.append(compressed(part, _little_endian(tables[-1])))
    magnitudes = array("f", bytes(matrix.magnitudes.buffer))
    runs = array("i", [len(list(equal)) for _, equal in groupby(magnitudes)])
    if len(runs) > MAX_RUNS:
        runs = array("i", [rows])
    else:
        magnitudes = array("f", [magnitude for magnitude, _ in groupby(magnitudes)])
    values: dict[str, tuple[bytes, tuple[int, ...]]] = {}
    values["stream"] = b"".join(streams), (sum(map(len, streams)),)
    values["layout"] = _little_endian(array("i", [columns, *map(len, streams)])), (1 + len(streams),)
    values["frequencies"] = _little_endian(_as_matrix(tables)), (len(tables), max(map(len, tables)))
    packed = bytes(_in_pairs(class_of_row)) if len(streams) > 1 else b""
    values["classes"] = packed, (len(packed),)
    values["runs"] = _little_endian(runs), (len(runs),)
    values["largest"] = _little_endian(magnitudes), (len(magnitudes),)
    return {part: Tensor(content, PARTS[part], shape) for part, (content, shape) in values.items()}


def _classes_of(rows: list[bytes]) -> list[int]:
    """Return the class of each row: those of an even share of the rows, ordered by the sum of their magnitudes."""
    num_classes = max(1, min(MAX_CLASSES, len(rows) // ROWS_OF_CLASS))
    sums = [sum(row.translate(MAGNITUDES)) for row in rows] if num_classes > 1 else [0] * len(rows)
    classes = [0] * len(rows)
    for rank, index in enumerate(sorted(range(len(rows)), key=sums.__getitem__)):
        classes[index] = rank * num_classes // len(rows)
    return classes


def _in_pairs(classes: list[int]) -> list[int]:
    return [low | high << 4 for low, high in zip(classes[::2], [*classes[1::2], 0], strict=False)]


def _as_matrix(tables: "list[array[int]]") -> "array[int]":
    """Return tables of frequencies as rows of the same width, with 0 in the middle."""
    matrix = array("H")
    for table in tables:
        margin = array("H", [0] * ((max(map(len, tables)) - len(table)) // 2))
        matrix += margin + table + margin
    return matrix


def frequencies_of(codes: bytes) -> "array[int]":
    """Return the frequencies of the codes -n to n, which sum up to `TOTAL`; at least 1 for a code that comes."""
    counts = {number - 256 if number > LARGEST_CODE else number: count for number, count in Counter(codes).items()}
    frequencies = {code: max(1, round(count * TOTAL / len(codes))) for code, count in counts.items()}
    frequent = max(frequencies, key=lambda code: frequencies[code])
    if frequencies[frequent] > MAX_FREQUENCY:
        neighbour = frequent - 1 if frequent > 0 else frequent + 1
        frequencies[neighbour] = max(frequencies.get(neighbour, 0), TOTAL - MAX_FREQUENCY)
    while excess := sum(frequencies.values()) - TOTAL:  # the most frequent code bears the rest: that costs least
        code = max(frequencies, key=lambda code: frequencies[code])
        frequencies[code] -= min(excess, frequencies[code] // 2)
    largest = max(map(abs, frequencies))
    return array("H", [frequencies.get(code, 0) for code in range(-largest, largest + 1)])


def fault_of(shapes: Mapping[str, tuple[str, tuple[int, ...]]], content: Mapping[str, Content]) -> str | None:
    """Return what is wrong with the tensors of a matrix; `None` if nothing is. Only decoding checks the stream.

    shapes: the type and the shape of each. content: the bytes of each.
    """
    for part, dtype in PARTS.items():
        if part not in shapes:
            return f"lacks `.{part}`"
        if shapes[part][0] != dtype or len(shapes[part][1]) != 1 + (part == "frequencies"):
            return f"`.{part}` is {shapes[part][0]} {list(shapes[part][1])}"
    layout, runs = _from_little_endian("i", content["layout"]), _from_little_endian("i", content["runs"])
    num_classes, num_symbols = shapes["frequencies"][1]
    rows, columns, sizes = sum(runs), layout[0] if layout else 0, layout[1:]
    if not 1 <= num_classes <= MAX_CLASSES or len(sizes) != num_classes or columns < 1 or min(sizes) < 0:
        return f"`.layout` has {list(layout)[:20]} for {num_classes} classes"
    if not 1 <= num_symbols <= 2 * LARGEST_CODE + 1 or num_symbols % 2 == 0:
        return f"`.frequencies` has {num_symbols} codes"
    if min(runs, default=0) < 1 or rows * columns > MAX_CODES_PER_BYTE * len(content["stream"]):
        return f"`.runs` has {rows} rows of {columns} codes, in {len(content['stream'])} bytes"
    if sum(sizes) != len(content["stream"]):
        return f"`.stream` has {len(content['stream'])} bytes, but `.layout` {sum(sizes)}"
    classes = {index for pair in set(content["classes"]) for index in (pair & 15, pair >> 4)}
    if len(content["classes"]) != (rows + 1) // 2 * (num_classes > 1) or max(classes, default=0) >= num_classes:
        return f"`.classes` has {len(content['classes'])} bytes and the classes {sorted(classes)} of {num_classes}"
    if shapes["largest"][1][0] not in (len(runs), rows if len(runs) == 1 else -1):
        return f"`.largest` has {shapes['largest'][1][0]} numbers for {len(runs)} runs"
    return None


def shape_of(layout: Content, runs: Content) -> tuple[int, int]:
    """Return the rows and the columns of a matrix with these tensors."""
    return sum(_from_little_endian("i", runs)), _from_little_endian("i", layout)[0]


def decoded(content: Mapping[str, Content]) -> Codes:
    """Return the matrix with these tensors, in which `fault_of` finds nothing; a `ValueError` is a damaged stream."""
    rows, columns = shape_of(content["layout"], content["runs"])
    sizes = _from_little_endian("i", content["layout"])[1:]
    classes = bytes(content["classes"])
    codes = Tensor(bytearray(rows * columns), "I8", (rows, columns))
    table_size = len(content["frequencies"]) // len(sizes)
    for index, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        table = content["frequencies"][index * table_size : (index + 1) * table_size]
        expand(content["stream"][end - size : end], table, codes, (classes, index) if classes else None)
    magnitudes, runs = _from_little_endian("f", content["largest"]), _from_little_endian("i", content["runs"])
    repeats = runs if len(magnitudes) == len(runs) else [1] * rows
    pairs = zip(magnitudes, repeats, strict=True)
    largest = array("f", (magnitude for magnitude, count in pairs for _ in range(count)))
    return Codes(codes, Tensor(largest, "F32", (rows,)))


def _little_endian(numbers: "array[int] | array[float]") -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _from_little_endian(typecode: str, content: Content) -> "array[int]":
    numbers = array(typecode, bytes(content))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
