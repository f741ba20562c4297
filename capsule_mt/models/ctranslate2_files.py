"""The grammar of CTranslate2's `model.bin`: named variables, and aliases. Sizes in the file are never trusted.

A version; the name and the revision of the specification; how many variables there are; for each its name, its shape,
its type and how many bytes it has (before version 4, the size of a number and how many there are), and these bytes.
Then, from version 3 on, how many aliases there are, each two names. Numbers are little-endian, names begin with their
length and end with a zero.
"""

import math
import os
import struct
from collections.abc import Iterator
from typing import IO, NamedTuple

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.opening import CheckpointError, OpenFile, open_file
from capsule_mt.models.weights import MAX_NAME, MAX_TENSORS

# the versions of the file, and the revisions of the specification, that were compared with CTranslate2
VERSIONS, REVISIONS = range(2, 7), range(2, 8)
TYPED_VERSION, ALIAS_VERSION = 4, 3  # before these, a variable has a size instead of a type, and there are no aliases
CONFIG_VERSION = 6  # before this, variables say what config.json says now
# the number of heads of models that do not state it, by the name of the specification
SPECIFICATIONS = {"TransformerSpec": None, "TransformerBase": 8, "TransformerBig": 16}
TYPES = ("F32", "I8", "I16", "I32", "F16", "BF16")  # in the order of their numbers
TYPES_BY_SIZE = {4: "F32", 2: "I16", 1: "I8"}
ITEM_SIZES = {"F32": 4, "I8": 1, "I16": 2, "I32": 4, "F16": 2, "BF16": 2}
SCALAR_FORMATS = {"F32": "<f", "I8": "<b", "I16": "<h", "I32": "<i", "F16": "<e"}
MAX_DIMENSIONS = 8
MAX_TEXT = 1000  # bytes of a variable that is a text


class Variable(NamedTuple):
    """Where a variable is: its `size` bytes begin at the offset `start`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


class CTranslate2File:
    """A `model.bin`; aliases have the variables that they stand for.

    version: of the file; default_heads: the number of heads of a model that does not state it.
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self.file = os.fspath(file)
        self.variables: dict[str, Variable] = {}
        with open_file(file) as stream:
            reader = _Reader(self.file, stream)
            self.version, specification = reader.header()
            self.default_heads = SPECIFICATIONS[specification]
            for variable in reader.variables(self.version):
                self._add(variable.name, variable)
            for alias, name in reader.aliases(self.version):
                if name not in self.variables:
                    raise CheckpointError(f"{self.file}: `{alias}` stands for `{name}`, which it lacks")
                self._add(alias, self.variables[name])
                if f"{name}_scale" in self.variables:
                    self._add(f"{alias}_scale", self.variables[f"{name}_scale"])
            reader.check_end()
        self._open_file = OpenFile(file)

    def _add(self, name: str, variable: Variable) -> None:
        if name in self.variables:
            raise CheckpointError(f"{self.file}: `{name}` comes twice")
        self.variables[name] = variable

    def content(self, variable: Variable, first: int = 0, count: int | None = None) -> "bytes | memoryview":
        """Return the bytes of a variable, or of `count` of its rows from row `first` on."""
        row_size = variable.size // max(1, variable.shape[0]) if variable.shape else variable.size
        size = variable.size if count is None else count * row_size
        content = self._open_file.content(variable.start + first * row_size, size)
        if len(content) < size:
            raise CheckpointError(f"{self.file}: was cut off while it was read")
        return content

    def scalar(self, name: str) -> float | None:
        """Return the number of a variable that has only one; `None` if the file lacks it."""
        variable = self.variables.get(name)
        if variable is None:
            return None
        if math.prod(variable.shape) != 1 or variable.dtype not in SCALAR_FORMATS:
            raise CheckpointError(f"{self.file}: `{name}` is {variable.dtype} {list(variable.shape)}, not a number")
        (number,) = struct.unpack(SCALAR_FORMATS[variable.dtype], self.content(variable))
        if not math.isfinite(number):
            raise CheckpointError(f"{self.file}: `{name}` is {number}, which is not finite")
        return float(number)

    def text(self, name: str) -> str | None:
        """Return the text of a variable; `None` if the file lacks it."""
        variable = self.variables.get(name)
        if variable is None:
            return None
        if variable.dtype != "I8" or variable.size > MAX_TEXT:
            raise CheckpointError(f"{self.file}: `{name}` must be a text of at most {MAX_TEXT} bytes")
        try:
            return bytes(self.content(variable)).decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"{self.file}: `{name}` is not UTF-8") from None


