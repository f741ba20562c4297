"""Files of Marian's weights: `.bin`, also with matrices in int8, and `.npz`. Sizes in their headers are never trusted.

A `.bin`: version and count, for each item the length of its name, its type, the lengths of its shape and data, all in
uint64; the names; the shapes in int32; the length of the padding, and the padding; the data. An int8 matrix has its
codes, and then one number: a weight is its code divided by that. Matrices in `.npz` and in float32 are stored as
[inputs, outputs], int8 ones as [outputs, inputs], except embeddings.
"""

import math
import mmap
import os
import re
import struct
from array import array
from collections.abc import Iterator
from typing import IO, NamedTuple

from capsule_mt.engine.library import count_invalid
from capsule_mt.engine.program import DTYPES, Codes, Tensor, UnsupportedModelError
from capsule_mt.messages import cut, shown
from capsule_mt.models.marian_yaml import read_yaml
from capsule_mt.models.opening import MAX_TEXT, open_file
from capsule_mt.models.weights import MAX_NAME, MAX_TENSORS, CheckpointError

OPTIONS = "special:model.yml"
VERSION = 1
MAX_VERSION = 255  # a larger number at the beginning is the text or the magic of another format
# of a `.bin`; the types missing here are unsigned, or packed for one kind of processor. `intgemm8` is 0x4101 for the
# Marian of Bergamot, and 0x10001 for Marian 1.12, which scrambles matrices whose sizes are not multiples of `TILE`
INTGEMM8, TILE = 0x10001, 16
TYPES = {0x404: "F32", 0x402: "F16", 0x101: "I8", 0x4101: "CODES", INTGEMM8: "CODES"}
NUMPY_TYPES = {"<f4": "F32", "<f2": "F16", **dict.fromkeys(("|i1", "<i1", "|u1", "|S1"), "I8")}
# what `marian convert --gemm-type` and Marian's errors call the types; 0x4101 and 0x4102 are Bergamot's
TYPE_NAMES = {
    0x404: "float32",
    0x402: "float16",
    0x101: "int8",
    0x4101: "intgemm8",
    INTGEMM8: "intgemm8",
    0x802: "packed16",
    0x1801: "packed8avx2",
    0x2801: "packed8avx512",
    0x4102: "intgemm16",
    0x10002: "intgemm16",
    0x18001: "intgemm8ssse3",
    0x11001: "intgemm8avx2",
    0x12001: "intgemm8avx512",
    0x13001: "intgemm8avx512vnni",
    0x14002: "intgemm16sse2",
    0x11002: "intgemm16avx2",
    0x12002: "intgemm16avx512",
}
# the ends of the names of tensors that are [tokens, width] in every file
TABLES = ("Wemb", "logit_out_Wt")
MAX_DIMENSIONS = 8
LARGEST_CODE = 127


class MarianTensor(NamedTuple):
    """A tensor of a file; its type is one of `DTYPES`, or CODES."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)


def open_marian(file: str | os.PathLike[str]) -> "MarianFile":
    """Open a `.bin` or `.npz` of Marian."""
    file = os.fspath(file)
    with open_file(file) as stream:
        is_archive = stream.read(2) == b"PK"
    return NumpyFile(file) if is_archive else BinaryFile(file)


def options_of(weights: "MarianFile") -> dict[str, object]:
    """Return the options of the model that are stored in its file."""
    if OPTIONS not in weights.items or weights.items[OPTIONS].dtype != "I8":
        raise CheckpointError(
            f"{weights.file}: lacks `{OPTIONS}`, the options of the model: it is not a file of Marian"
        )
    origin = f"{weights.file}: {OPTIONS}"
    if weights.items[OPTIONS].size > MAX_TEXT:  # of which `read_yaml` reads less
        raise CheckpointError(f"{origin}: has {weights.items[OPTIONS].size} bytes; at most {MAX_TEXT} are read")
    try:
        text = bytes(weights.content(OPTIONS)).rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise CheckpointError(f"{origin}: is not UTF-8") from None
    return read_yaml(text, origin)


class BinaryFile:
    """A `.bin` of Marian."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.items: dict[str, MarianTensor] = {}
        with open_file(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            for name, item in _binary_items(file, stream, size):
                if name in self.items:
                    raise CheckpointError(f"{file}: `{name}` comes twice")
                self.items[name] = item

    def content(self, name: str, room: int = 0) -> "bytearray | memoryview":
        """Return the bytes of a tensor, and after them `room` bytes of any value; all may be written to."""
        item = self.items[name]
        with open_file(self.file) as stream:
            file_size = os.fstat(stream.fileno()).st_size
            if file_size < item.start + item.size:
                raise CheckpointError(f"{self.file}: was cut off while it was read")
            is_aligned = item.start % 8 == 0  # the engine reads no others
            if not is_aligned or not item.size or file_size < item.start + item.size + room:
                stream.seek(item.start)
                return bytearray(stream.read(item.size).ljust(item.size + room, b"\0"))
            # a private map for each tensor: it is freed with it, and what is written to it stays out of the file
            padding = item.start % mmap.ALLOCATIONGRANULARITY
            size = padding + item.size + room
            mapped = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_COPY, offset=item.start - padding)
        return memoryview(mapped)[padding:]


