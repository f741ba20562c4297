"""The grammar of `pytorch_model.bin`: a zip file of `torch.save`, with a pickle that may name tensors alone.

A state dict is flat: names, calls that rebuild a tensor, persistent ids of storages, shapes and strides. Its pickle is
never executed. Only the opcodes that such a pickle needs are read, each into a value of a known type; nothing is
compared, hashed or walked through before its type is known. The sandbox runs this module.
"""

import math
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from typing import Any, NamedTuple

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.files.sandbox.child import Limits
from capsule_mt.messages import shown
from capsule_mt.models.model_sandbox import error_report
from capsule_mt.models.opening import CheckpointError, open_file
from capsule_mt.models.weights import ITEM_SIZES, MAX_DIMENSIONS, MAX_NAME, MAX_TENSORS

MAX_PICKLE = 16 << 20  # bytes: that of NLLB-200's 3.3B has 0.2 MB
MAX_DEPTH = 4  # of tuples and dictionaries; state dicts have 3
MAX_MARKS = 16  # open at once; state dicts have 4
MAX_STACK = 1 << 18  # values: `pickle` sets 1,000 items at once
MAX_MEMO = 1 << 21  # values: about ten for each tensor
MAX_LINE = 200  # bytes of a module's name, and of a function's
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
REBUILT_TENSOR, REBUILT_PARAMETER = "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"
ORDERED_DICT = "collections OrderedDict"
FUNCTIONS = (REBUILT_TENSOR, REBUILT_PARAMETER, ORDERED_DICT)
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
    OSError,
)
NOT_TENSORS = "its pickle is not a dictionary of named tensors"


class Function(NamedTuple):
    """A function or a class that a pickle names: one of `FUNCTIONS`, or a type of storages."""

    name: str


class Storage(NamedTuple):
    key: str
    dtype: str


class StoredTensor(NamedTuple):
    storage: Storage
    offset: int
    shape: tuple[int, ...]


