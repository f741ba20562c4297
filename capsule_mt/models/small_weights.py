"""Small checkpoints: small.safetensors has entropy-coded matrices (`entropy_coding.py`), and the other tensors as is.

small.json has the format's version and the file's checksum. Loading decodes the matrices to int8.
"""

import os
from collections.abc import Iterator

from capsule_mt.engine.library import count_negative, rounded
from capsule_mt.engine.program import Codes, Tensor
from capsule_mt.models.checksums import check_facts, write_facts
from capsule_mt.models.entropy_coding import PARTS, coded, decoded, fault_of, shape_of
from capsule_mt.models.int8_weights import names_to_write
from capsule_mt.models.parts import Parts
from capsule_mt.models.weights import (
    SMALL_FILE,
    SafetensorsFile,
    Weights,
    write_safetensors,
)

FORMAT = 2


class SmallFile:
    """The weights of a small checkpoint, by the names of tensors before coding."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        file = os.path.join(folder, SMALL_FILE)
        self._stored = SafetensorsFile(file)  # first: it compares the file's size with the header
        check_facts(file, FORMAT)
        self._shapes: dict[str, tuple[int, ...]] = {}
        for stream in self._stored:
            name = stream.removesuffix(".stream")
            if name != stream:
                self._shapes[name] = self._checked_shape(name)

    def __contains__(self, name: object) -> bool:
        return name in self._shapes or name in self._stored

    def __iter__(self) -> Iterator[str]:
        yield from self._shapes
        coded_parts = {f"{name}.{part}" for name in self._shapes for part in PARTS}
        yield from (name for name in self._stored if name not in coded_parts)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name] if name in self._shapes else self._stored.shape(name)

    def read(self, name: str) -> Tensor | Codes:
        if name not in self._shapes:
            return self._stored.read(name)
        largest = self._stored.read(f"{name}.largest")
        if not isinstance(largest, Tensor) or count_negative(largest):
            raise self.problem(name, f"`{name}.largest` has a negative number")
        try:
            return decoded({part: self._stored.content(f"{name}.{part}") for part in PARTS})
        except ValueError as error:
            raise self.problem(name, f"`{name}.stream`: {error}") from None

    def problem(self, name: str, message: str) -> ValueError:
        return self._stored.problem(f"{name}.stream" if name in self._shapes else name, message)

    def _checked_shape(self, name: str) -> tuple[int, int]:
        stored = {part: f"{name}.{part}" for part in PARTS if f"{name}.{part}" in self._stored}
        shapes = {part: (self._stored.dtype(tensor), self._stored.shape(tensor)) for part, tensor in stored.items()}
        content = {part: self._stored.content(tensor) for part, tensor in stored.items()}
        if fault := fault_of(shapes, content):
            raise self._stored.problem(f"{name}.stream", f"`{name}` is not an entropy-coded matrix: {fault}")
        return shape_of(content["layout"], content["runs"])


def write_small_weights(folder: str | os.PathLike[str], weights: Weights, parts: Parts) -> None:
    """Write the weights of a model to a folder as small.safetensors and small.json.

    Codes stay as they are, and other matrices that the program rounds are rounded to int8. So the written model
    translates exactly as `weights` do with `int8=True`.
    """
    tensors: dict[str, Tensor] = {}
    for name in names_to_write(folder, weights, parts):
        values = weights.read(name)
        if isinstance(values, Tensor) and name not in parts.rounded:
            tensors[name] = values
        else:
            tensors |= {f"{name}.{part}": tensor for part, tensor in coded(rounded(values)).items()}
    # streams last: their sizes are not multiples of 4, and reading has to copy tensors that are not aligned
    names = sorted(tensors, key=lambda name: name.endswith(".stream"))
    file = os.path.join(folder, SMALL_FILE)
    shapes = {name: (tensors[name].dtype, tensors[name].shape) for name in names}
    write_safetensors(file, shapes, lambda name: tensors[name].buffer, {"format": "pt"})
    write_facts(file, FORMAT)