def _binary_items(file: str, stream: IO[bytes], size: int) -> Iterator[tuple[str, MarianTensor]]:
    def read(count: int) -> bytes:
        content = stream.read(count) if count <= size else b""
        if len(content) != count:
            raise CheckpointError(f"{file}: is cut off, or is not a `.bin` of Marian")
        return content

    version, count = struct.unpack("<QQ", read(16))
    if VERSION < version <= MAX_VERSION:
        raise UnsupportedModelError(
            f"{file}: is a `.bin` of version {version}, newer than this program, which reads version {VERSION}: "
            "update capsule-mt"
        )
    if version != VERSION:
        raise CheckpointError(f"{file}: is not a `.bin` of Marian, which begins with its version, {VERSION}")
    content = read(32 * count)
    if count > MAX_TENSORS:
        raise CheckpointError(f"{file}: has {count} tensors; at most {MAX_TENSORS} are read")
    headers = list(struct.iter_unpack("<QQQQ", content))
    longest = max((length for length, *_ in headers), default=0)
    if longest > MAX_NAME:
        raise CheckpointError(f"{file}: the name of a tensor has {longest} bytes; at most {MAX_NAME} are read")
    names = [read(length) for length, *_ in headers]
    shapes = []
    for _, _, dimensions, _ in headers:
        if dimensions > MAX_DIMENSIONS:
            raise CheckpointError(
                f"{file}: a tensor has {dimensions} dimensions; at most {MAX_DIMENSIONS} are supported"
            )
        shapes.append(struct.unpack(f"<{dimensions}i", read(4 * dimensions)))
    (padding,) = struct.unpack("<Q", read(8))
    start = stream.tell() + padding
    for raw, shape, (_, kind, _, length) in zip(names, shapes, headers, strict=True):
        name = raw.rstrip(b"\0").decode("utf-8", "backslashreplace")
        if kind not in TYPES and not name.endswith("_QuantMultA"):
            accepted = ", ".join(dict.fromkeys(TYPE_NAMES[accepted_kind] for accepted_kind in TYPES))
            raise UnsupportedModelError(
                f"{file}: `{name}` is of type {TYPE_NAMES.get(kind, hex(kind))}, which is not read; only {accepted}: "
                "convert the `.npz` by `marian convert --gemm-type intgemm8` or `float32`"
            )
        if kind == INTGEMM8 and any(size % TILE for size in shape):
            raise UnsupportedModelError(
                f"{file}: `{name}` is {list(shape)} in int8, but only multiples of {TILE} have a known order: "
                "convert the `.npz` by `marian convert --gemm-type float32`"
            )
        item = MarianTensor(TYPES.get(kind, "I8"), shape, start, length)
        num_bytes = item.numbers * (1 if item.dtype == "CODES" else DTYPES[item.dtype]) + 4 * (item.dtype == "CODES")
        if min(shape, default=1) < 0 or num_bytes > length:
            raise CheckpointError(
                f"{file}: `{name}` has {length} bytes, but {item.dtype} {list(shape)} takes {num_bytes}"
            )
        if start + length > size:
            raise CheckpointError(f"{file}: is {size} bytes long, but `{name}` ends at {start + length}")
        start += length
        yield name, item._replace(size=num_bytes)


