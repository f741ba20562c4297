"""The facts of a file of codes: int8.json has the format of the int8.safetensors beside it, and its checksum.

Also the checksum of any file, by which a change shows.
"""

import mmap
import os

from capsule_mt.engine.library import checksum
from capsule_mt.messages import shown
from capsule_mt.models.opening import open_file
from capsule_mt.models.weights import CheckpointError, read_json, write_json

PIECES_CHECKSUMS = "pieces.json"  # has the checksums of a tokenizer's files, if they tell its pieces twice


def write_facts(file: str, file_format: int) -> None:
    """Write the facts of a file, which are read as `check_facts` does."""
    write_json(_facts_file(file), {"format": file_format, "checksum": file_checksum(file)})


def check_facts(file: str, file_format: int) -> None:
    """Refuse a file of another format, and one that has changed since `write_facts`."""
    facts_file = _facts_file(file)
    if not os.path.lexists(facts_file):
        raise CheckpointError(f"{facts_file}: no such file; it has the checksum of {os.path.basename(file)}")
    facts = read_json(facts_file)
    if facts.get("format") != file_format:
        advice = f"must be {file_format}, got {shown(facts.get('format'))}: convert the model again"
        raise CheckpointError(f"{facts_file}: `format` {advice}")
    if (actual := file_checksum(file)) != facts.get("checksum"):
        expected = shown(facts.get("checksum"))
        raise CheckpointError(f"{file}: its checksum is {actual}, but {os.path.basename(facts_file)} says {expected}")


def file_checksum(file: str) -> str:
    """Return the checksum of a file that is not empty, as these files name it."""
    with (
        open_file(file) as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as content,
    ):
        return f"{checksum(content):016x}"


def _facts_file(file: str) -> str:
    return f"{os.path.splitext(file)[0]}.json"