class Items:
    """A tuple; it is not a Python tuple, which would compare, hash and print all that it holds."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values, self.depth = values, deeper(values)


class Dictionary:
    """The tensors of a dictionary; of other values, as in `_metadata`, only their depth and whether there are any."""

    def __init__(self) -> None:
        self.tensors: dict[str, StoredTensor] = {}
        self.depth, self.has_others = 1, False

    def update(self, items: Sequence[Any]) -> None:
        if len(items) % 2:
            raise ValueError("a key without a value")
        self.depth = max(self.depth, deeper(items))
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                raise CheckpointError(NOT_TENSORS)
            if type(value) is StoredTensor:
                self.tensors[key] = value
            else:
                self.has_others = True
        if len(self.tensors) > MAX_TENSORS:
            raise ValueError(f"more than {MAX_TENSORS} tensors")


class EmptyList:
    """A list, which no tensor needs; it stays empty, since no opcode that fills one is read."""

    depth = 1


def deeper(values: Sequence[Any]) -> int:
    """Return the depth of what holds these values; refuse one beyond `MAX_DEPTH`."""
    depth = 1 + max((value.depth for value in values if type(value) in (Items, Dictionary, EmptyList)), default=0)
    if depth > MAX_DEPTH:
        raise ValueError(f"values are nested more than {MAX_DEPTH} deep")
    return depth


# ---- the zip file
def answer(job: dict[str, Any], contents: list[bytes], limits: Limits) -> tuple[dict[str, Any], list[bytes]]:
    """Answer with the name, type, shape, offset and size of each tensor in a file."""
    try:
        return {"tensors": list(tensors_in(job["name"]))}, []
    except MemoryError:
        raise
    except Exception as error:
        return error_report(error, job["name"])


def tensors_in(file: str) -> Iterator[tuple[str, str, tuple[int, ...], int, int]]:
    """Yield the name, type, shape, offset and size of each tensor in a file."""
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
            yield from _tensors_of(stream)
        except CheckpointError as error:
            raise CheckpointError(f"{file}: {error}") from None
        except DAMAGE as error:
            message = f"{file}: is damaged, or not a state dict of torch ({shown(str(error))})"
            raise CheckpointError(message) from None


def _tensors_of(stream: BufferedReader) -> Iterator[tuple[str, str, tuple[int, ...], int, int]]:
    with zipfile.ZipFile(stream) as archive:
        members = {member.filename: member for member in archive.infolist()}
        (pickle_name,) = (name for name in members if name.endswith("data.pkl") and name.count("/") == 1)
        if members[pickle_name].file_size > MAX_PICKLE:
            raise CheckpointError(f"its pickle is longer than {MAX_PICKLE} bytes")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
            raise CheckpointError("its files are compressed, which torch does not do")
        state = state_dict(archive.read(pickle_name))
    folder = pickle_name.removesuffix("data.pkl")
    for name, tensor in state.items():
        member = members.get(f"{folder}data/{tensor.storage.key}")
        if member is None:
            raise CheckpointError(f"`{name}` is in the storage {shown(tensor.storage.key)}, which it lacks")
        item_size = ITEM_SIZES[tensor.storage.dtype]
        start, size = item_size * tensor.offset, item_size * math.prod(tensor.shape)
        if start + size > member.file_size:
            raise CheckpointError(f"`{name}` has {size} bytes from {start} on of {member.file_size}")
        stream.seek(member.header_offset + LOCAL_HEADER - 4)
        data = member.header_offset + LOCAL_HEADER + sum(struct.unpack("<HH", stream.read(4)))  # a name, and extras
        yield name, tensor.storage.dtype, tensor.shape, data + start, size


# ---- the pickle
def state_dict(content: bytes) -> dict[str, StoredTensor]:
    """Read a pickle of named tensors."""
    machine = _Machine(content)
    while not machine.has_stopped:
        machine.step()
    if len(machine.stack) != 1 or machine.marks:
        raise CheckpointError(NOT_TENSORS)
    (state,) = machine.stack
    if type(state) is not Dictionary or state.has_others:
        raise CheckpointError(NOT_TENSORS)
    return state.tensors


class _Machine:
    """Reads the opcodes of a pickle; it has a stack of values, a stack of marks and a memo."""

    def __init__(self, content: bytes) -> None:
        self.content, self.offset = content, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []  # for each open mark, how many values are below it
        self.memo: dict[int, Any] = {}
        self.has_stopped = False

    def step(self) -> None:
        opcode = self._bytes(1)
        if opcode not in OPCODES:
            raise CheckpointError(f"its pickle has the opcode {name_of(opcode)}, which named tensors do not need")
        OPCODES[opcode](self)

    # ---- arguments
    def _bytes(self, size: int) -> bytes:
        start, self.offset = self.offset, self.offset + size
        if self.offset > len(self.content):
            raise EOFError("the pickle is cut off")
        return self.content[start : self.offset]

    def _unsigned(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "little")

    def _line(self) -> str:
        end = self.content.find(b"\n", self.offset, self.offset + MAX_LINE)
        if end < 0:
            raise ValueError(f"a name of more than {MAX_LINE} bytes")
        line = self._bytes(end - self.offset).decode()
        self.offset += 1
        return line

    # ---- the stack
    def _push(self, value: Any) -> None:
        if len(self.stack) == MAX_STACK:
            raise ValueError(f"more than {MAX_STACK} values at once")
        self.stack.append(value)

    def _pop(self, count: int) -> list[Any]:
        """Take values from the stack that are above the last mark."""
        start = len(self.stack) - count
        if start < (self.marks[-1] if self.marks else 0):
            raise ValueError("a value is missing")
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def _marked(self) -> list[Any]:
        """Take the last mark, and the values above it."""
        if not self.marks:
            raise ValueError("a mark is missing")
        values = self._pop(len(self.stack) - self.marks[-1])
        self.marks.pop()
        return values

    def _top(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise ValueError("a value is missing")
        return self.stack[-1]

    # ---- opcodes
    def mark(self) -> None:
        if len(self.marks) == MAX_MARKS:
            raise ValueError(f"more than {MAX_MARKS} marks at once")
        self.marks.append(len(self.stack))

    def stop(self) -> None:
        self.has_stopped = True

    def push_long(self) -> None:
        self._push(int.from_bytes(self._bytes(self._unsigned(1)), "little", signed=True))

    def push_text(self, size: int) -> None:
        length = self._unsigned(size)
        if length > MAX_NAME:
            raise ValueError(f"a text of {length} bytes, at most {MAX_NAME} are read")
        self._push(self._bytes(length).decode())

    def push_function(self) -> None:
        name = f"{self._line()} {self._line()}"
        if name not in FUNCTIONS and name.removeprefix("torch ") not in STORAGES:
            raise CheckpointError(f"its pickle names {shown(name)}, which is not of a tensor: not loaded")
        self._push(Function(name))

    def memoize(self, size: int) -> None:
        self.memo[self._unsigned(size)] = self._top()
        if len(self.memo) > MAX_MEMO:
            raise ValueError(f"more than {MAX_MEMO} values to look up")

    def push_memoized(self, size: int) -> None:
        self._push(self.memo[self._unsigned(size)])

    def push_storage(self) -> None:
        (identifier,) = self._pop(1)
        kind, function, key, *_ = values_of(identifier)
        if type(kind) is not str or kind != "storage" or type(function) is not Function or type(key) is not str:
            raise TypeError("a storage without a type and a key")
        self._push(Storage(key, STORAGES[function.name.removeprefix("torch ")]))

    def call(self) -> None:
        function, arguments = self._pop(2)
        if type(function) is not Function:
            raise TypeError("a call of what is not a function")
        values = values_of(arguments)
        if function.name == ORDERED_DICT and not values:
            self._push(Dictionary())
        elif function.name == REBUILT_PARAMETER:
            if not values or type(values[0]) is not StoredTensor:
                raise TypeError("a parameter that is not a tensor")
            self._push(values[0])
        elif function.name == REBUILT_TENSOR:
            self._push(tensor_of(values))
        else:
            raise TypeError("a call of what is not a function")

    def set_items(self, items: list[Any]) -> None:
        dictionary = self._top()
        if type(dictionary) is not Dictionary:
            raise TypeError("items of what is not a dictionary")
        dictionary.update(items)

    def build(self) -> None:
        self._pop(1)  # the version of each module, which is not a weight
        if type(self._top()) is not Dictionary:
            raise TypeError("attributes of what is not a dictionary")


def _opcodes() -> dict[bytes, Callable[[_Machine], None]]:
    return {
        b"\x80": lambda machine: machine._bytes(1) and None,  # the protocol's version
        b"(": _Machine.mark,
        b".": _Machine.stop,
        b"N": lambda machine: machine._push(None),
        b"\x88": lambda machine: machine._push(True),
        b"\x89": lambda machine: machine._push(False),
        b"K": lambda machine: machine._push(machine._unsigned(1)),
        b"M": lambda machine: machine._push(machine._unsigned(2)),
        b"J": lambda machine: machine._push(int.from_bytes(machine._bytes(4), "little", signed=True)),
        b"\x8a": _Machine.push_long,
        b"X": lambda machine: machine.push_text(4),
        b"\x8c": lambda machine: machine.push_text(1),
        b"c": _Machine.push_function,
        b")": lambda machine: machine._push(Items(())),
        b"\x85": lambda machine: machine._push(Items(machine._pop(1))),
        b"\x86": lambda machine: machine._push(Items(machine._pop(2))),
        b"\x87": lambda machine: machine._push(Items(machine._pop(3))),
        b"t": lambda machine: machine._push(Items(machine._marked())),
        b"}": lambda machine: machine._push(Dictionary()),
        b"]": lambda machine: machine._push(EmptyList()),
        b"q": lambda machine: machine.memoize(1),
        b"r": lambda machine: machine.memoize(4),
        b"h": lambda machine: machine.push_memoized(1),
        b"j": lambda machine: machine.push_memoized(4),
        b"Q": _Machine.push_storage,
        b"R": _Machine.call,
        b"s": lambda machine: machine.set_items(machine._pop(2)),
        b"u": lambda machine: machine.set_items(machine._marked()),
        b"b": _Machine.build,
    }


OPCODES = _opcodes()


def name_of(opcode: bytes) -> str:
    """Return the name of an opcode that is not read."""
    import pickletools  # late: this is an error

    names = {known.code: known.name for known in pickletools.opcodes}
    return names.get(opcode.decode("latin-1"), shown(opcode))


def values_of(value: Any) -> Sequence[Any]:
    if type(value) is not Items:
        raise TypeError("arguments that are not a tuple")
    return value.values


def tensor_of(arguments: Sequence[Any]) -> StoredTensor:
    """Return the tensor that `_rebuild_tensor_v2` would make."""
    storage, offset, shape_items, stride_items, *_ = arguments
    shape, strides = values_of(shape_items), values_of(stride_items)
    if len(shape) > MAX_DIMENSIONS or len(shape) != len(strides):  # their steps take quadratic time
        raise ValueError(f"a tensor of {len(shape)} dimensions with {len(strides)} strides")
    numbers = [offset, *shape, *strides]
    if type(storage) is not Storage or not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise TypeError("a tensor without a storage and sizes")
    expected = [math.prod(shape[index + 1 :]) for index in range(len(shape))]
    if any(size > 1 and stride != step for size, stride, step in zip(shape, strides, expected, strict=True)):
        raise ValueError("a tensor whose numbers are not in row-major order")
    return StoredTensor(storage, offset, tuple(shape))
