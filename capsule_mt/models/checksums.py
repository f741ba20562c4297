"""Checksums, which show that a file of a model has changed.

int8.json has the format and the checksum of the int8.safetensors beside it; pieces.json has the checksums of a
tokenizer's files.
"""

import mmap
import os

from capsule_mt.engine.library import checksum
from capsule_mt.messages import shown
from capsule_mt.models.opening import open_file
from capsule_mt.models.weights import CheckpointError, read_json, write_json

PIECES_CHECKSUMS = "pieces.json"  # in folders whose tokenizer.json and SentencePiece files have the same pieces


def write_facts(file: str, file_format: int) -> None:
    """Write the format and the checksum of a file, which `check_facts` reads."""
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
    """Return the checksum of a file as 16 hexadecimal digits; "" of an empty file, which cannot be mapped."""
    with open_file(file) as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            return ""
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as content:
            return f"{checksum(content):016x}"


def _facts_file(file: str) -> str:
    return f"{os.path.splitext(file)[0]}.json"
