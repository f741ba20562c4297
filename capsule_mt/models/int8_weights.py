"""Int8 checkpoints: int8.safetensors has rounded matrices as `NAME.codes` [out, in] in int8 and `NAME.largest` [out],
the largest magnitude of each row, and other tensors as they are; int8.json has the format and the file's checksum.
"""

import os
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from capsule_mt.engine.library import count_invalid, count_negative, rounded
from capsule_mt.engine.program import Codes, Tensor
from capsule_mt.models.checksums import check_facts, write_facts
from capsule_mt.models.parts import Parts
from capsule_mt.models.registry import TRAINED_ONLY
from capsule_mt.models.weights import (
    INT8_FILE,
    WEIGHTS_FILE,
    SafetensorsFile,
    Weights,
    write_safetensors,
)

FORMAT = 3


class Int8File:
    """The weights of an int8 checkpoint, by the names that they have in any other."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        file = os.path.join(folder, INT8_FILE)
        self._stored = SafetensorsFile(file)  # first: it compares the file's size with the header
        check_facts(file, FORMAT)
        for name in self._stored:
            matrix = name.removesuffix(".codes")
            if matrix != name:
                self._check_codes(matrix)

    def __contains__(self, name: object) -> bool:
        return name in self._stored or f"{name}.codes" in self._stored

    def __iter__(self) -> Iterator[str]:
        return (name.removesuffix(".codes") for name in self._stored if not name.endswith(".largest"))

    def shape(self, name: str) -> tuple[int, ...]:
        codes = f"{name}.codes"
        return self._stored.shape(codes if codes in self._stored else name)

    def read(self, name: str) -> Tensor | Codes:
        if name in self._stored:
            return self._stored.read(name)
        stored_codes, largest = f"{name}.codes", self._stored.read(f"{name}.largest")
        codes = Tensor(self._stored.content(stored_codes), "I8", self._stored.shape(stored_codes))
        if count_invalid(codes):
            raise self.problem(stored_codes, f"`{stored_codes}` has the code -128, which no number is rounded to")
        if not isinstance(largest, Tensor) or count_negative(largest):
            raise self.problem(stored_codes, f"`{name}.largest` has a negative number")
        return Codes(codes, largest)

    def problem(self, name: str, message: str) -> ValueError:
        return self._stored.problem(name, message)

    def _check_codes(self, name: str) -> None:
        codes, largest = f"{name}.codes", f"{name}.largest"
        shape = self._stored.shape(codes)
        fits = largest in self._stored and self._stored.shape(largest) == shape[:1]
        if len(shape) != 2 or not fits or (self._stored.dtype(codes), self._stored.dtype(largest)) != ("I8", "F32"):
            raise self._stored.problem(codes, f"`{codes}` must be a matrix of I8 with the F32 `{largest}` of its rows")


def write_int8_weights(folder: str | os.PathLike[str], weights: Weights, parts: Parts) -> None:
    """Write the weights of a model to a folder as int8.safetensors and int8.json.

    parts: of the model's program; what it rounds is written as codes, and what is stored in codes already.
    """
    names = names_to_write(folder, weights, parts)
    unrounded = {name: weights.read(name) for name in names if name not in parts.rounded}
    exact = {name: tensor for name, tensor in unrounded.items() if isinstance(tensor, Tensor)}
    matrices = [name for name in names if name not in exact]
    magnitudes: dict[str, Tensor] = {}

    def numbers(name: str) -> "bytes | bytearray | memoryview | array[Any]":
        if name in exact:
            return exact[name].buffer
        matrix, _, kind = name.rpartition(".")
        if kind == "largest":
            return magnitudes.pop(matrix).buffer
        codes, magnitudes[matrix] = rounded(weights.read(matrix))
        return codes.buffer

    # codes first: their sizes are mostly multiples of 8, where `SafetensorsFile.content` maps instead of copying
    shapes: dict[str, tuple[str, Sequence[int]]] = {
        **{f"{name}.codes": ("I8", weights.shape(name)) for name in matrices},
        **{f"{name}.largest": ("F32", weights.shape(name)[:1]) for name in matrices},
        **{name: (tensor.dtype, tensor.shape) for name, tensor in exact.items()},
    }
    file = os.path.join(folder, INT8_FILE)
    write_safetensors(file, shapes, numbers, {"format": "pt"})
    write_facts(file, FORMAT)


def names_to_write(folder: str | os.PathLike[str], weights: Weights, parts: Parts) -> list[str]:
    """Return the names of the weights that a checkpoint in `folder` gets; refuse a folder with model.safetensors."""
    if os.path.lexists(os.path.join(folder, WEIGHTS_FILE)):
        raise ValueError(f"{os.fspath(folder)} has weights already ({WEIGHTS_FILE}): choose an empty folder")
    return sorted(name for name in weights if name in parts.used or name.startswith(TRAINED_ONLY))
