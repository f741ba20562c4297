"""`pytorch_model.bin` without torch: the sandbox reads its zip file and its pickle, and returns a table of tensors."""

import os
from collections.abc import Iterator
from typing import Any

from capsule_mt.models.model_sandbox import ModelSandbox
from capsule_mt.models.opening import open_file
from capsule_mt.models.state_dict import answer
from capsule_mt.models.weights import PICKLED_FILE, CheckpointError, SafetensorsFile, TensorEntry

INDEX_FILE = "pytorch_model.bin.index.json"
SECONDS = 20.0  # of the processor: the largest pickle that is accepted takes half of them
MEMORY = 1 << 30  # bytes


class PickleSandbox(ModelSandbox):
    """A process that reads the table of tensors in a `pytorch_model.bin`."""

    answer, without_process = staticmethod(answer), ": save the model as safetensors"

    def tensors_in(self, file: str) -> list[Any]:
        """Return the name, type, shape, offset and size of each tensor."""
        return list(self._send(file)[0]["tensors"])


class PickledFile(SafetensorsFile):
    """The tensors of a `pytorch_model.bin`, or of its parts: see `SafetensorsFile`."""

    FILE, INDEX = PICKLED_FILE, INDEX_FILE

    @classmethod
    def in_folder(cls, folder: str | os.PathLike[str]) -> SafetensorsFile:
        weights = super().in_folder(folder)
        # the writers look for a tied tensor under each of its names: keep the first
        first_names: dict[TensorEntry, str] = {}
        for name, entry in weights._entries.items():
            first_names.setdefault(entry, name)
        weights._entries = {name: entry for entry, name in first_names.items()}
        return weights

    @staticmethod
    def _entries_of(file: str, metadata: dict[str, Any]) -> Iterator[tuple[str, TensorEntry]]:
        with open_file(file) as stream:
            file_size = os.fstat(stream.fileno()).st_size
        with PickleSandbox(SECONDS, MEMORY) as sandbox:
            rows = sandbox.tensors_in(file)
        for name, dtype, shape, start, size in rows:
            if start + size > file_size:
                raise CheckpointError(f"{file}: is {file_size} bytes long, but `{name}` ends at {start + size}")
            yield name, TensorEntry(file, dtype, tuple(shape), start, size)
