"""`pytorch_model.bin` without torch: the zip file of `torch.save`, with a pickle that may name tensors alone.

The pickle is never executed. Its opcodes are read one by one into plain values; one that a state dict does not need, a
class beside those of tensors, or a storage outside of the file is an error.
"""

import math
import os
import pickletools
import struct
import zipfile
from collections.abc import Iterator
from io import BufferedReader
from typing import Any, NamedTuple

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.opening import open_file
from capsule_mt.models.weights import (
    ITEM_SIZES,
    MAX_HEADER_SIZE,
    PICKLED_FILE,
    CheckpointError,
    Entry,
    SafetensorsFile,
)

INDEX_FILE = "pytorch_model.bin.index.json"
MAX_DIMENSIONS = 64  # of a tensor, as torch has it
LOCAL_HEADER = 30  # bytes of a zip's header before a file's name
ZIP_SIGNATURE = b"PK\3\4"
STORAGES = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}
REBUILDERS = ("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", "collections OrderedDict")
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
LITERALS = ("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE")  # numbers and texts
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
MARK = object()
# what reading a damaged zip or pickle raises
DAMAGE = (
    zipfile.BadZipFile,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
)


class _Name(NamedTuple):
    """A class or a function that a pickle names."""

    text: str


class _Storage(NamedTuple):
    key: str
    dtype: str


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]


class PickledFile(SafetensorsFile):
    """The tensors of a `pytorch_model.bin`, or of its parts: see `SafetensorsFile`."""

    FILE, INDEX = PICKLED_FILE, INDEX_FILE

    @classmethod
    def in_folder(cls, folder: str | os.PathLike[str]) -> SafetensorsFile:
        weights = super().in_folder(folder)
        # the writers look for a tied tensor under each of its names: keep the first
        first_names: dict[Entry, str] = {}
        for name, entry in weights._entries.items():
            first_names.setdefault(entry, name)
        weights._entries = {name: entry for entry, name in first_names.items()}
        return weights

    @staticmethod
    def _entries_of(file: str, metadata: dict[str, Any]) -> Iterator[tuple[str, Entry]]:
        with open_file(file) as stream:
            if not zipfile.is_zipfile(stream):
                stream.seek(0)
                if stream.read(len(ZIP_SIGNATURE)) == ZIP_SIGNATURE:  # a zip file ends with its directory
                    raise CheckpointError(f"{file}: is cut off, or damaged")
                raise UnsupportedModelError(
                    f"{file}: is not a zip file, as torch has written them since version 1.6; with transformers, load "
                    "and save the model to get model.safetensors"
                )
            try:
                yield from _entries(file, stream)
            except CheckpointError:
                raise
            except DAMAGE as error:
                message = f"{file}: is damaged, or not a state dict of torch ({shown(str(error))})"
                raise CheckpointError(message) from None


def _entries(file: str, stream: BufferedReader) -> Iterator[tuple[str, Entry]]:
    with zipfile.ZipFile(stream) as archive:
        members = {member.filename: member for member in archive.infolist()}
        (pickle_name,) = (name for name in members if name.endswith("data.pkl") and name.count("/") == 1)
        if members[pickle_name].file_size > MAX_HEADER_SIZE:
            raise CheckpointError(f"{file}: its pickle is longer than {MAX_HEADER_SIZE} bytes")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
            raise CheckpointError(f"{file}: its files are compressed, which torch does not do")
        state = _state_dict(file, archive.read(pickle_name))
    folder = pickle_name.removesuffix("data.pkl")
    for name, tensor in state.items():
        member = members.get(f"{folder}data/{tensor.storage.key}")
        if member is None:
            raise CheckpointError(f"{file}: `{name}` is in the storage {shown(tensor.storage.key)}, which it lacks")
        item_size = ITEM_SIZES[tensor.storage.dtype]
        start, size = item_size * tensor.offset, item_size * math.prod(tensor.shape)
        if start + size > member.file_size:
            raise CheckpointError(f"{file}: `{name}` has {size} bytes from {start} on of {member.file_size}")
        stream.seek(member.header_offset + LOCAL_HEADER - 4)
        data = member.header_offset + LOCAL_HEADER + sum(struct.unpack("<HH", stream.read(4)))  # a name, and extras
        yield name, Entry(file, tensor.storage.dtype, tensor.shape, data + start, size)