class NumpyFile:
    """A `.npz` of Marian."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.items: dict[str, MarianTensor] = {}
        import zipfile

        try:
            with open_file(file) as opened, zipfile.ZipFile(opened) as archive:
                size = os.fstat(opened.fileno()).st_size
                if len(archive.infolist()) > MAX_TENSORS:
                    raise CheckpointError(f"{file}: has more than {MAX_TENSORS} tensors")
                for member in archive.infolist():
                    name = member.filename.removesuffix(".npy")
                    if len(name) > MAX_NAME:
                        raise CheckpointError(
                            f"{file}: the name of a tensor has {len(name)} bytes; at most {MAX_NAME} are read"
                        )
                    if name == member.filename or name in self.items:
                        raise CheckpointError(
                            f"{file}: has {shown(member.filename)}, which is not a `.npy`, or comes twice"
                        )
                    if member.compress_type != zipfile.ZIP_STORED or member.file_size > size:
                        raise UnsupportedModelError(
                            f"{file}: {shown(name)} is compressed, which Marian's files are not"
                        )
                    with archive.open(member) as stream:
                        self.items[name] = _numpy_item(f"{file}: `{name}`", stream, member.file_size)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
            raise CheckpointError(f"{file}: is not a `.npz`, or it is damaged ({cut(error)})") from None

    def content(self, name: str, room: int = 0) -> bytearray:
        import zipfile

        item = self.items[name]
        try:
            with (
                open_file(self.file) as file,
                zipfile.ZipFile(file) as archive,
                archive.open(f"{name}.npy") as stream,
            ):
                stream.seek(item.start)
                content = bytearray(stream.read())
        except (zipfile.BadZipFile, EOFError, OSError) as error:
            raise CheckpointError(f"{self.file}: `{name}` is damaged ({cut(error)})") from None
        if len(content) != item.size:
            raise CheckpointError(f"{self.file}: `{name}` is cut off")
        content.extend(bytes(room))
        return content


MarianFile = BinaryFile | NumpyFile  # weights by Marian's names


def _numpy_item(origin: str, stream: IO[bytes], size: int) -> MarianTensor:
    """Read the header of a `.npy` of `size` bytes; `origin` names it in errors."""
    begin = stream.read(10)
    if begin[:6] != b"\x93NUMPY" or len(begin) != 10 or begin[6] != 1:
        raise CheckpointError(f"{origin}: is not a `.npy` of version 1")
    length = int.from_bytes(begin[8:], "little")
    header = stream.read(length).decode("latin-1").strip()
    pattern = r"\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': (\([0-9, ]{0,100}\)), ?\}"
    fields = re.fullmatch(pattern, header)
    if not fields:
        raise CheckpointError(f"{origin}: the header {header[:80]!r} is not read")
    shape = tuple(int(number) for number in re.findall("[0-9]+", fields[3]))
    if fields[1] not in NUMPY_TYPES or fields[2] == "True":
        order = " in Fortran's order" if fields[2] == "True" else ""
        raise UnsupportedModelError(f"{origin}: {shown(fields[1])}{order} is not read; only {', '.join(NUMPY_TYPES)}")
    item = MarianTensor(NUMPY_TYPES[fields[1]], shape, 10 + length, math.prod(shape) * DTYPES[NUMPY_TYPES[fields[1]]])
    if item.start + item.size != size or min(shape, default=1) < 0:
        raise CheckpointError(f"{origin}: has {size - item.start} bytes, but {item.dtype} {list(shape)} {item.size}")
    return item


def read_numbers(weights: MarianFile, name: str) -> Tensor:
    """Return a tensor of floats as it is stored."""
    item = weights.items[name]
    if item.dtype not in ("F32", "F16"):
        raise CheckpointError(f"{weights.file}: `{name}` is saved as {item.dtype}, choose one of F32, F16")
    tensor = Tensor(weights.content(name), item.dtype, item.shape)
    if infinite := count_invalid(tensor):
        raise CheckpointError(f"{weights.file}: `{name}` has {infinite} of {tensor.size} numbers that are not finite")
    return tensor


def read_matrix(weights: MarianFile, name: str, rows: int = 0) -> Tensor | Codes:
    """Return a matrix as [outputs, inputs], and an embedding as [tokens, width]; followed by `rows` rows of zeros."""
    item, keeps_order = weights.items[name], name.endswith(TABLES)
    shape = item.shape if keeps_order else item.shape[::-1]
    if item.dtype == "CODES":
        content = weights.content(name, rows * shape[1])
        (multiplier,) = struct.unpack_from("<f", content, item.numbers)
        if not 0 < multiplier < math.inf:
            raise CheckpointError(
                f"{weights.file}: the codes of `{name}` have the scale {multiplier}, which must be finite and above 0"
            )
        shape = (shape[0] + rows, shape[1])
        if rows:
            content[item.numbers :] = bytes(len(content) - item.numbers)
        codes = Tensor(memoryview(content)[: math.prod(shape)], "I8", shape)
        largest = array("f", [LARGEST_CODE / multiplier]) * shape[0]
        return Codes(codes, Tensor(largest, "F32", shape[:1]))
    tensor = read_numbers(weights, name)
    numbers = tensor.buffer if keeps_order else transposed(tensor)
    if rows:
        numbers = b"".join((numbers, bytes(rows * shape[1] * DTYPES[tensor.dtype])))
    return Tensor(numbers, tensor.dtype, (shape[0] + rows, shape[1]))


def transposed(tensor: Tensor) -> bytearray:
    letter, columns = {"F32": "f", "F16": "H"}[tensor.dtype], tensor.shape[1]
    numbers = array(letter, bytes(tensor.buffer))
    return bytearray(b"".join(numbers[column::columns].tobytes() for column in range(columns)))