class _Reader:
    """Reads a file from its beginning to its end."""

    def __init__(self, file: str, stream: IO[bytes]) -> None:
        self._file, self._stream = file, stream
        self._size = os.fstat(stream.fileno()).st_size

    def header(self) -> tuple[int, str]:
        """Return the version of the file, and the name of the specification."""
        version = self._number("I")
        self._check_version(version, VERSIONS, "version")
        specification = self._name()
        if specification not in SPECIFICATIONS:
            raise UnsupportedModelError(
                f"{self._file}: is a model of the kind {shown(specification)}, which is not supported; only "
                f"{', '.join(SPECIFICATIONS)}, which translate"
            )
        self._check_version(self._number("I"), REVISIONS, "revision")
        return version, specification

    def variables(self, version: int) -> Iterator[Variable]:
        for _ in range(self._count("variables")):
            name = self._name()
            dimensions = self._number("B")
            if dimensions > MAX_DIMENSIONS:
                raise CheckpointError(
                    f"{self._file}: `{name}` has {dimensions} dimensions; at most {MAX_DIMENSIONS} are read"
                )
            shape = struct.unpack(f"<{dimensions}I", self._bytes(4 * dimensions))
            number = self._number("B")
            if version >= TYPED_VERSION:
                dtype, size = TYPES[number] if number < len(TYPES) else None, self._number("I")
            else:
                dtype, size = TYPES_BY_SIZE.get(number), number * self._number("I")
            if dtype is None:
                raise UnsupportedModelError(f"{self._file}: `{name}` is of type {number}, which is not known")
            expected = math.prod(shape) * ITEM_SIZES[dtype]
            if size != expected:
                raise CheckpointError(
                    f"{self._file}: `{name}` has {size} bytes, but {dtype} {list(shape)} takes {expected}"
                )
            start = self._stream.tell()
            if size > self._size - start:
                raise CheckpointError(f"{self._file}: is {self._size} bytes long, but `{name}` ends at {start + size}")
            self._stream.seek(start + size)
            yield Variable(name, dtype, shape, start, size)

    def aliases(self, version: int) -> Iterator[tuple[str, str]]:
        """Yield each alias and what it stands for."""
        if version >= ALIAS_VERSION:
            for _ in range(self._count("aliases")):
                yield self._name(), self._name()

    def check_end(self) -> None:
        end = self._stream.tell()
        if end != self._size:
            raise CheckpointError(f"{self._file}: is {self._size} bytes long, but its model ends at {end}")

    def _check_version(self, number: int, known: range, kind: str) -> None:
        if number not in known:
            advice = ": update capsule-mt" if number > known[-1] else ""
            raise UnsupportedModelError(
                f"{self._file}: is of {kind} {number} of CTranslate2's files; {known[0]} to {known[-1]} are read"
                f"{advice}"
            )

    def _bytes(self, size: int) -> bytes:
        content = self._stream.read(size)
        if len(content) != size:
            raise CheckpointError(f"{self._file}: is cut off, or is not a model of CTranslate2")
        return content

    def _number(self, kind: str) -> int:
        return int(struct.unpack(f"<{kind}", self._bytes(struct.calcsize(f"<{kind}")))[0])

    def _count(self, kind: str) -> int:
        count = self._number("I")
        if count > MAX_TENSORS:
            raise CheckpointError(f"{self._file}: has {count} {kind}; at most {MAX_TENSORS} are read")
        return count

    def _name(self) -> str:
        length = self._number("H")
        if not 0 < length <= MAX_NAME:
            raise CheckpointError(f"{self._file}: a name has {length} bytes; 1 to {MAX_NAME} are read")
        content = self._bytes(length)
        if content[-1:] != b"\0":
            raise CheckpointError(f"{self._file}: a name does not end with a zero: the file is damaged")
        return content[:-1].decode("utf-8", "backslashreplace")
