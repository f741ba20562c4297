"""The facts of a file of codes: int8.json has the format of the int8.safetensors beside it, and its checksum."""

import mmap
import os

from capsule_mt.engine.library import checksum
from capsule_mt.messages import shown
from capsule_mt.models.opening import open_file
from capsule_mt.models.weights import CheckpointError, read_json, write_json


def write_facts(file: str, file_format: int) -> None:
    """Write the facts of a file, which are read as `check_facts` does."""
    write_json(_facts_file(file), {"format": file_format, "checksum": _checksum(file)})


def check_facts(file: str, file_format: int) -> None:
    """Refuse a file of another format, and one that has changed since `write_facts`."""
    facts_file = _facts_file(file)
    if not os.path.lexists(facts_file):
        raise CheckpointError(f"{facts_file}: no such file; it has the checksum of {os.path.basename(file)}")
    facts = read_json(facts_file)
    if facts.get("format") != file_format:
        advice = f"must be {file_format}, got {shown(facts.get('format'))}: convert the model again"
        raise CheckpointError(f"{facts_file}: `format` {advice}")
    if (actual := _checksum(file)) != facts.get("checksum"):
        expected = shown(facts.get("checksum"))
        raise CheckpointError(f"{file}: its checksum is {actual}, but {os.path.basename(facts_file)} says {expected}")


def _facts_file(file: str) -> str:
    return f"{os.path.splitext(file)[0]}.json"


def _checksum(file: str) -> str:
    with (
        open_file(file) as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as content,
    ):
        return f"{checksum(content):016x}"
