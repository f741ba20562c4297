"""The weights of a checkpoint by name: each is read on request and not cached."""

import json
import math
import os
import re
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from capsule_mt.engine.library import count_invalid
from capsule_mt.engine.program import Codes, Tensor
from capsule_mt.messages import MAX_SHOWN, cut, shown
from capsule_mt.models import tensors
from capsule_mt.models.opening import CheckpointError as CheckpointError
from capsule_mt.models.opening import OpenFile, open_file, read_file

WEIGHTS_FILE = "model.safetensors"
INT8_FILE = "int8.safetensors"  # of a checkpoint in int8
SMALL_FILE = "small.safetensors"  # of a small checkpoint
CODES_FILES = INT8_FILE, SMALL_FILE  # whose matrices are codes
PICKLED_FILE = "pytorch_model.bin"
INDEX_FILE = "model.safetensors.index.json"
MAX_HEADER_SIZE = 100_000_000  # bytes, as safetensors allows
MAX_TENSORS = 100_000  # of a file: NLLB-200's 3.3B has 1,022
MAX_NAME = 400  # characters of a tensor's name, which errors print whole
MAX_DIMENSIONS = 64  # of a tensor, as torch has it; the product of a million sizes would take minutes
FLOATING_TYPES = ("F64", "F32", "F16", "BF16")
ITEM_SIZES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL"), 1),
}


class Weights(Protocol):
    """Named tensors of a file or of a live model. Tied tensors may be stored under one of their names."""

    def __contains__(self, name: object) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor; raise an error if it is missing, or quantised in a live model."""
        ...

    def read(self, name: str) -> Tensor | Codes:
        """Return a tensor; `Codes` where a matrix is stored in int8."""
        ...

    def problem(self, name: str, message: str) -> ValueError:
        """Return an error whose message names the file that has or lacks a tensor; of a live model, the tensor."""
        ...


class TensorEntry(NamedTuple):
    """Where a tensor is: its `size` bytes begin at the offset `start` of a file."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


class SafetensorsFile:
    """The tensors of a safetensors file, or of the parts of one that was saved in parts.

    The headers are checked when they are opened: a damaged or hostile file raises a `CheckpointError`, and nothing is
    read outside of a tensor.
    """

    FILE, INDEX = WEIGHTS_FILE, INDEX_FILE  # file names; subclasses have others

    def __init__(self, *files: str | os.PathLike[str]) -> None:
        self.files = [os.fspath(file) for file in files]
        self.metadata: dict[str, Any] = {}
        self._entries: dict[str, TensorEntry] = {}
        self._open_files: dict[str, OpenFile] = {}  # opening one for each tensor takes milliseconds
        for file in self.files:
            for name, entry in self._entries_of(file, self.metadata):
                if name in self._entries:
                    raise CheckpointError(f"{file}: `{name}` is also in {os.path.basename(self._entries[name].file)}")
                self._entries[name] = entry

    @classmethod
    def in_folder(cls, folder: str | os.PathLike[str]) -> "SafetensorsFile":
        """Open the weights in a folder: one file, or an index and its parts."""
        file, index = os.path.join(folder, cls.FILE), os.path.join(folder, cls.INDEX)
        if os.path.exists(file) or not os.path.exists(index):
            return cls(file)
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise CheckpointError(f"{index}: `weight_map` must name the file of each tensor")
        for name, part in weight_map.items():
            if not isinstance(part, str) or not re.fullmatch(r"[\w-][\w.-]{0,199}", part):
                raise CheckpointError(
                    f"{index}: `weight_map` has {shown(part)} for `{cut(name)}`, which is not a file beside it"
                )
        weights = cls(*(os.path.join(folder, part) for part in sorted(set(weight_map.values()))))
        for name, part in weight_map.items():
            if name not in weights or os.path.basename(weights._entries[name].file) != part:
                raise CheckpointError(f"{index}: `weight_map` has `{cut(name)}`, which is not in {part}")
        return weights

    @staticmethod
    def _entries_of(file: str, metadata: dict[str, Any]) -> "Iterator[tuple[str, TensorEntry]]":
        """Yield the tensors of a file, which must fill it without a gap; add its metadata to `metadata`."""
        with open_file(file) as stream:
            file_size = os.fstat(stream.fileno()).st_size
            header_size = int.from_bytes(stream.read(8), "little")
            if not 0 < header_size <= min(file_size - 8, MAX_HEADER_SIZE):
                raise CheckpointError(f"{file}: is not a safetensors file, or it is cut off")
            header = _json_object(file, stream.read(header_size))
        stated_metadata = header.pop("__metadata__", {})
        if not isinstance(stated_metadata, dict):
            raise CheckpointError(f"{file}: `__metadata__` must be an object, got {shown(stated_metadata)}")
        if len(header) > MAX_TENSORS:
            raise CheckpointError(f"{file}: has {len(header)} tensors, at most {MAX_TENSORS} are read")
        metadata |= stated_metadata
        entries = [_entry(file, name, description, 8 + header_size) for name, description in header.items()]
        end = 8 + header_size
        for name, entry in sorted(entries, key=lambda item: (item[1].start, item[1].size, item[0])):
            if entry.start != end:
                begin, expected = entry.start - 8 - header_size, end - 8 - header_size
                raise CheckpointError(f"{file}: `data_offsets` of `{name}` must begin at {expected}, got {begin}")
            end += entry.size
            yield name, entry
        if file_size != end:
            raise CheckpointError(f"{file}: is {file_size} bytes long, but its header describes {end}")

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._entries:
            raise self.problem(name, f"lacks `{name}`, which the configuration requires")
        return self._entries[name].shape

    def read(self, name: str) -> Tensor | Codes:
        entry = self._entries[name]
        if entry.dtype not in FLOATING_TYPES:
            accepted = ", ".join(FLOATING_TYPES)
            raise self.problem(name, f"`{name}` is saved as {entry.dtype}, choose one of {accepted}")
        content = self.content(name)
        if entry.dtype == "F64":
            tensor = tensors.of_floats(array("d", bytes(content)), entry.shape)
        else:
            tensor = Tensor(content, entry.dtype, entry.shape)
        if num_not_finite := count_invalid(tensor):
            raise self.problem(name, f"`{name}` has {num_not_finite} of {tensor.size} numbers that are not finite")
        return tensor

    def content(self, name: str) -> "bytes | memoryview":
        """Return the bytes of a tensor of any type."""
        entry = self._entries[name]
        if entry.file not in self._open_files:
            self._open_files[entry.file] = OpenFile(entry.file)
        file = self._open_files[entry.file]
        content = file.content(entry.start, entry.size)
        if len(content) < entry.size:
            raise self.problem(name, "was cut off while it was read")
        return content

    def dtype(self, name: str) -> str:
        return self._entries[name].dtype

    def file_of(self, name: str) -> str:
        """Return the file that has a tensor, or should have it."""
        return self._entries[name].file if name in self._entries else self.files[0]

    def problem(self, name: str, message: str) -> ValueError:
        return CheckpointError(f"{self.file_of(name)}: {message}")