def _state_dict(file: str, content: bytes) -> dict[str, _Tensor]:
    """Read a pickle of named tensors."""
    machine = _Machine(file)
    for opcode, argument, _ in pickletools.genops(content):
        machine.step(opcode.name, argument)
    state = machine.stack[-1]
    is_state = isinstance(state, dict) and all(isinstance(name, str) for name in state)
    if len(machine.stack) != 1 or not is_state or not all(isinstance(value, _Tensor) for value in state.values()):
        raise CheckpointError(f"{file}: its pickle is not a dictionary of named tensors")
    return dict(state)


class _Machine:
    """The stack of a pickle and its memo, with plain values alone."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in EMPTY:
            stack.append(EMPTY[name]())
        elif name in LITERALS:
            stack.append(argument)
        elif name == "MARK":
            stack.append(MARK)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name == "GLOBAL":
            stack.append(self._named(argument))
        elif name in TUPLES:
            stack.append(tuple(stack.pop() for _ in range(TUPLES[name]))[::-1])
        elif name == "TUPLE":
            stack.append(tuple(self._marked()))
        elif name == "BINPERSID":
            stack.append(_storage_of(stack.pop()))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(_rebuilt(function, arguments))
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else self._marked()
            if not isinstance(stack[-1], dict):
                raise TypeError("items of what is not a dictionary")
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif name == "BUILD":  # the version of each module, which is not a weight
            stack.pop()
        elif name not in ("PROTO", "STOP"):
            raise CheckpointError(f"{self.file}: its pickle has the opcode {name}, which named tensors do not need")

    def _named(self, text: str) -> _Name:
        module, _, name = text.partition(" ")
        if text not in REBUILDERS and not (module == "torch" and name in STORAGES):
            raise CheckpointError(f"{self.file}: its pickle names {shown(text)}, which is not of a tensor: not loaded")
        return _Name(text)

    def _marked(self) -> list[Any]:
        """Take what is above the last mark from the stack."""
        index = max(index for index, value in enumerate(self.stack) if value is MARK)
        values = self.stack[index + 1 :]
        del self.stack[index:]
        return values


def _storage_of(identifier: Any) -> _Storage:
    kind, storage_type, key, *_ = identifier
    if kind != "storage" or not isinstance(storage_type, _Name) or not isinstance(key, str):
        raise TypeError("a storage without a type and a key")
    return _Storage(key, STORAGES[storage_type.text.removeprefix("torch ")])


def _rebuilt(function: Any, arguments: Any) -> Any:
    """Return the tensor, the parameter's tensor or the dictionary that a function of torch would make."""
    name = function.text.rpartition(" ")[2] if isinstance(function, _Name) else ""
    if name == "OrderedDict" and arguments == ():
        return {}
    if name == "_rebuild_parameter":
        if not isinstance(arguments[0], _Tensor):
            raise TypeError("a parameter that is not a tensor")
        return arguments[0]
    if name != "_rebuild_tensor_v2":
        raise TypeError("a call of what is not a function")
    storage, offset, shape, strides, *_ = arguments
    numbers = [offset, *shape, *strides]
    if not isinstance(storage, _Storage) or not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise TypeError("a tensor without a storage and sizes")
    if len(shape) > MAX_DIMENSIONS:  # their steps take quadratic time
        raise ValueError(f"a tensor of {len(shape)} dimensions")
    expected = [math.prod(shape[index + 1 :]) for index in range(len(shape))]
    if any(size > 1 and stride != step for size, stride, step in zip(shape, strides, expected, strict=True)):
        raise ValueError("a tensor whose numbers are not in row-major order")
    return _Tensor(storage, offset, tuple(shape))