def _entry(file: str, name: str, description: Any, data_start: int) -> tuple[str, TensorEntry]:
    """Return one tensor of a header; the file's tensors begin at the offset `data_start`."""
    try:
        dtype, shape, (begin, end) = description["dtype"], tuple(description["shape"]), description["data_offsets"]
        are_counts = all(type(number) is int and 0 <= number < 2**63 for number in (*shape, begin, end))
        is_small = len(shape) <= MAX_DIMENSIONS and len(name) <= MAX_NAME
        fits = is_small and are_counts and end - begin == ITEM_SIZES[dtype] * math.prod(shape)
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise CheckpointError(
            f"{file}: `{name[:MAX_SHOWN]}` is {shown(description)}, which is not a tensor: "
            "its `data_offsets` must span the bytes that `shape` and `dtype` take, `dtype` one of "
            f"{', '.join(ITEM_SIZES)}"
        )
    return name, TensorEntry(file, dtype, shape, data_start + begin, end - begin)


def write_safetensors(
    path: str | os.PathLike[str],
    layouts: Mapping[str, tuple[str, Sequence[int]]],
    read: Callable[[str], "bytes | bytearray | memoryview | array[Any]"],
    metadata: Mapping[str, str],
) -> None:
    """Write a safetensors file. Each tensor is read when it is written.

    Args:
        layouts: the dtype and the shape of each tensor, by name.
        read: returns the numbers of a tensor by its name.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, (dtype, shape) in layouts.items():
        start, end = end, end + ITEM_SIZES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    header_bytes = json.dumps(header).encode()
    header_bytes += b" " * (-len(header_bytes) % 8)
    with open(f"{os.fspath(path)}.part", "wb") as stream:
        stream.write(len(header_bytes).to_bytes(8, "little") + header_bytes)
        for name in layouts:
            stream.write(read(name))
    os.replace(f"{os.fspath(path)}.part", path)


def read_json(file: str) -> dict[str, Any]:
    """Read a file that holds a JSON object."""
    return _json_object(file, read_file(file))


def write_json(file: str, content: Mapping[str, Any]) -> None:
    """Write a file that holds a JSON object."""
    with open(file, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


class _LongNumber(str):
    """The digits of a whole number that Python does not read."""


def _long_number_in(content: bytes) -> str:
    """Return a sentence about the first whole number with too many digits in JSON."""
    limit, sentences = sys.get_int_max_str_digits(), list[str]()

    def number(digits: str) -> int | str:
        return _LongNumber(digits) if len(digits.lstrip("-")) > limit else 0

    def read_object(pairs: list[tuple[str, Any]]) -> None:
        for key, value in pairs:
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, _LongNumber):
                    count = len(item.lstrip("-"))
                    sentences.append(f"{shown(key)} has a number of {count:,} digits; at most {limit:,} are read")

    json.loads(content, parse_int=number, object_pairs_hook=read_object)
    return sentences[0] if sentences else f"has a number of more than {limit:,} digits"


def read_json_list(file: str) -> list[str]:
    """Read a file that holds a JSON list of texts."""
    value = _json_value(file, read_file(file))
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CheckpointError(f"{file}: must be a JSON list of texts")
    return value


def _json_object(file: str, content: bytes) -> dict[str, Any]:
    value = _json_value(file, content)
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: must be a JSON object, got a {type(value).__name__}")
    return value


def _json_value(file: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise CheckpointError(f"{file}: is not JSON ({reason})") from None
    except ValueError:  # Python's limit for whole numbers
        raise CheckpointError(f"{file}: {_long_number_in(content)}") from None
